package prima

import (
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// avoidingEngine decides for four instances behind a balancer that sends requests to idle ones, unless honours is set.
func avoidingEngine(t *testing.T, honours bool) *policy.Engine {
	t.Helper()
	service := learningService(all.Default())
	service.Group, service.IdleFirst = quell.Group{Min: 4, Max: 4}, !honours
	tell(&service, "Confirm", 0)
	tell(&service, "Pooling", policy.Pooling{Learned: true})
	return engine(t, service, pooledModels(0.9, 0.9))
}

// TestMeasuredToMissBesideANeighbour: beside a neighbour of 0.5 the law allows 20 of 40 ms, so the first instance could carry something. It
// was measured to take longer, and no share above 0 changes that: it gets none until neighbours take half as much.
func TestMeasuredToMissBesideANeighbour(t *testing.T) {
	for name, c := range map[string]struct {
		honours bool
		ms      float64 // of the first instance
		n       int     // response times of it
		taken   float64
		out     bool
	}{
		"it misses the objective":       {ms: 55, n: 200, taken: 0.5, out: true},
		"it does not":                   {ms: 35, n: 200, taken: 0.5},
		"too few response times":        {ms: 55, n: 9, taken: 0.5},
		"no neighbour explains it":      {ms: 55, n: 200, taken: 0.01},
		"the balancer honours a weight": {ms: 55, n: 200, taken: 0.5, honours: true},
	} {
		s := together(4, 0.3, c.taken)
		*s.Instances[0].Observation.LatencyMS = quell.Latency{Mean: &c.ms, N: c.n}
		plan, _ := avoidingEngine(t, c.honours).Decide(s, policy.State{})
		if got := plan.Weights["i01"] == 0; got != c.out {
			t.Errorf("%s: weights %v: %+v", name, plan.Weights, plan.Reasons)
		}
	}
}

func TestAvoidedUntilNeighboursEase(t *testing.T) {
	e := avoidingEngine(t, false)
	var st policy.State
	var plan quell.Plan
	for p, taken := range []float64{0.5, 0.5, 0.4, 0.5, 0.1, 0.1} {
		s := together(4, 0.3, taken)
		s.At = s.At.Add(time.Duration(p) * 10 * time.Second)
		for i := range s.Instances {
			s.Instances[i].Observation.At = s.At
		}
		first := &s.Instances[0]
		if slow := 55.0; p == 0 {
			first.Observation.LatencyMS = &quell.Latency{Mean: &slow, N: 200}
		} else if *first.Weight = plan.Weights["i01"]; *first.Weight == 0 {
			first.Observation.LatencyMS, first.Observation.Utilization[quell.Network] = nil, 0
			first.Observation.Severity[quell.Network] = 1/(1-taken) - 1
		}
		plan, st = e.Decide(s, st)
		if out := taken > 0.25; out != (plan.Weights["i01"] == 0) {
			t.Errorf("period %d, neighbours take %g: weights %v: %+v", p, taken, plan.Weights, plan.Reasons)
		}
	}
}
