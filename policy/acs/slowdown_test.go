package acs

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// working is a group of one second that reports units of work.
func working(id string, run, wait float64, units *float64) quell.Instance {
	in := waiter(id, run, wait, run, 0)
	if units != nil {
		in.Observation.Counters = map[string]float64{quell.CounterProgress: *units}
	}
	return in
}

// during returns a second of a machine of one processor.
func during(groups ...quell.Instance) *quell.Snapshot {
	s := onHost(1, 1, 0, groups...)
	s.Machine.WindowS = 1
	for i := range groups {
		groups[i].Observation.WindowS = 1
	}
	return s
}

// Slowdown by progress is the best rate of work that was seen over the present one.
func TestACSGoesByProgress(t *testing.T) {
	e, st := acsEngine(t, nil), policy.State{}
	for i, c := range []struct {
		run, wait, units float64 // units: 0, not reported
		slowdown         float64
		from             quell.SlowdownFrom
	}{
		{1, 0, 100, 1, quell.FromProgress},
		{0.5, 0.5, 50, 2, quell.FromProgress},
		{0.5, 0.5, 40, 2.5, quell.FromProgress}, // the neighbours take caches, too
		{0.1, 0, 10, 3, quell.FromProgress},     // without waiting, no more than three times is believed
		{0.5, 0.5, 0, 2, quell.FromScheduling},
		{0.5, 0.5, 1, 6, quell.FromProgress}, // more than three times what its waiting explains is not believed
		{0.5, 0.5, 200, 1, quell.FromProgress},
	} {
		units := &c.units
		if c.units == 0 {
			units = nil
		}
		var plan quell.Plan
		plan, st = e.Decide(during(working("a", c.run, c.wait, units)), st)
		got := plan.Tenants["a"]
		if got.Slowdown == nil || math.Abs(*got.Slowdown-c.slowdown) > 0.02*c.slowdown || got.From != c.from {
			t.Errorf("second %d: %s", i, text(t, got))
		}
	}
}

// A group that stops reporting is slowed down as far as its waiting foretells by what it reported before (Eq. 5).
func TestACSForetells(t *testing.T) {
	e, st := acsEngine(t, nil), policy.State{}
	rng := rand.New(rand.NewPCG(1, 1))
	slowdown := func(wait float64) float64 { return 1.2 + 1.5*(1/(1-wait)-1) } // wait is the part of time that it waits
	for range 60 {
		wait := rng.Float64() / 2
		s := during(working("a", 0.5, wait, nil))
		told := slowdown(wait)
		s.Instances[0].Observation.Slowdown = &told
		_, st = e.Decide(s, st)
	}
	plan, _ := e.Decide(during(working("a", 0.5, 0.25, nil)), reread(t, st))
	if got := plan.Tenants["a"]; got.From != quell.FromModel || math.Abs(*got.Slowdown-slowdown(0.25)) > 0.05 {
		t.Errorf("%s, want %.2f", text(t, got), slowdown(0.25))
	}
	if c := plan.Tenants["a"].Correlation; c == nil || *c < 0.99 {
		t.Errorf("correlation %v (Eq. 9)", c)
	}
}

// Where processors count cache misses, the prediction considers them. Rows without them are left out; those from before they were counted
// are forgotten.
func TestACSForetellsByCacheMisses(t *testing.T) {
	e, st := acsEngine(t, nil), policy.State{}
	rng := rand.New(rand.NewPCG(1, 2))
	second := func(wait, misses float64, told bool) *quell.Snapshot {
		s := during(working("a", 0.5, wait, nil))
		o := s.Instances[0].Observation
		if misses > 0 {
			o.Counters = map[string]float64{quell.CounterMissRate: misses}
		}
		if told {
			slowdown := 1/(1-wait) + misses
			o.Slowdown = &slowdown
		}
		return s
	}
	var plan quell.Plan
	for k := range 120 {
		misses := 0.1 + 0.3*rng.Float64()
		if k < 30 || k%10 == 0 {
			misses = 0
		}
		plan, st = e.Decide(second(rng.Float64()/2, misses, true), st)
		if rows := st.Memory.(*memory).Groups["a"].Model.Rows; k == 40 && rows > 10 {
			t.Errorf("%d rows after ten with cache misses", rows)
		}
	}
	if c := plan.Tenants["a"].Correlation; c == nil || *c < 0.5 || *c > 0.99 {
		t.Errorf("correlation %v: waiting does not explain all", c)
	}
	for _, misses := range []float64{0.1, 0.4} {
		plan, _ := e.Decide(second(0.25, misses, false), st)
		want := 1/0.75 + misses
		if got := plan.Tenants["a"]; got.From != quell.FromModel || math.Abs(*got.Slowdown-want) > 0.02 {
			t.Errorf("%s, want %.2f", text(t, got), want)
		}
	}
	if got, _ := e.Decide(second(0.25, 0, false), st); got.Tenants["a"].From != quell.FromScheduling {
		t.Errorf("without cache misses: %s", text(t, got.Tenants["a"]))
	}
}

// A group that reports an absurd slowdown gets no more than plausible.
func TestACSDoubtsLies(t *testing.T) {
	for _, by := range []Means{Caps, Weights} {
		m := machineOf(1, sharer{want: 1, lies: 1e5}, sharer{want: 1})
		m.play(acsEngine(t, func(s *Settings) { s.By = by }), policy.State{}, 60, nil)
		if got := m.run(); got[1] < 0.2 {
			t.Errorf("by %s: the honest group gets %.3f processors", by, got[1])
		}
	}
}
