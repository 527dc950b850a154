package ice

import (
	"math"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/bands"
	"github.com/quellhq/quell/stats"
)

// counted is a section of models whose detector goes by cycles per instruction.
func counted(t *testing.T, above float64, e model.Estimator) *model.Models {
	t.Helper()
	m := &model.Models{Sections: []model.Section{&model.ICE{
		Classifier: &stats.Tree{Feature: quell.CounterCPI, Threshold: above, Above: &stats.Tree{Class: model.Disturbed, Count: 100},
			Below: &stats.Tree{Class: model.Alone, Count: 100}},
		Usual: map[string]float64{quell.CounterCPI: 1}, Signal: quell.CounterCPI, Estimator: &e,
	}}}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	return m
}

// The estimator of the paper, and one of a machine whose use lasts: u = 0.02 + 0.5 o + 0.000667 r + 0.2 neighbour, where a whole neighbour
// doubles the cycles per instruction.
var (
	papers = model.Estimator{Intercept: 0.06, Previous: 0.64, Requests: 0.21, CPI: 0.24,
		Range: model.EstimatorRange{CPU: model.Range{0, 1}, Requests: model.Range{0, 500}, CPI: model.Range{0.5, 4}}}
	lasts = model.Estimator{Intercept: 0.02, Previous: 0.5, Requests: 0.2, CPI: 0.2,
		Range: model.EstimatorRange{CPU: model.Range{0, 1}, Requests: model.Range{0, 300}, CPI: model.Range{1, 2}}}
)

// Trained, ice cuts in the window in which Algorithm 1 does, and to the same share: the predicted use, from the use in the window before,
// is above the set point, and the new rate brings the present use back.
func TestICECutsWhenAlgorithm1Does(t *testing.T) {
	const point, floor, calm = 0.7, 0.1, 20
	for name, c := range map[string]struct {
		estimator model.Estimator
		before    float64                                          // use without neighbours
		machine   func(second int, o, rate float64) (u, c float64) // after the neighbour came
		seconds   int                                              // from then on to the cut
	}{
		"the use jumps": {papers, 0.40, func(int, float64, float64) (u, c float64) { return 0.95, 2.5 }, 2},
		"the use lasts": {lasts, 0.44, func(_ int, o, rate float64) (u, c float64) { return lasts.Use(o, rate, 2), 2 }, 2},
		"a growing neighbour": {lasts, 0.44, func(second int, o, rate float64) (u, c float64) {
			c = 1 + math.Min(1, 0.02*float64(second))
			return lasts.Use(o, rate, c), c
		}, 34},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, 3, counted(t, 1.2, c.estimator), func(s *Settings) { s.SetPoint, s.Floor = point, floor })
			s.rate = 900
			eachOf(s.servers, func(v *served) { v.share = 0.3 / 300 })
			use, second, wanted, first, decide := c.before, -calm, 1.0, 0, s.decide
			s.decide = func(snapshot *quell.Snapshot, st policy.State) (quell.Plan, policy.State) {
				o := snapshot.Instances[1].Observation
				rate, cpi, before := *o.RequestRate, 1.0, use
				if second++; second > 0 {
					use, cpi = c.machine(second, before, rate)
				}
				wanted = 1
				if second > 0 && c.estimator.Use(before, rate, cpi) > point { // Algorithm 1, by hand
					back, _ := c.estimator.Rate(point, use, cpi)
					if wanted = math.Max(floor, back/rate); first == 0 {
						first = second
					}
				}
				*o.Sched.WaitS, o.Utilization[quell.CPU], o.Counters = 0, use, map[string]float64{quell.CounterCPI: cpi}
				return decide(snapshot, st)
			}
			if plan := s.seconds(calm); len(plan.Factor) > 0 {
				t.Fatalf("cut without neighbours: %v", plan.Reasons)
			}
			seconds, plan := s.until(60)
			if seconds != c.seconds || seconds != first || math.Abs(plan.Factor["i2"].Value-wanted) > 1e-9 {
				t.Errorf("cut after %d s to %v, want %.3f after %d s; %v", seconds, plan.Factor, wanted, c.seconds, plan.Reasons)
			}
		})
	}
}

// No share changes again within a window of 5 s, although the neighbour has become much stronger.
func TestICEWaitsBetweenCuts(t *testing.T) {
	s := newShop(t, 3, nil, func(s *Settings) { s.Floor = 0.1 })
	s.seconds(2 * bands.Known)
	s.servers[1].hidden = 0.5
	_, plan := s.until(5)
	first := plan.Factor["i2"].Value
	s.servers[1].hidden = 0.65
	for second := 1; second <= 5; second++ {
		now := s.second().Factor["i2"].Value
		if waits := second < 5; waits != (now == first) || !waits && now > 0.8*first {
			t.Errorf("%d s after the cut to %.2f the instance keeps %.2f", second, first, now)
		}
	}
}
