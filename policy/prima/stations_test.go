package prima

import (
	"math"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// pooledPlan decides on a group that was seen for long.
func pooledPlan(t *testing.T, models *model.Models, s *quell.Snapshot) quell.Plan {
	t.Helper()
	plan, _ := pooledEngine(t, models).Decide(s, seenLong())
	return plan
}

// TestCapacityOfTheGroup: within 40 ms an instance alone carries 0.75. In a group that is one station it carries more, the more there are.
func TestCapacityOfTheGroup(t *testing.T) {
	for n := 2; n <= 7; n += 5 {
		want, servers := 0.0, math.Pow(float64(n), 0.9)
		for step := 0.5; step > 1e-6; step /= 2 { // at 40 ms requests wait three times as long as they are served
			if model.WaitFactor(servers, want+step) <= 3 {
				want += step
			}
		}
		plan := pooledPlan(t, pooledModels(0.9, 0.9), together(n, 0.7))
		if got := plan.Capacity["i01"]; math.Abs(got-want) > 0.01 {
			t.Errorf("of %d instances each carries %.3f, want %.3f", n, got, want)
		}
		if ms := plan.PredictedAtCapacityMS["i01"]; math.Abs(ms-40) > 2 {
			t.Errorf("at its capacity an instance takes %.1f ms, want 40", ms)
		}
	}
}

// TestFewestTogether: the smallest group whose capacity suffices stays. A use that was never seen is approached by one instance at a time.
func TestFewestTogether(t *testing.T) {
	for _, c := range []struct {
		name     string
		snapshot *quell.Snapshot
		held     float64
		removed  int
	}{
		{"load 4 on 10, and a use of 0.8 was seen to hold: with headroom and margin 6 are enough", together(10, 0.4), 0.8, 4},
		{"a use of 0.4 was seen to hold: at most 0.46 is assumed, so one goes", together(10, 0.4), 0.4, 1},
		{"no use was seen to hold, as with few requests: one at a time", together(10, 0.4), 0, 1},
		{"nor where the load needs them all", together(10, 0.75), 0, 0},
		{"the present use was not seen to hold: none goes", together(10, 0.4), 0.2, 0},
		{"beside a neighbour of 0.8 even without load it takes 50 ms: that one goes", together(8, 0.18, 0.8), 0.2, 1},
	} {
		plan := pooledPlan(t, pooledModels(0.9, c.held), c.snapshot)
		var gone []string
		if plan.Group != nil {
			gone = plan.Group.Remove
		}
		if len(gone) != c.removed {
			t.Errorf("%s: removed %v: %+v", c.name, gone, plan.Reasons)
		}
	}
	plan := pooledPlan(t, pooledModels(0.9, 0.2), together(8, 0.18, 0.8))
	if plan.Group == nil || len(plan.Group.Remove) != 1 || plan.Group.Remove[0] != "i01" {
		t.Errorf("the instance that cannot keep the threshold stays: %+v", plan.Group)
	}
}

// TestShortTogether: as many instances are added as the group then needs, by its capacity with them.
func TestShortTogether(t *testing.T) {
	plan := pooledPlan(t, pooledModels(0.9, 0.9), together(3, 0.95))
	if plan.Group == nil || plan.Group.Add != 1 {
		t.Errorf("load 2.85 on three: %+v, want one more: %+v", plan.Group, plan.Reasons)
	}
	alone := pooledPlan(t, pooledModels(0, 0.9), together(3, 0.95))
	if alone.Group == nil || alone.Group.Add != 2 {
		t.Errorf("each for itself: %+v, want two more", alone.Group)
	}
}

// TestNewcomersShareInAnOverload: a ready instance that has told nothing yet gets no share, unless the others cannot carry the load.
func TestNewcomersShareInAnOverload(t *testing.T) {
	for _, c := range []struct {
		use, share float64
		by         float64 // who set the newcomer's share by hand, if above 0
	}{
		{use: 0.6, share: 0},
		{use: 0.9, share: 0}, // too much for the objective, but no overload
		{use: 0.98, share: 0.25},
		{use: 0.98, share: 0.1, by: 0.1},
	} {
		s := together(4, c.use)
		newcomer := &s.Instances[3]
		newcomer.Observation, newcomer.Weight = nil, new(0.0)
		for i := range 3 {
			s.Instances[i].Weight = new(1.0 / 3)
		}
		if c.by > 0 {
			newcomer.Override = &c.by
		}
		plan := pooledPlan(t, pooledModels(0.9, 0.9), s)
		if got := plan.Weights[newcomer.ID]; math.Abs(got-c.share) > 0.05 {
			t.Errorf("at a use of %.2f the newcomer gets %.3f, want %.3f: %+v", c.use, got, c.share, plan.Reasons)
		}
	}
}

func BenchmarkTogether(b *testing.B) {
	service := learningService(all.Default())
	service.Group = quell.Group{Min: 1, Max: 20000}
	tell(&service, "Pooling", policy.Pooling{Learned: true})
	e := engine(b, service, pooledModels(0.9, 0.8))
	s := together(10_000, 0.5, 0.3, 0.4, 0.5)
	plan, st := e.Decide(s, policy.State{})
	if len(plan.Capacity) != 10_000 {
		b.Fatal(plan.Reasons)
	}
	for b.Loop() {
		e.Decide(s, st)
	}
}
