package rivals

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// report is what an instance shows in a period.
type report struct{ share, rate, use, inFlight, errors float64 }

// reported is the k-th snapshot of a group; a report without a rate is of an instance that is silent.
func reported(k int, list ...report) *quell.Snapshot {
	in := &quell.Snapshot{At: start.Add(time.Duration(k+1) * period * time.Second), Service: "video"}
	for i, r := range list {
		own := quell.Instance{ID: fmt.Sprint(i), State: quell.Ready, Weight: &r.share}
		if r.rate > 0 {
			own.Observation = &quell.Observation{At: in.At, WindowS: period, RequestRate: &r.rate, ErrorRate: &r.errors, InFlight: &r.inFlight,
				Utilization: map[quell.Resource]float64{quell.Network: r.use}}
		}
		in.Instances = append(in.Instances, own)
	}
	return in
}

func expectShares(t *testing.T, when string, plan quell.Plan, want ...float64) {
	t.Helper()
	for i := range want {
		if got := plan.Weights[fmt.Sprint(i)]; math.Abs(got-want[i]) > 5e-4 {
			t.Errorf("%s: shares %v, want %v", when, plan.Weights, want)
			return
		}
	}
}

func TestPIDByHand(t *testing.T) {
	for why, tc := range map[string]struct {
		list []report
		want []float64
	}{
		"the page's example":          {[]report{{.5, 50, .6, 0, 0}, {.5, 50, .2, 0, 0}}, []float64{.3625, .6375}},
		"even as it is":               {[]report{{.5, 50, .4, 2, 0}, {.5, 50, .4, 2, 0}}, []float64{.5, .5}},
		"requests in flight count":    {[]report{{.5, 50, .4, 6, 0}, {.5, 50, .4, 2, 0}}, []float64{.445, .555}},
		"but few of them do not":      {[]report{{.5, 50, .4, .6, 0}, {.5, 50, .4, .1, 0}}, []float64{.5, .5}},
		"a silent one keeps its part": {[]report{{.4, 50, .6, 0, 0}, {.4, 50, .2, 0, 0}, {.2, 0, 0, 0, 0}}, []float64{.29, .51, .2}},
		"no more than half at once":   {[]report{{.2, 50, .9, 0, 0}, {.4, 1, .01, 0, 0}, {.4, 1, .01, 0, 0}}, []float64{.0769, .4615, .4615}},
		"an equal share to begin":     {[]report{{.5, 50, .4, 0, 0}, {.5, 50, .4, 0, 0}, {0, 0, 0, 0, 0}}, []float64{.375, .375, .25}},
	} {
		plan, _ := engine(t, rival("pid", 0), nil).Decide(reported(0, tc.list...), policy.State{})
		expectShares(t, why, plan, tc.want...)
	}
}

// Whatever the speeds of the instances, pid brings them to the same utilisation, and settles there.
func TestPIDEvensOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		speeds := rapid.SliceOfN(rapid.Float64Range(50, 200), 2, 8).Draw(t, "speeds")
		s := rival("pid", 0)
		tell(&s, "Tolerance", 0.02)
		e, err := all.NewEngine(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		var st policy.State
		list := make([]report, len(speeds))
		for i := range list {
			list[i].share = 1 / float64(len(list))
		}
		moved := 0.0 // the largest late change of a share, relative to it
		for k := range 60 {
			for i := range list {
				list[i].rate = 20 * float64(len(list)) * list[i].share
				list[i].use = list[i].rate / speeds[i]
			}
			var plan quell.Plan
			plan, st = e.Decide(reported(k, list...), st)
			for i := range list {
				w := plan.Weights[fmt.Sprint(i)]
				if k >= 50 {
					moved = math.Max(moved, math.Abs(w/list[i].share-1))
				}
				list[i].share = w
			}
		}
		least, most := math.Inf(1), 0.0
		for _, r := range list {
			least, most = math.Min(least, r.use), math.Max(most, r.use)
		}
		if most > 1.1*least || moved > 0.05 {
			t.Fatalf("speeds %v: utilisations from %v to %v, shares still move by %v", speeds, least, most, moved)
		}
	})
}

// A person's share stays, and is not part of the mean. A reading is counted once.
func TestPIDLeavesWhatAPersonSet(t *testing.T) {
	in := reported(0, report{.2, 50, .9, 0, 0}, report{.4, 50, .3, 0, 0}, report{.4, 50, .3, 0, 0})
	in.Instances[0].Override = new(.2)
	e := engine(t, rival("pid", 0), nil)
	plan, _ := e.Decide(in, policy.State{})
	expectShares(t, "one is set", plan, .2, .4, .4)
	again := reported(0, report{.5, 50, .6, 0, 0}, report{.5, 50, .2, 0, 0})
	plan, st := e.Decide(again, policy.State{})
	follow(again, plan)
	again.At = again.At.Add(time.Second)
	plan, _ = e.Decide(again, st)
	expectShares(t, "the same reading again", plan, .3625, .6375)
}

func TestCSWRRByHand(t *testing.T) {
	s := rival("cswrr", 0)
	tell(&s, "Blackout", time.Duration(0))
	for why, tc := range map[string]struct {
		list []report
		want []float64
	}{
		"the page's example":             {[]report{{.5, 50, .5, 0, 0}, {.5, 50, .25, 0, 0}}, []float64{1. / 3, 2. / 3}},
		"with failed requests":           {[]report{{.5, 50, .5, 0, 0}, {.5, 50, .25, 0, .1}}, []float64{.4118, .5882}},
		"the mean of the others":         {[]report{{.3, 50, .5, 0, 0}, {.3, 50, .25, 0, 0}, {.4, 0, 0, 0, 0}}, []float64{.2222, .4444, .3333}},
		"one weight alone says little":   {[]report{{.3, 50, .5, 0, 0}, {.7, 0, 0, 0, 0}}, []float64{.5, .5}},
		"no utilisation, no weight":      {[]report{{.3, 50, .5, 0, 0}, {.7, 50, 0, 0, .1}}, []float64{.5, .5}},
		"next to no utilisation, either": {[]report{{.3, 50, .5, 0, 0}, {.7, 1e9, 3e-300, 0, 0}}, []float64{.5, .5}},
	} {
		plan, _ := engine(t, s, nil).Decide(reported(0, tc.list...), policy.State{})
		expectShares(t, why, plan, tc.want...)
	}
}

// Weights count after ten seconds of reports, until three minutes without any; then the ten seconds begin again.
func TestCSWRRsBlackoutAndExpiry(t *testing.T) {
	s := rival("cswrr", 0)
	s.Sampling = time.Second
	e := engine(t, s, nil)
	var st policy.State
	at := 0
	decide := func(second int, tells bool) quell.Plan {
		list := []report{{.5, 50, .5, 0, 0}, {.5, 50, .25, 0, 0}}
		if !tells {
			list[0].rate, list[1].rate = 0, 0
		}
		in := reported(0, list...)
		at = second
		in.At = start.Add(time.Duration(at) * time.Second)
		for i := range in.Instances {
			if o := in.Instances[i].Observation; o != nil {
				o.At = in.At
			}
		}
		var plan quell.Plan
		plan, st = e.Decide(in, st)
		return plan
	}
	for _, tc := range []struct {
		second int
		tells  bool
		weighs bool
	}{
		{1, true, false}, {10, true, false}, {11, true, true}, {12, false, true}, {190, false, true}, {191, false, false}, {192, true, false},
		{201, true, false}, {202, true, true},
	} {
		want := []float64{.5, .5}
		if tc.weighs {
			want = []float64{1. / 3, 2. / 3}
		}
		expectShares(t, fmt.Sprintf("second %d", tc.second), decide(tc.second, tc.tells), want...)
	}
	in := reported(0, report{.5, 50, .5, 0, 0}, report{.5, 50, .25, 0, 0})
	in.Instances[0].State = quell.Failed
	in.At = start.Add(203 * time.Second)
	_, st = e.Decide(in, st)
	expectShares(t, "one was not ready", decide(204, true), .5, .5)
}
