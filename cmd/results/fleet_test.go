package main

import (
	"math"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
)

// Two instances answer 20 requests a second each. One is predicted all the time and takes 1.25 times as long; the other one has no
// prediction in one period of each stretch, and is left out.
func TestComparePredictions(t *testing.T) {
	r := &experiment.Record{}
	r.Result.DurationS = 55
	for at := 0.0; at < 55; at++ {
		first, second := 40.0, 10.0
		m := experiment.Moment{AtS: at, Instances: []experiment.SeenInstance{{ID: "i1", PredictedMS: &first}, {ID: "i2", PredictedMS: &second}}}
		if math.Mod(at, 10) == 5 {
			m.Instances[1].PredictedMS = nil
		}
		r.Moments = append(r.Moments, m)
		for i := range 20 {
			for _, id := range []string{"i1", "i2"} {
				r.Samples = append(r.Samples, experiment.RecordedSample{AtS: at + float64(i)/20, LatencyMS: 50, Instance: id})
			}
		}
	}
	got := comparePredictions([]*experiment.Record{r, r}, quell.P95)
	if got == nil || got.Stretches != 4 || math.Abs(got.Ratio-1.25) > 1e-3 || math.Abs(got.Median-0.2) > 1e-3 || got.P90 != got.Median {
		t.Errorf("%+v", got)
	}
	r.Samples = r.Samples[:60]
	if got := comparePredictions([]*experiment.Record{r}, quell.P95); got != nil {
		t.Errorf("with few requests: %+v", got)
	}
}
