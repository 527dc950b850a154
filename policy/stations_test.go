package policy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// pooledModels are models that were learned in place behind least connections: a request takes 10 ms alone, and a group of four was seen to
// hold the objective up to a use of held.
func pooledModels(pooling, held float64) *model.Models {
	law := &model.Law{R0MS: 10, P0MS: 5, Exponent: 1, ProbeExponent: 1, SeverityExponent: 1, SpreadIdle: 0.01, SpreadBusy: 0.2, Probes: 1000,
		N: 100, PerRequest: 0.01, Margin: new(float64),
		Together: &model.Together{Metric: quell.Mean, R0MS: 10, Pooling: pooling, Exponent: 1, Neighbour: 1, Ratio: 1, Size: 4, Held: held}}
	return &model.Models{Sections: []model.Section{model.Live{quell.Network: {model.AnyType: law}}}}
}

// together is a snapshot of instances with one use; taken are neighbours' uses beside the first ones.
func together(n int, use float64, taken ...float64) *quell.Snapshot {
	s := &quell.Snapshot{At: time.Unix(0, 0).UTC(), Service: "s"}
	for i := range n {
		beside := 0.0
		if i < len(taken) {
			beside = taken[i]
		}
		weight, mean := 1/float64(n), 12.0
		severity := (1-use)/(1-use-beside) - 1
		s.Instances = append(s.Instances, quell.Instance{ID: fmt.Sprintf("i%02d", i+1), State: quell.Ready, Weight: &weight,
			Observation: &quell.Observation{At: s.At, WindowS: 10, LatencyMS: &quell.Latency{Mean: &mean, N: 200},
				Utilization: map[quell.Resource]float64{quell.Network: use}, Severity: map[quell.Resource]float64{quell.Network: severity}}})
	}
	return s
}

func pooledPlan(t *testing.T, models *model.Models, s *quell.Snapshot) quell.Plan {
	t.Helper()
	plan, _ := pooledEngine(t, models).Decide(s, policy.State{})
	return plan
}

func pooledEngine(t *testing.T, models *model.Models) *policy.Engine {
	t.Helper()
	service := learningService(all.Default())
	service.Group = quell.Group{Min: 1, Max: 30}
	tell(&service, "Confirm", 0)
	tell(&service, "Pooling", policy.Pooling{Learned: true})
	return engine(t, service, models)
}

// TestCapacityOfTheGroup: within 40 ms an instance alone carries 0.75. In a group that is one station it carries more, the more there are.
func TestCapacityOfTheGroup(t *testing.T) {
	for n := 2; n <= 7; n += 5 {
		law := &model.GroupLaw{R0MS: 10, Pooling: 0.9, Exponent: 1, Ratio: model.RatioOf(quell.Mean, 1)}
		want := law.LargestUse(float64(n), 0, 40)
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

// TestPoolingIsASetting: without it the group's law is not used, and a mistake is named.
func TestPoolingIsASetting(t *testing.T) {
	service := learningService(all.Default())
	for most, want := range map[int]float64{policy.SmallGroup: 0.75, policy.SmallGroup + 1: 0.92} {
		service.Group.Max = most
		plan, _ := engine(t, service, pooledModels(0.9, 0.9)).Decide(together(4, 0.5), policy.State{})
		if got := plan.Capacity["i01"]; math.Abs(got-want) > 0.01 {
			t.Errorf("by default an instance of a group of up to %d carries %.3f, want %.2f", most, got, want)
		}
	}
	tell(&service, "Pooling", policy.Pooling{})
	plan, _ := engine(t, service, pooledModels(0.9, 0.9)).Decide(together(4, 0.5), policy.State{})
	if got := plan.Capacity["i01"]; math.Abs(got-0.75) > 0.01 {
		t.Errorf("by itself an instance carries %.3f, want 0.75", got)
	}
	for most, want := range map[int]bool{policy.SmallGroup: false, policy.SmallGroup + 1: true} {
		service := learningService(all.Default())
		service.Group.Max = most
		learning, err := all.NewLearningEngine(service, nil)
		if err != nil || learning.Pooling().Learned != want {
			t.Errorf("an engine that learns for a group of up to %d: pooling %v, %v", most, learning.Pooling(), err)
		}
	}
	for text, want := range map[string]policy.Pooling{"auto": {Auto: true}, "learned": {Learned: true}, "0": {}, "0.6": {Told: 0.6}} {
		if got, err := policy.ParsePooling(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "small", "-0.1", "1.1", "NaN"} {
		if _, err := policy.ParsePooling(text); err == nil {
			t.Errorf("%q is taken", text)
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
