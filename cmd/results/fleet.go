package main

import (
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// fleetLab compares PRIMA with rivals on twelve machines behind HAProxy. Each run needs the whole machine.
func fleetLab() labPage {
	return labPage{name: "fleet", labs: 1, parts: []labPart{
		{name: "twelve-calm", seeds: 2, title: "No neighbours, a load that jumps", sum: compareFleet},
		{name: "twelve-moving", seeds: 3, title: "A neighbour that moves from host to host", sum: compareFleet},
		{name: "twelve-random", seeds: 3, title: "Neighbours at random beside ten of twelve hosts", sum: compareFleet},
		{name: "twelve-weak", seeds: 3, title: "Weak and strong neighbours beside every host, a moving load", sum: compareFleet},
		{name: "twelve-with-reserve", title: "The first twenty minutes of that with fixed reserves", sum: besideHour},
		{name: twelveWithBudget, title: "An hour with an error budget", sum: spendBudget},
	}}
}

// compareFleet compares PRIMA with every rival.
func compareFleet(f *partFigures, plots string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	if err := compare(f, plots, sc, plays); err != nil {
		return err
	}
	c := f.Contest
	c.AsLarge = nil
	if c.Best != nil {
		c.Predicted = comparePredictions(c.Best.plays, sc.Service.SLO.Metric)
	}
	for _, rival := range c.All {
		if c.Best != nil && !rival.isPRIMA() {
			c.AsLarge = append(c.AsLarge, duel{Timeline: sc.Name, It: *c.Best, Rival: rival})
		}
	}
	return nil
}

// predictedFrom and predictedFor are the seconds after which predictions are compared, and the length of the stretches in which they are.
const predictedFrom, predictedFor = 30.0, 10.0

// leastCompared is how many requests an instance has to answer in a stretch, so that its p95 says something.
const leastCompared = 100

// comparison holds predictions against measurements: the response time that plans predicted for an instance, on average over a stretch,
// against what clients measured there.
type comparison struct {
	Stretches   int
	Ratio       float64 // measured over predicted, median
	Median, P90 float64 // how far the measured one is from the predicted one, relative to the measured one
}

// comparePredictions compares those of all plays.
func comparePredictions(plays []*experiment.Record, metric quell.Metric) *comparison {
	var off, ratios []float64
	for _, r := range plays {
		for at := predictedFrom; at+predictedFor <= r.Result.DurationS; at += predictedFor {
			measured, predicted := r.Phase(at, at+predictedFor), predictionsOf(r, at, at+predictedFor)
			for _, id := range slices.Sorted(maps.Keys(predicted)) {
				latency := measured.Instances[id].LatencyMS
				ms, ok := latency.Of(metric)
				if !ok || latency.N < leastCompared {
					continue
				}
				off, ratios = append(off, math.Abs(predicted[id]/ms-1)), append(ratios, ms/predicted[id])
			}
		}
	}
	if len(off) == 0 {
		return nil
	}
	slices.Sort(off)
	return &comparison{Stretches: len(off), Ratio: middle(ratios), Median: middle(off), P90: stat.Quantile(0.9, stat.Empirical, off, nil)}
}

// predictionsOf are the mean predictions between two times, of those instances that had one all the time.
func predictionsOf(r *experiment.Record, begin, end float64) map[string]float64 {
	moments, sums, counts := 0, map[string]float64{}, map[string]int{}
	for _, m := range r.Moments {
		if m.AtS < begin || m.AtS >= end {
			continue
		}
		moments++
		for _, in := range m.Instances {
			if in.PredictedMS != nil {
				sums[in.ID] += *in.PredictedMS
				counts[in.ID]++
			}
		}
	}
	for id, n := range counts {
		if sums[id] /= float64(n); n < moments {
			delete(sums, id)
		}
	}
	return sums
}

// goalCost is what PRIMA may cost, relative to a rival, by the goal.
const goalCost = 0.85

// Reached returns whether PRIMA reaches the goal against the rival: no more violation, at most goalCost of its cost, and no longer p99.
func (d duel) Reached() bool {
	return d.It.Violation() <= d.Rival.Violation() && d.Cost() <= goalCost && d.It.P99() <= d.Rival.P99()
}
