package policy

import (
	"math"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// A request takes the same time without load whichever resource one looks at. So the stations of all resources have the same, also those of
// each type of instance that has a law of its own: the shortest that one of the type's resources learned.
func TestStationsAgreeForEachType(t *testing.T) {
	law := func(r0 float64) *model.Law {
		return &model.Law{R0MS: r0, P0MS: 5, Exponent: 1, ProbeExponent: 1, SeverityExponent: 1, SpreadIdle: 0.01, SpreadBusy: 0.2, Probes: 1000,
			N: 100, PerRequest: 0.01,
			Together: &model.Together{Metric: quell.Mean, R0MS: r0, Pooling: 0.9, Exponent: 1, Neighbour: 1, Ratio: 1, Size: 4, Held: 0.8}}
	}
	models := &model.Models{Sections: []model.Section{model.Live{
		quell.Network: {"small": law(10), "big": law(7)}, quell.CPU: {"small": law(14), "big": law(5)}}}}
	senses := DefaultSenses()
	senses.Resources = ResourcesOf(quell.Network, quell.CPU)
	known, err := contend(Row{needs: AllModels}, senses, quell.SLO{Metric: quell.Mean, Threshold: 40e6}, models)
	if err != nil {
		t.Fatal(err)
	}
	for instanceType, want := range map[string]float64{"small": 10, "big": 5} {
		for i := range known {
			if got := known[i].Of(instanceType).Predictor.Station().UnloadedMS(); math.Abs(got-want) > 1e-6 {
				t.Errorf("by the %s, a request of type %s takes %.2f ms without load, want %.0f", known[i].Resource, instanceType, got, want)
			}
		}
	}
}
