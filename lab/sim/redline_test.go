package sim

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/redline"
)

// redlined is a service of four, of which h1 is tested, with an objective that is well above the response time without load.
type redlined struct {
	slo       string
	neighbour float64 // use of h1's link by a neighbour, from the beginning on
	arrives   string  // further lines of the timeline
}

func (c redlined) scenario(t *testing.T) *scenario.Scenario {
	t.Helper()
	text := fmt.Sprintf(`scenario: redline
duration: 600s
service:
  slo: %s
  sampling: 5s
  policy: {name: %s}
  group: {min: 4, max: 4}
hosts: [{id: h, count: 4, network: 40Mbps}]
instances: {start: 4, fixed: 4, startup: 1s}
workload: {kind: file, size: 50KB, arrivals: poisson, load: 1.4}
timeline:
  - {at: 0s, interfere: {host: h1, resource: network, use: %g}}
%sruns: [{policy: %[2]s, scheduling: roundrobin}]
`, c.slo, table.All.Plain(), c.neighbour, c.arrives)
	sc, err := scenario.Parse("redline.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// play runs a service, and lets each decide about the share of h1 after each period from the start of measuring on.
func (c redlined) play(t *testing.T, seed uint64, each func(*quell.Snapshot) (share float64, set bool)) {
	t.Helper()
	sc := c.scenario(t)
	periods := 0
	_, err := Run(t.Context(), Options{Scenario: sc, Run: sc.Runs[0], Seed: seed, Snapshots: func(s *quell.Snapshot) {
		if periods++; periods < 8 {
			return
		}
		if share, set := each(s); set {
			s.Set(map[string]float64{"i1": share})
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// truth is the utilisation of h1's link at which the metric reaches the threshold: the metric at fixed shares, over many periods and seeds.
func (c redlined) truth(t *testing.T) float64 {
	t.Helper()
	slo := c.scenario(t).Service.SLO
	type point struct{ use, ms float64 }
	var points []point
	for _, share := range []float64{.4, .46, .52, .56, .6, .64} {
		var use, ms, n float64
		for seed := range uint64(2) {
			c.play(t, 1000+seed, func(s *quell.Snapshot) (float64, bool) {
				o := s.Instances[0].Observation
				if v, ok := o.LatencyMS.Of(slo.Metric); ok {
					use, ms, n = use+o.Utilization[quell.Network], ms+v, n+1
				}
				return share, true
			})
		}
		points = append(points, point{use / n, ms / n})
	}
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		if limit := slo.ThresholdMS(); a.ms <= limit && b.ms > limit {
			return a.use + (b.use-a.use)*(1/a.ms-1/limit)/(1/a.ms-1/b.ms)
		}
	}
	t.Fatalf("the shares do not enclose the threshold: %v", points)
	return 0
}

// test makes a red-line test, and returns what it found, and whether it came to its end.
func (c redlined) test(t *testing.T, seed uint64) (redline.Result, bool) {
	t.Helper()
	slo := c.scenario(t).Service.SLO
	var test *redline.Test
	done := false
	c.play(t, seed, func(s *quell.Snapshot) (float64, bool) {
		if test == nil {
			var err error
			if test, err = redline.New(redline.Options{Instance: "i1", SLO: slo, Risk: 0.01}, redline.Period{Snapshot: s}); err != nil {
				t.Fatal(err)
			}
		}
		if done {
			return 0, false
		}
		m := test.Next(redline.Period{Snapshot: s})
		done = m.Done
		return m.Share, !done
	})
	return test.Result(), done
}

// A neighbour that arrives during the test ends it.
func TestRedlineEndsForANeighbour(t *testing.T) {
	for seed := range uint64(5) {
		c := redlined{slo: "{metric: mean, threshold: 45ms}", arrives: "  - {at: 150s, interfere: {host: h1, resource: network, use: 0.35}}\n"}
		r, done := c.test(t, 9200+seed)
		if risked := r.Over / float64(r.Requests); !done || risked > 0.02 || !r.Interrupted && !strings.Contains(r.Why, "objective") {
			t.Errorf("seed %d: %.2f%% of the requests missed the objective; ended: %v, because %s", seed, 100*risked, done, r.Why)
		}
	}
}

// The red line is found within 10% of the true capacity, at no more than 1% of the requests over the threshold.
func TestRedlineFindsTheCapacity(t *testing.T) {
	for name, c := range map[string]redlined{
		"p95":                  {slo: "{metric: p95, threshold: 120ms}"},
		"mean, with neighbour": {slo: "{metric: mean, threshold: 45ms}", neighbour: 0.2},
	} {
		t.Run(name, func(t *testing.T) {
			truth := c.truth(t)
			near, safe := 0, 0
			slo := c.scenario(t).Service.SLO
			for seed := range uint64(10) {
				r, done := c.test(t, 9100+seed)
				if r.Use == nil || !done {
					t.Logf("seed %d: %s", seed, r.Text(slo))
					continue
				}
				risked := r.Over / float64(r.Requests)
				off := r.Use.Value/truth - 1
				t.Logf("seed %d: off by %+.1f%%: %s", seed, 100*off, r.Text(slo))
				if math.Abs(off) <= 0.1 {
					near++
				}
				if risked <= 0.01 {
					safe++
				}
			}
			t.Logf("the capacity is %.3f: %d of 10 within 10%%, %d within the risk", truth, near, safe)
			if near < 9 || safe < 9 {
				t.Errorf("the capacity is %.3f: %d of 10 within 10%%, %d within the risk", truth, near, safe)
			}
		})
	}
}
