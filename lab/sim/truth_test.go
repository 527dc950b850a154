package sim

import (
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/stats"
)

// mixedPages is a mix of classes on machines of two cores, with demands of every resource.
func mixedPages() scenario.Workload {
	return scenario.Workload{
		Kind: scenario.Classes, Arrivals: scenario.Poisson, Load: 0.3, Spread: scenario.Exponential, CacheStretch: 1.5,
		Classes: []scenario.Class{
			{Name: "light", Share: 3, CPU: 8 * time.Millisecond, Network: 10_000},
			{Name: "heavy", Share: 1, CPU: 12 * time.Millisecond, Network: 40_000, Disk: 3, Memory: 2 * time.Millisecond},
		},
	}
}

// The clairvoyant's laws predict the simulated response times of one instance: means within the interval over seeds or 5%; percentiles,
// whose law is an approximation, within 20%.
func TestLaws(t *testing.T) {
	uses := []scenario.Change{{Resource: quell.Network, Use: 0.3}, {Resource: quell.CPU, Use: 0.2}, {Resource: quell.Memory, Use: 0.3}}
	for name, load := range map[string]scenario.Workload{
		"file":    {Kind: scenario.File, Arrivals: scenario.Poisson, Size: 25_000, Load: 0.4},
		"classes": mixedPages(),
	} {
		for _, metric := range []quell.Metric{quell.Mean, quell.P90, quell.P99} {
			sc := plainScenario(1, 0.4, 40e6, 3*time.Minute)
			sc.Hosts[0].Cores, sc.Hosts[0].DiskIOPS, sc.Hosts[0].Memory = 2, 1000, 1
			sc.Workload, sc.Service.SLO.Metric = load, metric
			for _, u := range uses {
				sc.Timeline = append(sc.Timeline, scenario.Event{Interfere: &scenario.Interference{Host: sc.Hosts[0].ID, Resource: u.Resource,
					Use: u.Use}})
			}
			var measured []float64
			for seed := range uint64(4) {
				r := played(t, Options{Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: quell.LeastConn},
					Seed: seed + 1})
				value, _ := r.LatencyMS.Of(metric)
				measured = append(measured, value)
			}
			s, err := newSimulation(Options{Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: Clairvoyant}, Scheduling: quell.LeastConn},
				Strain: 1})
			if err != nil {
				t.Fatal(err)
			}
			law := s.foresight.law(0, s.zero+1, s.zero+2)
			told := 1000 * law.at(sc.RatePerSecond(load.Load))
			i, _ := stats.MeanInterval(measured, 0.95)
			within := math.Max(i.Half, 0.05*told)
			if metric != quell.Mean {
				within = 0.2 * told
			}
			if math.Abs(i.Mean-told) > within {
				t.Errorf("%s: the %s is %.2f ± %.2f ms, told were %.2f ms", name, metric, i.Mean, i.Half, told)
			}
			if back := law.within(told / 1000); math.Abs(back-sc.RatePerSecond(load.Load)) > 1e-6*back {
				t.Errorf("%s: %.3f requests/s within %.2f ms", name, back, told)
			}
		}
	}
}

// at returns the metric's value at a rate of requests.
func (l *law) at(rate float64) float64 {
	for i := 1; i < len(l.rates); i++ {
		if rate <= l.rates[i] {
			return l.seconds[i-1] + (rate-l.rates[i-1])/(l.rates[i]-l.rates[i-1])*(l.seconds[i]-l.seconds[i-1])
		}
	}
	return math.Inf(1)
}

// The clairvoyant knows the number of coming requests. For open arrivals exactly this number arrives; for users it is the number if they
// never waited for answers.
func TestKnownLoadArrives(t *testing.T) {
	video := scenario.DefaultVideo()
	video.Size, video.Chunk = 550_000, 500*time.Millisecond
	users := mixedPages()
	users.Kind, users.Arrivals, users.Load, users.Users, users.Think, users.Spread = scenario.Users, "", 0, 200, 2*time.Second, scenario.Fixed
	for name, load := range map[string]scenario.Workload{
		"file":  {Kind: scenario.File, Arrivals: scenario.Poisson, Size: 50_000, Load: 0.8},
		"video": {Kind: scenario.Video, Arrivals: scenario.Poisson, Load: 0.5, Video: video},
		"users": users,
	} {
		sc := plainScenario(3, 0.5, 100e6, time.Minute)
		for i := range sc.Hosts {
			sc.Hosts[i].Cores, sc.Hosts[i].DiskIOPS, sc.Hosts[i].Memory = 2, 1000, 1
		}
		sc.Workload = load
		var foretold, came float64
		_, err := Run(t.Context(), Options{
			Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: Clairvoyant}, Scheduling: quell.LeastConn}, Strain: 1,
			check: func(s *simulation) error {
				for _, n := range s.foresight.asked {
					foretold += n
				}
				came = float64(s.traffic.arrived)
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		least, most := 1.0, 1.0
		switch load.Kind {
		case scenario.Video: // last chunks are shorter, and late answers make sessions last longer
			least, most = 0.9, 1.001
		case scenario.Users:
			least, most = 0.97, 1.05
		}
		if foretold < least*came-1e-6 || foretold > most*came+1e-6 {
			t.Errorf("%s: %.1f requests were foretold, %.0f came", name, foretold, came)
		}
	}
}
