package main

import (
	"slices"

	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// twelveWithBudget is the hour in which PRIMA finds its reserve itself.
const twelveWithBudget = "twelve-with-budget"

// stretchS is the length of the stretches in which an hour is told, in seconds: its load and its neighbours repeat themselves after it.
const stretchS = 600.0

// budgetLive is what runs missed of an objective, and at which size, stretch by stretch.
type budgetLive struct {
	Target float64
	Ends   []int // of the stretches, in minutes
	Rows   []spentRow
}

type spentRow struct {
	Title     string
	Whole     stretch
	Stretches []stretch
	Judged    *experiment.SeenBudget // what the controller counted itself
}

// stretch is a part of a run.
type stretch struct {
	Length, Missed float64 // in seconds
	Size           float64 // mean number of instances
	Over           float64 // share of the requests above the threshold
}

// Cost is in instance-seconds.
func (s stretch) Cost() float64 { return s.Size * s.Length }

// Share is the part of the time that was missed.
func (s stretch) Share() float64 { return s.Missed / s.Length }

// spendBudget sums up the hour.
func spendBudget(f *partFigures, plots string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	if err := (labPart{name: f.Name, title: f.Title}).runs(f, plots, sc, plays); err != nil {
		return err
	}
	f.Budget = newBudgetLive(sc, contenders(sc, plays))
	return nil
}

// besideHour sums up runs with fixed reserves, and beside them the first part of the hour, which is as long.
func besideHour(f *partFigures, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	hour, played, err := labPart{name: twelveWithBudget}.played()
	if err != nil {
		return err
	}
	f.Budget = newBudgetLive(sc, slices.Concat(contenders(hour, played), contenders(sc, plays)))
	return nil
}

// newBudgetLive sums up the first play of each run, from its start to the end of the scenario; a run may last longer.
func newBudgetLive(sc *scenario.Scenario, runs []contender) *budgetLive {
	b := &budgetLive{Target: sc.Service.SLO.Target}
	for at := stretchS; at <= sc.Duration.Seconds(); at += stretchS {
		b.Ends = append(b.Ends, int(at/60))
	}
	for _, c := range runs {
		r := c.plays[0]
		row := spentRow{Title: c.Title, Whole: stretchOf(r, 0, sc.Duration.Seconds())}
		for n := range b.Ends {
			row.Stretches = append(row.Stretches, stretchOf(r, float64(n)*stretchS, float64(n+1)*stretchS))
		}
		for _, m := range r.Moments {
			if m.AtS < sc.Duration.Seconds() && m.Budget != nil {
				row.Judged = m.Budget
			}
		}
		b.Rows = append(b.Rows, row)
	}
	return b
}

// stretchOf is what happened between two times, in seconds since measuring started.
func stretchOf(r *experiment.Record, begin, end float64) stretch {
	s := stretch{Length: end - begin, Size: r.Phase(begin, end).Size, Missed: missedUntil(r, end) - missedUntil(r, begin)}
	over, all := 0, 0
	for _, sample := range r.Samples {
		if sample.AtS >= begin && sample.AtS < end {
			all++
			over += count(sample.Failed || sample.LatencyMS > r.Result.SLO.ThresholdMS)
		}
	}
	s.Over = float64(over) / float64(max(1, all))
	return s
}

// missedUntil is for how long the objective was missed until then, in seconds.
func missedUntil(r *experiment.Record, at float64) (missed float64) {
	if at >= r.Result.DurationS {
		return r.Result.SLO.ViolationS
	}
	for _, m := range r.Moments {
		if m.AtS > at {
			break
		}
		missed = m.ViolationS
	}
	return missed
}
