package sim

import (
	"math"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/stats"
)

// DIAL does no harm: over round robin it lets no more requests exceed the threshold than the scheduling alone, beyond what chance explains,
// where it helps most (dial-combined) and where it can help least (prima-lsf: few requests, and neighbours beside both instances). Over
// rules that look for idle servers it names causes and leaves shares equal.
func TestDialDoesNoHarm(t *testing.T) {
	for name, helps := range map[string]bool{"dial-combined": true, "prima-lsf": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := exampleScenario(t, name)
			models := prepared(t, sc)
			play := func(policy string, s quell.Scheduling, seed uint64, see func(*quell.Plan)) float64 {
				r, err := Run(t.Context(), Options{Scenario: sc, Models: models, Seed: seed, Plans: see,
					Run: scenario.Run{Policy: quell.Policy{Name: policy}, Scheduling: s}})
				if err != nil {
					t.Fatal(err)
				}
				return float64(r.SLO.RequestsOver) / float64(r.Requests)
			}
			var more []float64
			for seed := range uint64(5) {
				more = append(more, play("dial", quell.RoundRobin, seed+1, nil)-play("static", quell.RoundRobin, seed+1, nil))
			}
			if i, ok := stats.MeanInterval(more, 0.95); !ok || i.Mean > i.Half || helps && i.Mean > -0.1 {
				t.Errorf("over round robin DIAL adds %.4f ± %.4f: %.4f", i.Mean, i.Half, more)
			}
			for _, s := range []quell.Scheduling{quell.LeastConn, quell.EWMA} {
				named := 0
				play("dial", s, 1, func(p *quell.Plan) {
					named += len(p.Cause)
					for id, w := range p.Weights {
						if math.Abs(w*float64(len(p.Weights))-1) > 1e-9 {
							t.Fatalf("over %s the share of %s is %v: %v", s, id, w, p.Reasons)
						}
					}
				})
				if helps && named == 0 {
					t.Errorf("over %s no cause is named", s)
				}
			}
		})
	}
}
