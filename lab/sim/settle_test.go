package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// The weights of a group of fixed size settle under a constant load and constant neighbours, if the group is too small for the load or
// just large enough.
func TestWeightsSettleAtAFixedSize(t *testing.T) {
	neighbours := []float64{0.6, 0.1, 0.45, 0.3, 0.2}
	for _, tc := range []struct {
		hosts     int
		load      float64 // load of the whole group, in instances
		sampling  time.Duration
		threshold time.Duration
	}{
		{3, 1.2, 10 * time.Second, 25 * time.Millisecond},
		{2, 0.8, time.Second, 25 * time.Millisecond},
		{5, 2.0, time.Second, 25 * time.Millisecond},
		{6, 2.4, time.Second, 30 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d hosts every %v", tc.hosts, tc.sampling), func(t *testing.T) {
			t.Parallel()
			const periods = 360
			sc := plainScenario(tc.hosts, tc.load/float64(tc.hosts), 40e6, periods*tc.sampling)
			sc.Service.SLO.Threshold, sc.Service.Sampling = tc.threshold, tc.sampling
			sc.Service.Group.Min = tc.hosts
			for i := range min(tc.hosts-1, len(neighbours)) {
				use := &scenario.Interference{Host: sc.Hosts[i].ID, Resource: quell.Network, Use: neighbours[i]}
				sc.Timeline = append(sc.Timeline, scenario.Event{Interfere: use})
			}
			models := prepared(t, sc)
			for _, scheduling := range []quell.Scheduling{quell.LeastConn, quell.RoundRobin} {
				r := played(t, Options{Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: "prima"}, Scheduling: scheduling}, Models: models})
				if r.Decisions > periods/6 {
					t.Errorf("%s: the weights change in %d of %d periods", scheduling, r.Decisions, periods)
				}
			}
		})
	}
}
