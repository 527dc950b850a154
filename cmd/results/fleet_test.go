package main

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
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

// In the second of two stretches the objective is missed for 20 s, and one request in four is above the threshold.
func TestSpendBudget(t *testing.T) {
	r := &experiment.Record{}
	r.Result.DurationS, r.Result.SLO.ThresholdMS, r.Result.SLO.ViolationS = 2*stretchS, 60, 30
	for at := 0.0; at < 2*stretchS; at++ {
		m := experiment.Moment{AtS: at, ViolationS: 10, Instances: []experiment.SeenInstance{{ID: "i1"}}}
		m.Budget = &experiment.SeenBudget{Judged: at, Missed: 5}
		if at > stretchS {
			m.ViolationS = 30
		}
		if at >= stretchS {
			m.Instances = append(m.Instances, experiment.SeenInstance{ID: "i2"}, experiment.SeenInstance{ID: "i3"})
		}
		if at < 3 {
			m.ViolationS = 0
		}
		r.Moments = append(r.Moments, m)
		r.Samples = append(r.Samples, experiment.RecordedSample{AtS: at, LatencyMS: 50 + 20*float64(int(at)%4/3)})
	}
	sc := &scenario.Scenario{}
	sc.Duration = 20 * time.Minute
	sc.Service.SLO.Target = 0.99
	got := newBudgetLive(sc, []contender{{Title: "it", plays: []*experiment.Record{r}}})
	want := spentRow{Title: "it", Whole: stretch{1200, 30, 2, 0.25}, Stretches: []stretch{{600, 10, 1, 0.25}, {600, 20, 3, 0.25}},
		Judged: &experiment.SeenBudget{Judged: 1199, Missed: 5}}
	if len(got.Rows) != 1 || !reflect.DeepEqual(got.Rows[0], want) || !slices.Equal(got.Ends, []int{10, 20}) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
