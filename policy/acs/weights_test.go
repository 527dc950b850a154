package acs

import (
	"math"
	"slices"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// By weights, groups become even, too, and nothing is left unused.
func TestACSWeights(t *testing.T) {
	for _, groups := range [][]sharer{
		{{want: 1}, {want: 8}},
		{{want: 1}, {want: 2}, {want: 3}, {want: 4}},
		{{want: .4}, {want: 4}, {want: 4}},
	} {
		m := machineOf(2, groups...)
		m.within = "/quell"
		before := map[string]float64{}
		m.play(acsEngine(t, byWeights), policy.State{}, 40, func(period int, slowdowns []float64, p quell.Plan) {
			if u := unfairness(slowdowns); period > 10 && u > 1.1 {
				t.Errorf("period %d: unfairness %.3f of %.2f", period, u, slowdowns)
			}
			for _, l := range p.Limits {
				if l.Unit != quell.WeightUnit {
					t.Fatalf("a cap: %+v", l)
				}
				if was := before[l.Instance]; period > 10 && math.Abs(l.Value-was) > Spec.Defaults.Tolerance*was {
					t.Errorf("period %d: the weight of %s moves from %.3f to %.3f", period, l.Instance, was, l.Value)
				}
				before[l.Instance] = l.Value
			}
		})
	}
	// If caps are chosen instead, the weights go.
	m := machineOf(2, sharer{want: 4}, sharer{want: 1})
	st := m.play(acsEngine(t, byWeights), policy.State{}, 5, nil)
	m.play(acsEngine(t, nil), st, 5, func(_ int, _ []float64, p quell.Plan) {
		for _, l := range p.Limits {
			if l.Unit == quell.WeightUnit {
				t.Errorf("a weight: %+v", l)
			}
		}
	})
}

// capOf returns the cap of a group in a plan, 0 if it has none.
func capOf(p quell.Plan, id string) float64 {
	for _, l := range p.Limits {
		if l.Instance == id && l.Unit != quell.WeightUnit {
			return l.Value
		}
	}
	return 0
}

// Groups that run at once, whatever their weights, get a cap beside it. The cap goes when the group wants much more, when it was idle for
// long, and when nobody else wants the processors, even if the group reports that it is slow.
func TestACSHoldsBackWhatAlwaysRuns(t *testing.T) {
	m := machineOf(2, sharer{want: 4}, sharer{want: 4}, sharer{want: 0.3, first: true}, sharer{want: 0.2, first: true})
	e := acsEngine(t, byWeights)
	held := 0.0
	st := m.play(e, policy.State{}, 40, func(period int, slowdowns []float64, p quell.Plan) {
		if u := unfairness(slowdowns); period > 15 && u > 1.15 {
			t.Errorf("period %d: unfairness %.3f of %.2f", period, u, slowdowns)
		}
		held = capOf(p, "g2")
	})
	if held == 0 {
		t.Fatal("there is no cap")
	}
	for name, change := range map[string]func([]sharer){
		"it is idle":       func(groups []sharer) { groups[2].want = 0 },
		"it wants more":    func(groups []sharer) { groups[2].want, groups[2].first = 4, false },
		"the others ended": func(groups []sharer) { groups[0].want, groups[1].want, groups[2].lies, groups[3].lies = 0, 0, 4, 4 },
	} {
		other := *m
		other.groups = slices.Clone(m.groups)
		change(other.groups)
		other.play(e, st, 5, func(period int, _ []float64, p quell.Plan) {
			if left := capOf(p, "g2"); period > 4 && left > 0 {
				t.Errorf("%s: in period %d it still has a cap of %.2f", name, period, left)
			}
		})
	}
}

// A group whose cap cannot be set is left to its weight alone.
func TestACSCannotHoldBack(t *testing.T) {
	m := machineOf(2, sharer{want: 4}, sharer{want: 4}, sharer{want: 0.3, first: true})
	caps, weight := 0, 0.0
	m.play(acsEngine(t, byWeights), policy.State{}, 40, func(_ int, _ []float64, p quell.Plan) {
		caps += count(capOf(p, "g2") > 0)
		m.asked, m.coming = nil, nil
		weight = m.groups[2].weight
	})
	if caps != 2 || !(weight < 0.1) {
		t.Errorf("%d periods with a cap, weight %.3f at the end", caps, weight)
	}
}

// An agent that starts again has lifted all limits. A cap beside a weight that is missing once is set again.
func TestACSHoldsBackAfterARestart(t *testing.T) {
	m := machineOf(2, sharer{want: 4}, sharer{want: 4}, sharer{want: 0.3, first: true}, sharer{want: 0.2, first: true})
	e, held := acsEngine(t, byWeights), 0.0
	st := m.play(e, policy.State{}, 40, func(_ int, _ []float64, p quell.Plan) { held = capOf(p, "g2") })
	if held == 0 {
		t.Fatal("there is no cap")
	}
	m.caps, m.asked, m.coming = nil, nil, nil
	m.play(e, st, 10, func(period int, _ []float64, p quell.Plan) {
		if capOf(p, "g2") == 0 {
			t.Errorf("period %d after the restart: no cap", period)
		}
	})
}

// A quota that somebody else set stops a group. Its weight cannot help it, so it is left out.
func TestACSWeightBesideAQuota(t *testing.T) {
	m := machineOf(2, sharer{want: 2}, sharer{want: 2}, sharer{want: 1})
	m.caps = map[string]float64{"g0": 0.1}
	e, st := acsEngine(t, byWeights), policy.State{}
	var plan quell.Plan
	for range 20 {
		s, _ := m.step()
		s.Instances[0].Limits = map[quell.Resource]float64{quell.CPU: 0.1}
		plan, st = e.Decide(s, st)
		m.apply(plan)
		m.coming = nil
	}
	if !slices.ContainsFunc(plan.Reasons, func(r quell.Reason) bool { return r.Code == "acs_bounded" && r.Instance == "g0" }) {
		t.Errorf("reasons %v", plan.Reasons)
	}
	if got := m.run(); math.Abs(2/got[1]-1/got[2]) > 0.25 {
		t.Errorf("the others get %.2f", got[1:])
	}
}
