package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/policy"
)

// A backup that takes half of the link of one instance is named as its own work, and its share of the requests follows within two periods.
// The models are learned in place. Requests that are learned beside it cost no more than before.
func TestOwnWorkIsNoRequest(t *testing.T) {
	const from = 60 * time.Second
	named := 0
	for seed := range uint64(10) {
		sc := plainScenario(4, 0, 40e6, 90*time.Second)
		sc.Instances, sc.Workload.Load = scenario.Instances{Start: 4, Fixed: 4, Startup: time.Second}, 1.6
		sc.Service.SLO.Threshold, sc.Service.Sampling = 40*time.Millisecond, 2*time.Second
		sc.Service.Group.Min, sc.Service.Group.Max = 4, 4
		sc.Timeline = []scenario.Event{
			{At: from, Interfere: &scenario.Interference{Host: "h1", Resource: quell.Network, Use: 0.5, Own: true}},
		}
		run := scenario.Run{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.RoundRobin, Models: scenario.Learn}
		var plans []quell.Plan
		var begun time.Time
		var last policy.State
		_, err := Run(t.Context(), Options{Scenario: sc, Run: run, Seed: seed + 100, Plans: func(p *quell.Plan) { plans = append(plans, *p) },
			check: func(s *simulation) error {
				begun, last = s.clock(s.zero+from.Seconds()), s.state
				return nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(plans, func(p quell.Plan) bool { return p.At.After(begun.Add(sc.Service.Sampling / 2)) })
		before, after, told := plans[i-1].Weights["i1"], plans[i+1].Weights["i1"], false
		for k, p := range plans {
			told = told || (k == i || k == i+1) && p.OwnWork["i1"].Use > 0.3
			for id := range p.OwnWork {
				if id != "i1" || k < i-1 {
					t.Errorf("seed %d: own work of %s at %v, which has none then", seed, id, p.At.Sub(begun))
				}
			}
		}
		if told {
			named++
		}
		if told && after > 0.8*before {
			t.Errorf("seed %d: the share went from %.3f to %.3f within two periods", seed, before, after)
		}
		cost := last.Learned.Live().Best(quell.Network).PerRequest
		if want := 0.01; cost < 0.9*want || cost > 1.1*want {
			t.Errorf("seed %d: a request per second takes 0.01 of the link; learned were %.4f", seed, cost)
		}
	}
	if named < 9 {
		t.Errorf("own work was named in %d of 10 runs", named)
	}
}

// A neighbour is no own work, and an instance can have both.
func TestOwnWorkBesideANeighbour(t *testing.T) {
	sc := plainScenario(3, 0, 40e6, 60*time.Second)
	sc.Instances, sc.Workload.Load = scenario.Instances{Start: 3, Fixed: 3, Startup: time.Second}, 0.9
	sc.Service.SLO.Threshold, sc.Service.Sampling = 40*time.Millisecond, 2*time.Second
	sc.Timeline = []scenario.Event{
		{At: 30 * time.Second, Interfere: &scenario.Interference{Host: "h1", Resource: quell.Network, Use: 0.4}},
		{At: 30 * time.Second, Interfere: &scenario.Interference{Host: "h2", Resource: quell.Network, Use: 0.4, Own: true}},
	}
	run := scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: quell.RoundRobin}
	var of []string
	if _, err := Run(t.Context(), Options{Scenario: sc, Run: run, Seed: 1, Plans: func(p *quell.Plan) {
		for _, r := range p.Reasons {
			if r.Code == "own_work" && !slices.Contains(of, r.Instance) {
				of = append(of, r.Instance)
			}
		}
	}}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(of, " "); got != "i2" {
		t.Errorf("own work of %q; i1 has a neighbour, i2 has work of its own", got)
	}
}
