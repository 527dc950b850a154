package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// accusation counts the periods from a time on, and those in which the plan names somebody's neighbours.
func accusation(
	t *testing.T, sc *scenario.Scenario, seed uint64, from, to time.Duration, link func(time.Duration) float64,
) (periods, accused, doubted int) {
	t.Helper()
	var begun time.Time
	var plans []quell.Plan
	run := scenario.Run{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.RoundRobin, Models: scenario.Learn}
	_, err := Run(t.Context(), Options{Scenario: sc, Run: run, Seed: seed, ProberLink: link,
		Plans: func(p *quell.Plan) { plans = append(plans, *p) },
		check: func(s *simulation) error { begun = s.clock(s.zero); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plans {
		if at := p.At.Sub(begun); at <= from || at > to {
			continue
		}
		periods++
		if len(p.Cause) > 0 {
			accused++
		}
		if slices.ContainsFunc(p.Reasons, func(r quell.Reason) bool { return r.Code == "prober" }) {
			doubted++
		}
	}
	return periods, accused, doubted
}

func doubtScenario(hosts int) *scenario.Scenario {
	sc := plainScenario(hosts, 0, 40e6, 110*time.Second)
	sc.Instances, sc.Workload.Load = scenario.Instances{Start: hosts, Fixed: hosts, Startup: time.Second}, 0.4*float64(hosts)
	sc.Service.SLO.Threshold, sc.Service.Sampling = 60*time.Millisecond, 2*time.Second
	sc.Service.Group.Min, sc.Service.Group.Max = hosts, hosts
	return sc
}

// While the link of the prober is busy, probes of all machines are slow, and in 95% of periods nobody is accused. Neighbours that come to
// all machines at once slow the requests as well, and are told from that.
func TestABusyProberAccusesNobody(t *testing.T) {
	const from, to = 70 * time.Second, 108 * time.Second
	periods, accused, doubted := 0, 0, 0
	for _, hosts := range []int{2, 4} {
		for seed := range uint64(3) {
			rng := rand.New(rand.NewPCG(seed, 7))
			use := 0.4 + 0.1*float64(seed%3) // of the prober's link
			p, a, d := accusation(t, doubtScenario(hosts), 200+seed, from, to, func(at time.Duration) float64 {
				if at < from || at >= to {
					return 0
				}
				// the wait for a busy link (M/M/1): none with probability 1 - use
				if rng.Float64() > use {
					return 0
				}
				return 0.01 * rng.ExpFloat64() / (1 - use)
			})
			periods, accused, doubted = periods+p, accused+a, doubted+d
		}
	}
	t.Logf("prober's link busy: %d periods, somebody accused in %d, the prober doubted in %d", periods, accused, doubted)
	if float64(accused) > 0.05*float64(periods) || doubted < periods/2 {
		t.Errorf("of %d periods with a busy prober, somebody was accused in %d; the prober was doubted in %d", periods, accused, doubted)
	}
	periods, accused, doubted = 0, 0, 0
	for seed := range uint64(3) {
		sc := doubtScenario(3)
		for _, h := range sc.Hosts {
			sc.Timeline = append(sc.Timeline, scenario.Event{At: from,
				Interfere: &scenario.Interference{Host: h.ID, Resource: quell.Network, Use: 0.5}})
		}
		p, a, d := accusation(t, sc, 300+seed, from+10*time.Second, to, nil)
		periods, accused, doubted = periods+p, accused+a, doubted+d
	}
	t.Logf("neighbours everywhere: %d periods, accused in %d, the prober doubted in %d", periods, accused, doubted)
	if float64(accused) < 0.8*float64(periods) {
		t.Errorf("neighbours came to all machines at once: in %d of %d periods they were told", accused, periods)
	}
}
