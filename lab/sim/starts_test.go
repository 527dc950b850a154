package sim

import (
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// In the first five minutes beside a calm fleet nothing is said that the first windows cannot carry, whatever the arrivals. Of 20 starts
// none says that the group is overloaded, at most one has a capacity that is more than a third off what it becomes, and at most in 1% of
// its periods an instance is said to have neighbours.
func TestTheFirstWindowsAreNotTrusted(t *testing.T) {
	const first, whole, third = 5 * time.Minute, 12 * time.Minute, 1.0 / 3
	periods, accused, off := 0, 0, 0
	for _, process := range []scenario.Arrivals{scenario.Synchronised, scenario.Bursty, scenario.Deterministic, scenario.Poisson} {
		for seed := range uint64(5) {
			plans := startOf(t, process, 40+seed, whole)
			last, furthest := plans[len(plans)-1].Capacity, 0.0
			for _, p := range plans {
				if p.At.Sub(plans[0].At) > first {
					break
				}
				periods += len(p.Capacity)
				for _, r := range p.Reasons {
					switch r.Code {
					case "overload":
						t.Errorf("%s, seed %d, after %v: %s", process, 40+seed, p.At.Sub(plans[0].At), r.Text)
					case "interference":
						accused++
					}
				}
				for id, c := range p.Capacity {
					furthest = max(furthest, math.Abs(c/last[id]-1))
				}
			}
			if furthest > third {
				t.Logf("%s, seed %d: a capacity is %.0f%% off", process, 40+seed, 100*furthest)
				off++
			}
		}
	}
	t.Logf("accused in %d of %d periods; a capacity far off in %d of 20 starts", accused, periods, off)
	if off > 1 || float64(accused) > 0.01*float64(periods) {
		t.Errorf("accused in %d of %d periods; a capacity far off in %d of 20 starts", accused, periods, off)
	}
}

// startOf returns the plans of PRIMA that begins without models, beside a calm fleet.
func startOf(t *testing.T, process scenario.Arrivals, seed uint64, whole time.Duration) (plans []*quell.Plan) {
	t.Helper()
	sc := plainScenario(4, 0, 40e6, whole)
	sc.Instances, sc.Workload.Load = scenario.Instances{Start: 4, Fixed: 4, Startup: time.Second}, 1.6
	sc.Workload.Arrivals = process
	sc.Service.SLO.Threshold, sc.Service.Sampling = 75*time.Millisecond, 10*time.Second
	sc.Service.Group.Min, sc.Service.Group.Max = 4, 4
	run := scenario.Run{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.LeastConn, Models: scenario.Learn}
	_, err := Run(t.Context(), Options{Scenario: sc, Run: run, Seed: seed, Plans: func(p *quell.Plan) { plans = append(plans, p) }})
	if err != nil {
		t.Fatal(err)
	}
	return plans
}
