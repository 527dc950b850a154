package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
)

// plainScenario has n equal machines, one instance on each, and no neighbours.
func plainScenario(n int, load, bitsPerSecond float64, duration time.Duration) *scenario.Scenario {
	service := quell.DefaultService()
	service.Name, service.SLO = "bench", quell.SLO{Metric: quell.Mean, Threshold: time.Second}
	service.Group.Max = n
	sc := &scenario.Scenario{
		Name: "bench", Seed: 1, Duration: duration, Service: service, Judge: scenario.DefaultJudging(),
		Instances: scenario.Instances{Start: n, Fixed: n},
		Workload:  scenario.Workload{Kind: scenario.File, Arrivals: scenario.Poisson, Size: 50_000, Load: load * float64(n)},
		Runs:      []scenario.Run{{Policy: quell.Policy{Name: "static"}, Scheduling: quell.LeastConn}},
	}
	for i := range n {
		sc.Hosts = append(sc.Hosts, scenario.Host{ID: fmt.Sprintf("h%d", i+1), Network: bitsPerSecond, Cores: 1, DiskIOPS: 1000, Memory: 1})
	}
	return sc
}

// benchmark reports how many requests this processor simulates per second.
func benchmark(b *testing.B, sc *scenario.Scenario, s quell.Scheduling, warmUp time.Duration) {
	b.Helper()
	var requests int64
	for b.Loop() {
		_, err := Run(b.Context(), Options{
			Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: s}, WarmUp: warmUp,
			Probing: Probing{Count: leastProbes},
			check:   func(s *simulation) error { requests += s.traffic.arrived; return nil },
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(requests)/b.Elapsed().Seconds(), "requests/s")
}

// BenchmarkGroup shows how the cost of a request grows with the group: a million requests over 20 s.
func BenchmarkGroup(b *testing.B) {
	for _, s := range quell.Schedulings {
		for _, n := range []int{10, 100, 1000, 10_000} {
			b.Run(fmt.Sprintf("%s-%d", s, n), func(b *testing.B) {
				perInstance := 50_000 / float64(n) / 0.7 // requests per second that fill one link
				benchmark(b, plainScenario(n, 0.7, perInstance*8*50_000, 20*time.Second), s, time.Second)
			})
		}
	}
}

// BenchmarkInternetScale plays 60 million requests on 10,000 instances.
func BenchmarkInternetScale(b *testing.B) {
	const n, perSecond = 10_000, 200_000
	benchmark(b, plainScenario(n, 0.7, perSecond/float64(n)/0.7*8*50_000, 300*time.Second), quell.LeastConn, time.Second)
}

// BenchmarkPrima plays PRIMA on groups whose every tenth machine has a neighbour, a period of 10 s for each decision.
func BenchmarkPrima(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			sc := plainScenario(n, 0.4, 40e6, 2*time.Minute)
			sc.Service.SLO.Threshold, sc.Instances.Start = 40*time.Millisecond, n/2
			for i := 0; i < n; i += 10 {
				use := &scenario.Interference{Host: sc.Hosts[i].ID, Resource: quell.Network, Use: 0.5}
				sc.Timeline = append(sc.Timeline, scenario.Event{Interfere: use})
			}
			rows, err := Train(b.Context(), sc, Plan(), 1)
			if err != nil {
				b.Fatal(err)
			}
			models, _, err := model.Fit(rows, model.FitOptions{Service: "bench", Metric: quell.Mean})
			if err != nil {
				b.Fatal(err)
			}
			var requests int64
			for b.Loop() {
				_, err := Run(b.Context(), Options{
					Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.LeastConn}, Models: models,
					check: func(s *simulation) error { requests += s.traffic.arrived; return nil },
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(requests)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
