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

// tailRow is a run: its p90 before the first neighbour, and beside one. Each is the median over the seeds.
type tailRow struct {
	Title            string
	Seeds            int
	CalmMS, MS       float64
	Range            string  // MS of each seed: the median, the smallest and the largest
	Against          float64 // the p90 in contention, relative to that of round robin with the same seed; 0: round robin has not been played
	Requests, Failed int     // of all seeds
}

// Growth is how many times the calm p90 that in contention is.
func (r tailRow) Growth() float64 { return r.MS / r.CalmMS }

// tails sums up the runs of Figure 7, whose first one is round robin, and draws those of the first seed.
func tails(f *partFigures, plots string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	all := episodes(sc)
	for _, e := range all {
		table := tailTable{Resource: e.truth, Neighbour: e.neighbour}
		for i := range sc.Runs {
			if row, ok := newTailRow(sc, plays, i, e); ok {
				table.Rows = append(table.Rows, row)
				table.Use = strengthAt(recordsOf(plays, i)[0], e)
			}
		}
		f.Tails = append(f.Tails, table)
	}
	return plotTails(filepath.Join(plots, "tail.png"), sc, plays[0])
}

// newTailRow sums up a run in an episode. ok is false if no seed has requests there.
func newTailRow(sc *scenario.Scenario, plays [][]*experiment.Record, run int, e episode) (row tailRow, ok bool) {
	row.Title = experiment.Title(sc, sc.Runs[run])
	begin, end := e.acted(sc.Service.Sampling)
	calmUntil := episodes(sc)[0].begin
	var calm, contended, against []float64
	for _, records := range plays {
		r := records[run]
		if r == nil {
			continue
		}
		phase := r.Phase(begin, end)
		if phase.Requests == 0 {
			continue
		}
		row.Seeds++
		row.Requests, row.Failed = row.Requests+phase.Requests, row.Failed+phase.Failed
		ms := p90Of(phase.LatencyMS)
		calm, contended = append(calm, p90Of(r.Phase(0, calmUntil).LatencyMS)), append(contended, ms)
		if records[0] != nil {
			against = append(against, ms/p90Of(records[0].Phase(begin, end).LatencyMS))
		}
	}
	row.Range = spreadOf(contended, "%.1f")
	row.CalmMS, row.MS, row.Against = middle(calm), middle(contended), middle(against)
	return row, row.Seeds > 0
}

func p90Of(l quell.Latency) float64 {
	if ms, ok := l.Of(quell.P90); ok {
		return ms
	}
	return math.NaN()
}
