package prima

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// If an observation has a severity, the probe's time is not used. Otherwise severity follows from the probe's time by Eq. 1 (without
// neighbours: 10 ms, 1 ms spread, 40 probes). It is 0 unless it is significant: the mean of 10 probes must first reach 10.6 ms, and it
// stays significant until it falls to 10.3 ms.
func TestSeverityFromProbes(t *testing.T) {
	e := engine(t, golden("prima", 75, 0), goldenModels(t))
	var st policy.State
	for k, tc := range []struct {
		row  string
		want float64
	}{
		{"i1 weight=1 use=0.1 probe=10.5", 0},
		{"i1 weight=1 use=0.1 probe=12", .2},
		{"i1 weight=1 use=0.1 probe=10.5", .05},
		{"i1 weight=1 use=0.1 probe=10.2", 0},
		{"i1 weight=1 use=0.1 probe=10.5", 0},
		{"i1 weight=1 use=0.1 probe=12 sf=0.4", .4},
		{"i1 weight=1 use=0.1", .4},
	} {
		var plan quell.Plan
		plan, st = e.Decide(snap(t, k, tc.row), st)
		if got := plan.Severity["i1"]; math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%q: severity %v, want %v", tc.row, got, tc.want)
		}
	}
}

// If a single reading is as unlikely by chance as several confirming readings together, it needs no confirmation. Probes without neighbours
// have 10 ms, 1 ms spread, 40 probes.
func TestClearInterferenceIsActedOnAtOnce(t *testing.T) {
	for probe, want := range map[float64]bool{10.8: false, 14: true} {
		e := engine(t, golden("prima", 75, 1), goldenModels(t))
		row := "i%d weight=0.5 use=%v probe=%v"
		_, st := e.Decide(snap(t, 0, fmt.Sprintf(row, 1, .38, 10), fmt.Sprintf(row, 2, .38, 10)), policy.State{})
		plan, _ := e.Decide(snap(t, 1, fmt.Sprintf(row, 1, .45, probe), fmt.Sprintf(row, 2, .45, 10)), st)
		if plan.Severity["i1"] == 0 {
			t.Fatalf("a probe of %v ms is no severity", probe)
		}
		if added := plan.Group != nil && plan.Group.Add > 0; added != want {
			t.Errorf("a probe of %v ms: added %v, want %v: %v", probe, added, want, plan.Reasons)
		}
	}
}

// A neighbour that comes shortly before a reading ends shows weakly in it, and clearly in the next one. The weak reading does not delay the
// clear one.
func TestClearInterferenceAfterAWeakReading(t *testing.T) {
	e := engine(t, golden("prima", 75, 1), goldenModels(t))
	decide := func(k int, use, probe float64, st policy.State) (quell.Plan, policy.State) {
		row := "i%d weight=0.5 use=%v probe=%v"
		return e.Decide(snap(t, k, fmt.Sprintf(row, 1, use, probe), fmt.Sprintf(row, 2, use, 10)), st)
	}
	_, st := decide(0, .38, 10, policy.State{})
	plan, st := decide(1, .38, 10.8, st)
	if plan.Severity["i1"] == 0 || plan.Group != nil {
		t.Fatalf("the weak reading: severity %v, %+v", plan.Severity["i1"], plan.Group)
	}
	if plan, _ = decide(2, .45, 14, st); plan.Group == nil || plan.Group.Add == 0 {
		t.Errorf("the clear reading adds nothing: %v", plan.Reasons)
	}
}

// If interference was found in enough windows to act, it is kept until the same number of windows has none. If it was found in fewer
// windows, it is not kept.
func TestOneLuckyWindowDoesNotEndInterference(t *testing.T) {
	e := engine(t, golden("prima", 75, 1), goldenModels(t))
	var st policy.State
	for k, tc := range []struct {
		probe string
		want  float64
	}{
		{"12", .2},
		{"10.5", 0}, // found only once: a time of half the margin is not enough
		{"12", .2},
		{"14", .4},
		{"10", .4}, // kept
		{"12", .2},
		{"10", .2},    // kept again
		{"10.5", .05}, // half the margin is still enough
		{"10", .05},
		{"10", 0},   // missing twice
		{"10.5", 0}, // half the margin is no longer enough
		{"12", .2},
		{"10", 0},
	} {
		var plan quell.Plan
		plan, st = e.Decide(snap(t, k, "i1 weight=1 use=0.1 probe="+tc.probe), st)
		if got := plan.Severity["i1"]; math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("window %d, of %s ms: severity %v, want %v", k, tc.probe, got, tc.want)
		}
	}
}

// The policy waits for a ready instance that never reports its severity only as long as guard.stale_after says. So the
// instance does not block changes of the group for ever.
func TestSilentInstanceIsNotWaitedForForEver(t *testing.T) {
	s := golden("prima", 75, 0)
	one(&s)
	s.Guard.StaleAfter, s.Guard.Fade = 2, 4
	rows := []string{"i1 weight=1 use=0.7 cap=0.5", "i2 weight=0 silent"}
	play(t, engine(t, s, goldenModels(t)),
		at("i1=1 i2=0 capacity_short", rows...),
		at("i1=1 i2=0 capacity_short", rows...),
		at("i1=0.875 i2=0.125 +1 capacity_short stale", rows...),
		at("i1=0.75 i2=0.25 +1 capacity_short stale", rows...),
	)
}

func TestStaleObservationIsNotRead(t *testing.T) {
	s := golden("prima", 75, 0)
	s.Guard.StaleAfter, s.Sampling = 3, period*time.Second
	plan, _ := engine(t, s, goldenModels(t)).Decide(snap(t, 0, "i1 weight=0.5 use=0.1 cap=0.5 seen=30",
		"i2 weight=0.5 use=0.1 cap=0.5 seen=31"), policy.State{})
	if _, ok := plan.Capacity["i1"]; !ok {
		t.Error("an observation of 3 periods ago is still read")
	}
	if _, ok := plan.Capacity["i2"]; ok {
		t.Error("an observation of more than 3 periods ago was read")
	}
}
