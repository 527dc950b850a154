package policy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// weighed is a snapshot of two instances of which people gave the second twice the weight.
func weighed(k int, weights ...float64) *quell.Snapshot {
	s := &quell.Snapshot{At: time.Unix(int64(10*k), 0), Service: "s"}
	for i, w := range weights {
		base, rate := float64(i+1)/1.5, 30.0
		in := quell.Instance{ID: fmt.Sprintf("i%d", i+1), State: quell.Ready, Base: &base, Observation: &quell.Observation{
			At: s.At, WindowS: 10, RequestRate: &rate, Utilization: map[quell.Resource]float64{quell.Network: 0.2},
			Severity: map[quell.Resource]float64{quell.Network: 0},
		}}
		if w > 0 {
			in.Weight = &w
		}
		s.Instances = append(s.Instances, in)
	}
	return s
}

// Every policy keeps the ratio of the base weights until it measures something else, from any beginning.
func TestPoliciesKeepBaseWeights(t *testing.T) {
	for _, name := range []string{"static", "hpa", "prima", "ice", "lsf", "lr"} {
		for _, weights := range [][]float64{{1. / 3, 2. / 3}, {0, 0}} {
			e := engine(t, guarding(name, func(s *quell.Service) { s.Group.Min, s.Group.Max = 2, 2 }), goldenModels(t))
			var st policy.State
			var plan quell.Plan
			for k := range 8 {
				plan, st = e.Decide(weighed(k, weights...), st)
				weights = []float64{plan.Weights["i1"], plan.Weights["i2"]}
			}
			if math.Abs(weights[1]/weights[0]-2) > 1e-6 {
				t.Errorf("%s: shares %v; the base weights are 1 : 2", name, weights)
			}
		}
	}
}

// An instance without readings goes to its even share, not to an equal one, and a new one starts with at most that.
func TestGuardIsRelativeToBaseWeights(t *testing.T) {
	e := engine(t, guarding("static", func(s *quell.Service) { s.Guard.StaleAfter, s.Guard.Fade = 1, 2 }), goldenModels(t))
	var st policy.State
	var plan quell.Plan
	for k := range 8 {
		s := weighed(k, 0.6, 0.4)
		s.Instances[1].Observation = nil
		plan, st = e.Decide(s, st)
	}
	if got := plan.Weights["i2"]; math.Abs(got-2./3) > 1e-6 {
		t.Errorf("a stale instance of base weight 2 of 3 goes to %.3f", got)
	}
}
