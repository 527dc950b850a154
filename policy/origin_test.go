package policy_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// tenant is an instance of one processor in a window of ten seconds: how long its tasks ran, waited and were stopped by its own quota, and
// the share that the hypervisor took.
func tenant(group bool, run, wait, throttled, steal float64) *quell.Observation {
	return &quell.Observation{WindowS: 10, CPU: &quell.CPUTime{User: run / 10, Steal: steal},
		Sched: &quell.Sched{Cores: 1, Group: group, RunS: run, WaitS: &wait, ThrottledS: &throttled}}
}

// single is an instance in a group whose only task ran and waited that long.
func single(run, wait float64) *quell.Observation {
	o := tenant(true, run, wait, 0, 0)
	o.Sched.TaskRunS = &run
	return o
}

func TestOrigin(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      *quell.Observation
		usual  *policy.UsualWaits
		shares string // share, own, quota, neighbours, hypervisor
		cause  string
		hidden float64 // -1: absent
	}{
		{"its own load: a queue at 50% use makes tasks wait as long as they run", tenant(true, 5, 5, 0, 0), nil, "50.0 50.0 0.0 0.0 0.0",
			"own", 0},
		{"a neighbour that uses half of the processor", tenant(true, 2.5, 7.5, 0, 0), nil, "75.0 25.0 0.0 50.0 0.0", "neighbours", 0.5},
		{"a single task never waits for itself", single(5, 5), nil, "50.0 0.0 0.0 50.0 0.0", "neighbours", 0.5},
		{"its own quota", tenant(true, 3, 7, 6.5, 0), nil, "70.0 5.0 65.0 0.0 0.0", "quota", 0},
		{"the hypervisor", tenant(false, 4, 2, 0, 0.4), nil, "60.0 10.0 0.0 0.0 50.0", "hypervisor", -1},
		{"a machine of its own has no neighbours", tenant(false, 2.5, 7.5, 0, 0), nil, "75.0 75.0 0.0 0.0 0.0", "own", -1},
		{"nothing to speak of", tenant(true, 5, 0.2, 0, 0), nil, "3.8 3.8 0.0 0.0 0.0", "", 0},
		{"as usual", tenant(true, 2.5, 7.5, 0, 0), &policy.UsualWaits{N: 5, Neighbours: 0.3}, "75.0 25.0 0.0 50.0 0.0", "", 0.5},
		{"more than usual", tenant(true, 2.5, 7.5, 0, 0), &policy.UsualWaits{N: 5, Neighbours: 0.2}, "75.0 25.0 0.0 50.0 0.0", "neighbours", 0.5},
		{"too few windows to know what is usual", tenant(true, 2.5, 7.5, 0, 0), &policy.UsualWaits{N: 4, Neighbours: 0.3},
			"75.0 25.0 0.0 50.0 0.0",
			"neighbours", 0.5},
		{"no waiting time is told", &quell.Observation{WindowS: 10, Sched: &quell.Sched{Cores: 1, RunS: 4, ThrottledS: new(6.)}}, nil,
			"- - 60.0 - 0.0", "quota", -1},
		{"pressure in place of waiting", &quell.Observation{WindowS: 10, Pressure: map[string]float64{"cpu": .75, quell.PressureFull: .75},
			Sched: &quell.Sched{Cores: 1, Group: true, RunS: 2.5}}, nil, "75.0 0.0 0.0 75.0 0.0", "neighbours", 0.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := policy.Origin(c.o, c.usual)
			if !ok || shares(got) != c.shares || got.Cause != c.cause {
				t.Errorf("%t, %s, cause %q; want %s, %q", ok, shares(got), got.Cause, c.shares, c.cause)
			}
			if (got.Hidden == nil) != (c.hidden < 0) || got.Hidden != nil && math.Abs(*got.Hidden-c.hidden) > 1e-6 {
				t.Errorf("hidden %v, want %v", got.Hidden, c.hidden)
			}
		})
	}
	for name, o := range map[string]*quell.Observation{
		"no observation": nil, "no scheduling": {WindowS: 10}, "no window": {Sched: &quell.Sched{Cores: 1, RunS: 1}},
		"no processors": {WindowS: 10, Sched: &quell.Sched{RunS: 1}}, "idle": tenant(true, 0.01, 0.01, 0, 0),
	} {
		if got, ok := policy.Origin(o, nil); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// On less than a processor, tasks that run as fast as their part of it allows do not wait for others, but for the quota.
func TestOriginOnAPartOfAProcessor(t *testing.T) {
	o := tenant(true, 1, 4, 0, 0)
	o.Sched.Cores = 0.2
	if got, _ := policy.Origin(o, nil); *got.Hidden != 0 || shares(got) != "80.0 0.0 80.0 0.0 0.0" || got.Cause != quell.QuotaCause {
		t.Errorf("%s, hidden %v", shares(got), *got.Hidden)
	}
	*o.Sched.WaitS = 19
	// 4 times as long: 75% busy, 50% by itself
	if got, _ := policy.Origin(o, nil); math.Abs(*got.Hidden-0.25) > 1e-6 || got.Cause != quell.OwnCause {
		t.Errorf("%s, hidden %v, cause %q", shares(got), *got.Hidden, got.Cause)
	}
}

// Whatever is measured: parts are fractions that add up to the share, and more waiting never means less hidden load, if any is reported.
func TestOriginAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Float64Range(0, 50)
		o := tenant(rapid.Bool().Draw(t, "group"), seconds.Draw(t, "run"), seconds.Draw(t, "wait"), seconds.Draw(t, "throttled"),
			rapid.Float64Range(0, 1).Draw(t, "steal"))
		o.Sched.Cores = rapid.Float64Range(0.01, 64).Draw(t, "cores")
		got, ok := policy.Origin(o, nil)
		if !ok {
			return
		}
		sum := 0.0
		for _, p := range []*float64{got.Own, got.Quota, got.Neighbours, got.Hypervisor} {
			if !(*p >= 0 && *p <= 1) {
				t.Fatalf("a part of %v", *p)
			}
			sum += *p
		}
		if math.Abs(sum-*got.Share) > 1e-9 || got.Hidden != nil && !(*got.Hidden >= 0 && *got.Hidden <= 1) {
			t.Fatalf("%+v", got)
		}
		*o.Sched.WaitS += seconds.Draw(t, "more")
		if more, ok := policy.Origin(o, nil); ok && got.Hidden != nil && *more.Hidden < *got.Hidden-1e-9 {
			t.Fatalf("waiting longer, hidden falls from %v to %v", *got.Hidden, *more.Hidden)
		}
	})
}

func TestBusyFor(t *testing.T) {
	for _, c := range []struct{ waitPerRun, cores, want float64 }{
		{0, 1, 0}, {1, 1, 0.5}, {4, 1, 0.8}, {1e9, 1, 1}, {0, 0.5, 0}, {1, 0.5, 0.5}, {math.MaxFloat64, 64, 1},
	} {
		if got := model.BusyFor(c.waitPerRun, c.cores); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%v s waiting per second on %v processors: busy %v, want %v", c.waitPerRun, c.cores, got, c.want)
		}
	}
	if two, four := model.BusyFor(1, 2), model.BusyFor(1, 4); !(two > 0.5 && four > two) {
		t.Errorf("with more processors the same waiting means more use: %v, %v", two, four)
	}
}

// The engine names neighbours in the plan, learns what is usual meanwhile, and keeps that over a restart.
func TestPlanSaysWhoMakesItWait(t *testing.T) {
	service := quell.Service{Name: "s", Sampling: 10 * time.Second, Policy: quell.Policy{Name: all.Plain()},
		SLO: quell.SLO{Metric: quell.Mean, Threshold: time.Second}, Group: quell.Group{Min: 1, Max: 3}}
	engine, err := all.NewEngine(service, nil)
	if err != nil {
		t.Fatal(err)
	}
	var st policy.State
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	decide := func(o *quell.Observation) quell.Plan {
		at = at.Add(10 * time.Second)
		o.At = at
		var plan quell.Plan
		in := quell.Instance{ID: "a", State: quell.Ready, Observation: o}
		plan, st = engine.Decide(&quell.Snapshot{At: at, Service: "s", Instances: []quell.Instance{in}}, st)
		return plan
	}
	for range policy.KnownMean + 1 {
		if plan := decide(tenant(true, 5, 5.4, 0, 0)); len(plan.Waits) > 0 {
			t.Fatalf("own load is reported: %+v", plan.Waits)
		}
	}
	text, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var kept policy.State
	if err := restore(text, &kept); err != nil || kept.Usual["a"] == nil || !reflect.DeepEqual(kept.Usual, st.Usual) {
		t.Fatalf("%s, %v", text, err)
	}
	st = kept
	plan := decide(tenant(true, 2.5, 7.5, 0, 0))
	if plan.Waits["a"].Cause != quell.NeighboursCause || plan.Cause["a"] != quell.CPU || !hasReason(plan, "waits_neighbours", "a") {
		t.Errorf("%+v, %v, %v", plan.Waits, plan.Cause, plan.Reasons)
	}
	want := "its tasks waited in the time they wanted to run: 50.0% for neighbours on this machine; 25.0% for its own load; usually"
	if got := plan.Reasons[len(plan.Reasons)-1].Text; !strings.HasPrefix(got, want) ||
		!strings.HasSuffix(got, "; neighbours use about 0.50 of its processors") {
		t.Errorf("reason %q", got)
	}
	if n := st.Usual["a"].N; n != policy.KnownMean+1 {
		t.Errorf("a window with neighbours counts as usual: %d windows", n)
	}
	if plan := decide(&quell.Observation{}); len(plan.Waits) > 0 || st.Usual["a"] == nil {
		t.Errorf("without readings: %+v, %+v", plan.Waits, st.Usual)
	}
}

func FuzzOrigin(f *testing.F) {
	f.Add(1., 2., 3., 4., 5., 0.1, true)
	f.Fuzz(func(t *testing.T, window, cores, run, wait, throttled, steal float64, group bool) {
		o := &quell.Observation{At: time.Unix(1, 0), WindowS: window, CPU: &quell.CPUTime{Steal: steal},
			Sched: &quell.Sched{Cores: cores, Group: group, RunS: run, WaitS: &wait, ThrottledS: &throttled}}
		if o.Validate() != nil {
			return
		}
		got, ok := policy.Origin(o, nil)
		if _, err := json.Marshal(got); err != nil {
			t.Errorf("%t, %+v: %v", ok, got, err)
		}
	})
}
