package main

import (
	"math"
	"path/filepath"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// tailTable compares runs in one episode of Figure 7.
type tailTable struct {
	Resource, Neighbour string
	Use                 float64 // strength of the neighbour
	Rows                []tailRow
}

// tailRow is a run: its p90 before the first neighbour, and beside one.
type tailRow struct {
	Title            string
	CalmMS, MS       float64
	Against          float64 // the p90 in contention, relative to that of round robin; 0: round robin has not been played
	Requests, Failed int
}

// Growth is how many times the calm p90 that in contention is.
func (r tailRow) Growth() float64 { return r.MS / r.CalmMS }

// tails sums up the runs of Figure 7, whose first one is round robin, and draws them.
func tails(f *partFigures, plots string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	runs, all := plays[0], episodes(sc)
	for _, e := range all {
		table := tailTable{Resource: e.truth, Neighbour: e.neighbour}
		begin, end := e.acted(sc.Service.Sampling)
		for i, r := range runs {
			if r == nil {
				continue
			}
			contended := r.Phase(begin, end)
			if contended.Requests == 0 {
				continue
			}
			table.Use = strengthAt(r, e)
			row := tailRow{Title: experiment.Title(sc, sc.Runs[i]), CalmMS: p90Of(r.Phase(0, all[0].begin).LatencyMS),
				MS: p90Of(contended.LatencyMS), Requests: contended.Requests, Failed: contended.Failed}
			if runs[0] != nil {
				row.Against = row.MS / p90Of(runs[0].Phase(begin, end).LatencyMS)
			}
			table.Rows = append(table.Rows, row)
		}
		f.Tails = append(f.Tails, table)
	}
	return plotTails(filepath.Join(plots, "tail.png"), sc, runs)
}

func p90Of(l quell.Latency) float64 {
	if ms, ok := l.Of(quell.P90); ok {
		return ms
	}
	return math.NaN()
}
