package model

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

// waiting is what a control group of one processor shows in ten seconds if it uses own and its neighbours use others of that processor.
func waiting(own, others float64) *quell.Observation {
	busy := own + others
	power := math.Sqrt(2*2) - 1
	wait := 10 * own * math.Pow(busy, power) / (1 - busy)
	return &quell.Observation{WindowS: 10, Sched: &quell.Sched{Cores: 1, Group: true, RunS: 10 * own, WaitS: &wait}}
}

func TestNeighboursUse(t *testing.T) {
	quota := waiting(.3, .3)
	quota.Sched.ThrottledS, *quota.Sched.WaitS = new(2.), *quota.Sched.WaitS+2
	stolen := waiting(.3, .3)
	stolen.CPU = &quell.CPUTime{Steal: .1}
	machine := waiting(.3, .3)
	machine.Sched.Group = false
	untold := waiting(.3, .3)
	untold.Sched.WaitS = nil
	full := waiting(.7, .2)
	*full.Sched.WaitS = 1e9
	for _, tc := range []struct {
		why  string
		o    *quell.Observation
		want float64 // -1: not known
	}{
		{"no neighbours", waiting(.3, 0), 0},
		{"neighbours", waiting(.3, .4), .4},
		{"stopped by its quota, too", quota, .3},
		{"the hypervisor's part is not theirs", stolen, .2},
		{"there is no more than what the own tasks leave", full, .3},
		{"a machine of its own", machine, -1},
		{"a kernel that does not report waiting", untold, -1},
		{"an idle group", &quell.Observation{WindowS: 10, Sched: &quell.Sched{Cores: 1, Group: true, WaitS: new(0.)}}, -1},
		{"nothing", nil, -1},
	} {
		got, known := NeighboursUse(tc.o)
		if known != (tc.want >= 0) || known && math.Abs(got-tc.want) > 1e-6 {
			t.Errorf("%s: %v, %t, want %v", tc.why, got, known, tc.want)
		}
	}
}

// ICE and PRIMA infer the same use from the same waiting. ICE also counts what the hypervisor took, and judges machines of their own.
func TestProcessorsOfAgreesWithNeighboursUse(t *testing.T) {
	quota := waiting(.3, .3)
	quota.Sched.ThrottledS, *quota.Sched.WaitS = new(2.), *quota.Sched.WaitS+2
	stolen := waiting(.3, .3)
	stolen.CPU = &quell.CPUTime{User: .3, Steal: .1}
	small := waiting(.3, .4) // a quarter of a processor: four times as long per second of run, one of which is the run itself
	small.Sched.Cores, small.Sched.RunS, *small.Sched.WaitS = .25, .75, .75*(4/.3-1)
	single := waiting(.3, .4)
	single.Sched.TaskRunS, *single.Sched.WaitS = new(3.), 3*.4/.6 // its only task never waits for itself
	pressed := waiting(.3, .4)
	pressed.Pressure, pressed.Sched.WaitS = map[string]float64{"cpu": *pressed.Sched.WaitS / 10}, nil
	for _, tc := range []struct {
		why   string
		o     *quell.Observation
		want  float64
		steal float64
	}{
		{"no neighbours", waiting(.3, 0), 0, 0},
		{"neighbours", waiting(.3, .4), .4, 0},
		{"stopped by its quota, too", quota, .3, 0},
		{"the hypervisor", stolen, .2, .1},
		{"less than one processor", small, .4, 0},
		{"one task", single, .4, 0},
		{"a kernel that only tells pressure", pressed, .4, 0},
	} {
		tc.o.Utilization = map[quell.Resource]float64{quell.CPU: tc.o.Sched.RunS / tc.o.Sched.Cores / 10}
		told, ok := NeighboursUse(tc.o)
		use, known := ProcessorsOf(tc.o, 0)
		if !ok || !known || math.Abs(told-tc.want) > 1e-6 || math.Abs(use.Hidden-tc.want-tc.steal) > 1e-6 {
			t.Errorf("%s: %v, %t and %+v, %t, want %v and %v stolen", tc.why, told, ok, use, known, tc.want, tc.steal)
		}
	}
}

func TestNeighboursUseIsAFraction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Float64Range(0, 1e6)
		wait, throttled := amount.Draw(t, "wait"), amount.Draw(t, "throttled")
		o := &quell.Observation{WindowS: rapid.Float64Range(0, 100).Draw(t, "window"), Sched: &quell.Sched{
			Group: true, Cores: rapid.Float64Range(0, 256).Draw(t, "cores"), RunS: amount.Draw(t, "run"), WaitS: &wait, ThrottledS: &throttled}}
		if got, known := NeighboursUse(o); !(got >= 0 && got <= 1) || !known && got != 0 {
			t.Fatalf("%v, %t", got, known)
		}
	})
}

// amongOthers are training runs of the processor in which tasks wait as others say.
func amongOthers(others func(own, interfering float64) float64) (rows []TrainingRow) {
	for _, own := range []float64{.1, .3, .5} {
		for _, interfering := range []float64{0, .2, .4} {
			r := run(own, interfering, own, 1+interfering, .1, 20+interfering, 20)
			r.Resource, r.Observation = quell.CPU, waiting(own, others(own, interfering))
			rows = append(rows, r)
		}
	}
	return rows
}

// Models rely on waiting only if the training showed that it tells the neighbours' use.
func TestWaitsAreReliedOnIfTheTrainingShowsThem(t *testing.T) {
	const always = .05 // what the inference gives without neighbours
	for _, tc := range []struct {
		why    string
		others func(own, interfering float64) float64
		want   bool
	}{
		{"as it is", func(_, interfering float64) float64 { return interfering }, true},
		{"always a little more", func(_, interfering float64) float64 { return always + interfering }, true},
		{"four fifths", func(_, interfering float64) float64 { return interfering * .8 }, true},
		{"half of it", func(_, interfering float64) float64 { return interfering / 2 }, false},
		{"not felt", func(_, _ float64) float64 { return 0 }, false},
	} {
		m, report := fitted(t, amongOthers(tc.others))
		if w := report.Prima()[0].Waits; w == nil || (*w <= waitsTrusted) != tc.want {
			t.Errorf("%s: the report gives an error of %v", tc.why, w)
		}
		for _, row := range m.Prima().Isolation[quell.CPU] {
			if (row.Waits != nil) != tc.want {
				t.Errorf("%s: at utilisation %v the waits are %v", tc.why, row.Utilization, row.Waits)
			}
		}
		b, err := CompileBaseline(m, quell.CPU, .95)
		if err != nil {
			t.Fatal(err)
		}
		got, known := b.NeighboursUse(.2, waiting(.2, tc.others(.2, .3)))
		if known != tc.want || known && math.Abs(got-.3) > .07 {
			t.Errorf("%s: %v, %t of 0.3", tc.why, got, known)
		}
	}
	unseen := amongOthers(func(_, interfering float64) float64 { return interfering })
	unseen[4].Observation = nil
	if m, _ := fitted(t, unseen); m.Prima().Isolation[quell.CPU][0].Waits != nil {
		t.Error("a cell without waiting times is no proof")
	}
}

func TestWaitsAreAFraction(t *testing.T) {
	text := `{"format": "quell-models/1", "isolation": {"cpu": [{"utilization": 0.1, "probe_ms": 1, "stddev_ms": 0, "n": 5, "waits": 1.5}]}}`
	if _, err := Decode([]byte(text), "line "); err == nil || !strings.Contains(err.Error(), "isolation.cpu[0].waits") {
		t.Error(err)
	}
}
