package prima

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// micros is a snapshot of three instances of type t2.micro with these processor credits. Each answers in 8.4 ms / (1 - use).
func micros(period int, use float64, credits [3]float64) *quell.Snapshot {
	rate := 300 * use
	s := &quell.Snapshot{At: start.Add(time.Duration(period) * 10 * time.Second), Service: "s", ArrivalRate: &rate}
	for i, left := range credits {
		weight, mean, each := 1./3, 8.4/(1-use), rate/3
		s.Instances = append(s.Instances, quell.Instance{ID: fmt.Sprintf("i%d", i+1), Type: "t2.micro", State: quell.Ready, Weight: &weight,
			Observation: &quell.Observation{At: s.At, WindowS: 10, RequestRate: &each, Utilization: map[quell.Resource]float64{quell.CPU: use},
				LatencyMS: &quell.Latency{Mean: &mean, N: int(10 * each)}, Credits: map[quell.Resource]float64{quell.CPU: left},
				Probe: map[quell.Resource]quell.ProbeStats{quell.CPU: {MeanMS: 5 / (1 - use), StddevMS: 0.5, N: 10}}}})
	}
	return s
}

// Two of the three suffice for a load of 0.4 at each. The one with 20 credits goes, wherever it is listed, and the plan predicts 21 ms for
// the others, as if credits did not count. (Once one with 100 credits went, and the plan predicted 84 ms.)
func TestTheMicroWithFewCreditsGoes(t *testing.T) {
	for poor := range 3 {
		for _, unlimited := range []bool{false, true} {
			service := learningService("prima")
			service.Group.Min, service.Group.Max, service.Group.Fixed = 1, 3, false
			tell(&service, "Credits", policy.CreditSettings{Last: time.Hour, Unlimited: &unlimited})
			tell(&service, "Resources", policy.ResourcesOf(quell.CPU))
			e, err := all.NewLearningEngine(service, nil)
			if err != nil {
				t.Fatal(err)
			}
			var st policy.State
			for k := range 60 {
				_, st = e.Decide(micros(k, 0.3+0.02*float64(k%11), [3]float64{100, 100, 100}), st)
			}
			credits := [3]float64{100, 100, 100}
			credits[poor] = 20
			var plan quell.Plan
			for k := range 5 {
				plan, st = e.Decide(micros(60+k, 0.4, credits), st)
			}
			if want := fmt.Sprintf("i%d", poor+1); plan.Group == nil || !slices.Equal(plan.Group.Remove, []string{want}) {
				t.Fatalf("unlimited %v: %+v, want %s removed: %v", unlimited, plan.Group, want, plan.Reasons)
			}
			for id, ms := range plan.PredictedMS {
				if math.Abs(plan.Weights[id]-0.5) > 0.01 || math.Abs(ms-21) > 1 {
					t.Errorf("unlimited %v: %s gets %v and is predicted at %v ms; want 0.5 and 21 ms", unlimited, id, plan.Weights[id], ms)
				}
			}
		}
	}
}
