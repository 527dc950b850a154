package sim

import (
	"math"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/stats"
)

// DIAL does no harm: it lets no more requests exceed the threshold than the scheduling alone, beyond what chance explains, where it helps
// most (dial-combined) and where it can help least (prima-lsf: few requests, and neighbours beside both instances). Over rules that judge
// response times it names causes and leaves shares equal.
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
			for s, saves := range map[quell.Scheduling]float64{quell.RoundRobin: 0.1, quell.LeastConn: 0.01, quell.Random2: 0.01} {
				var more []float64
				for seed := range uint64(5) {
					more = append(more, play("dial", s, seed+1, nil)-play("static", s, seed+1, nil))
				}
				if i, ok := stats.MeanInterval(more, 0.95); !ok || i.Mean > i.Half || helps && i.Mean > -saves {
					t.Errorf("over %s DIAL adds %.4f ± %.4f: %.4f", s, i.Mean, i.Half, more)
				}
			}
			named := 0
			play("dial", quell.EWMA, 1, func(p *quell.Plan) {
				named += len(p.Cause)
				for id, w := range p.Weights {
					if math.Abs(w*float64(len(p.Weights))-1) > 1e-9 {
						t.Fatalf("over ewma the share of %s is %v: %v", id, w, p.Reasons)
					}
				}
			})
			if helps && named == 0 {
				t.Error("over ewma no cause is named")
			}
		})
	}
}
