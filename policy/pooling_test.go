package policy_test

import (
	"math"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

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

// TestARequestTakesTheSameTimeWithoutLoad: the law of a resource that is hardly used takes the waiting at another one for its own. The
// response time without load is the shortest of all laws, so that this resource does not end all capacity.
func TestARequestTakesTheSameTimeWithoutLoad(t *testing.T) {
	models := pooledModels(0.9, 0.9)
	live := models.Live()
	slow := *live[quell.Network][model.AnyType]
	together := *slow.Together
	slow.R0MS, slow.Together, slow.PerRequest = 45, &together, 0.001
	together.R0MS = 45
	live[quell.Memory] = map[string]*model.Law{model.AnyType: &slow}
	service := learningService(all.Default())
	tell(&service, "Resources", policy.AllKnown())
	e := engine(t, service, models)
	for i := range e.Contended() {
		if got := e.Contended()[i].Predictor.Station().UnloadedMS(); math.Abs(got-10) > 0.01 {
			t.Errorf("%s: %.2f ms without load, want 10", e.Contended()[i].Resource, got)
		}
	}
}
