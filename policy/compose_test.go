package policy_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/guard"
)

// cutTo writes into a snapshot that a fast policy has cut an instance's share to a factor.
func cutTo(s *quell.Snapshot, id string, left float64, seconds int) {
	for i := range s.Instances {
		if s.Instances[i].ID == id {
			s.Instances[i].Factor = &quell.Factor{Value: left, Until: s.At.Add(time.Duration(seconds) * time.Second)}
		}
	}
}

// If an instance's share is cut, the other instances get the rest in proportion to their shares. The next decision keeps the cut. When the
// cut ends, the instance gets its share back.
func TestCompose(t *testing.T) {
	s := guarding("prima", func(s *quell.Service) { s.Group.Min = 3 })
	e := engine(t, s, goldenModels(t))
	rows := []string{"a weight=0.5 use=0.2 cap=0.5", "b weight=0.25 use=0.1 cap=0.5", "c weight=0.25 use=0.1 cap=0.5"}
	first := snap(t, 0, rows...)
	plan, st := e.Decide(first, policy.State{})
	wanted := plan.Weights
	between := snap(t, 0, rows...)
	follow(between, plan)
	same, after := e.Compose(between, st)
	weighs(t, "without a cut", same.Weights, wanted)

	cutTo(between, "a", 0.2, 5)
	stored, _ := json.Marshal(st)
	cut, after := e.Compose(between, after)
	if again, _ := json.Marshal(st); string(again) != string(stored) {
		t.Error("the memory handed in was changed")
	}
	left := 0.2 * wanted["a"]
	rest := 1 / (left + wanted["b"] + wanted["c"])
	weighs(t, "cut", cut.Weights, map[string]float64{"a": left * rest, "b": wanted["b"] * rest, "c": wanted["c"] * rest})
	if !hasReason(cut, "cut", "") {
		t.Errorf("no reason in %v", cut.Reasons)
	}

	next := snap(t, 1, rows...)
	follow(next, cut)
	cutTo(next, "a", 0.2, 5)
	decided, after := e.Decide(next, after)
	weighs(t, "decided while it is cut", decided.Weights, cut.Weights)

	over := snap(t, 1, rows...)
	follow(over, decided)
	cutTo(over, "a", 0.2, 0)
	back, _ := e.Compose(over, after)
	weighs(t, "over", back.Weights, wanted)
}

// An instance that a fast policy has cut to nothing is not one that joins: the load is not divided anew in each period.
func TestCutToNothingIsNoJoining(t *testing.T) {
	e := engine(t, guarding("prima", func(s *quell.Service) { s.Group.Min = 3 }), goldenModels(t))
	rows := []string{"a weight=0.5 use=0.2 cap=0.5", "b weight=0.3 use=0.1 cap=0.5", "c weight=0.2 use=0.1 cap=0.5"}
	_, st := e.Decide(snap(t, 0, rows...), policy.State{})
	between := snap(t, 0, rows...)
	cutTo(between, "a", 0, 5)
	cut, st := e.Compose(between, st)
	for period := 1; period < 4; period++ {
		next := snap(t, period, rows...)
		follow(next, cut)
		cutTo(next, "a", 0, 5)
		var plan quell.Plan
		plan, st = e.Decide(next, st)
		if hasReason(plan, "join", "") || plan.Weights["a"] != 0 {
			t.Errorf("period %d: %v, %v", period, plan.Weights, plan.Reasons)
		}
	}
}

func TestCutsYield(t *testing.T) {
	s := guarding("static", func(*quell.Service) {})
	e := engine(t, s, nil)
	in := snap(t, 0, "a weight=0.5 use=0.2", "b weight=0.5 use=0.2 hand=0.6")
	cutTo(in, "b", 0.1, 5)
	plan, _ := e.Compose(in, policy.State{Policy: "static"})
	weighs(t, "what a person set", plan.Weights, map[string]float64{"a": .4, "b": .6})

	in = snap(t, 0, "a weight=0.5 use=0.2", "b weight=0.5 use=0.2")
	cutTo(in, "a", 0, 5)
	cutTo(in, "b", 0, 5)
	plan, _ = e.Compose(in, policy.State{Policy: "static"})
	weighs(t, "nothing would be left", plan.Weights, map[string]float64{"a": .5, "b": .5})

	guarded := engine(t, guarding("static", func(s *quell.Service) { s.Guard.Floor, s.Guard.Step = 0.1, 0.5 }), nil)
	in = snap(t, 0, "a weight=0.5 use=0.2", "b weight=0.5 use=0.2")
	cutTo(in, "a", 0.01, 5)
	plan, st := guarded.Compose(in, policy.State{Policy: "static"})
	weighs(t, "guard.step", plan.Weights, map[string]float64{"a": .25, "b": .75})
	follow(in, plan)
	floored, _ := guarded.Compose(in, st)
	weighs(t, "guard.floor", floored.Weights, map[string]float64{"a": .05, "b": .95})
	cutTo(in, "a", 0, 5)
	out, _ := guarded.Compose(in, st)
	weighs(t, "taken out: guard.floor does not hold", out.Weights, map[string]float64{"a": 0, "b": 1})

	in = snap(t, 0, "a weight=0.25 use=0.2", "b weight=0.25 use=0.2", "c weight=0.25 use=0.2", "d weight=0.25 use=0.2")
	cutTo(in, "a", 0, 5)
	plan, _ = guarded.Compose(in, policy.State{Policy: "static"})
	weighs(t, "taken out: guard.step bounds what the others gain", plan.Weights,
		map[string]float64{"a": 0, "b": 1. / 3, "c": 1. / 3, "d": 1. / 3})
}

// Whatever is cut, the weights sum to 1, and no instance that is not cut loses weight.
func TestComposedWeightsAreWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(rt, "n")
		in := &quell.Snapshot{At: start, Service: "video"}
		for i := range n {
			w := 1 / float64(n)
			instance := quell.Instance{ID: string(rune('a' + i)), State: quell.Ready, Weight: &w, Observation: &quell.Observation{At: start}}
			if rapid.Bool().Draw(rt, "cut") {
				instance.Factor = &quell.Factor{Value: rapid.Float64Range(0, 1).Draw(rt, "left"), Until: start.Add(time.Second)}
			}
			in.Instances = append(in.Instances, instance)
		}
		plan, _ := engine(t, guarding("static", func(*quell.Service) {}), nil).Compose(in, policy.State{Policy: "static"})
		var sum float64
		for _, i := range in.Instances {
			if w := plan.Weights[i.ID]; i.Factor != nil && i.Factor.Value == 0 && w > 0 && w < guard.Exactly {
				rt.Fatalf("%s has a share of %g, which is rounding", i.ID, w)
			}
			sum += plan.Weights[i.ID]
			if i.Factor == nil && plan.Weights[i.ID] < *i.Weight-1e-9 {
				rt.Fatalf("%s goes from %g to %g", i.ID, *i.Weight, plan.Weights[i.ID])
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			rt.Fatalf("%v sums to %g", plan.Weights, sum)
		}
	})
}

func TestScopesAreKeptApart(t *testing.T) {
	s := guarding("static", func(s *quell.Service) { s.Policy.Name = "outlier" })
	if _, err := all.NewEngine(s, nil); err == nil {
		t.Error("a fast policy decides for a service")
	}
	s.Policy = quell.Policy{Name: "static", Fast: quell.Fast{Name: "prima", Sampling: time.Second}}
	if _, err := all.NewFast(s, nil); err == nil {
		t.Error("a service's policy runs as a fast one")
	}
	s.Policy.Fast = quell.Fast{}
	if f, err := all.NewFast(s, nil); f != nil || err != nil {
		t.Errorf("none: %v, %v", f, err)
	}
}
