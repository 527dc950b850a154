package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// level is all runs with the same commanded utilisation. Its utilisation is the mean of what these runs carried.
type level struct {
	commanded   float64
	utilization float64
	cells       []cell // in increasing order of interference
}

// cell is the runs of a level that have the same interference.
type cell struct {
	isolated    bool
	interfering float64 // mean over the runs; 0 if isolated
	severity    float64
	rows        []TrainingRow
}

// feel sets the severity of every cell by Eq. 1 without the test for significance. That test is for single short windows,
// whose noise could be taken for interference. A cell pools whole runs with commanded interference, and setting small
// severities to 0 would bias the tables.
func (l *level) feel(alone *Baseline) {
	isoMS, _, _ := alone.Isolation(l.utilization)
	for i := range l.cells {
		if c := &l.cells[i]; !c.isolated {
			c.severity = severityFactor(c.probes().Mean, isoMS)
		}
	}
}

// responseRows returns a row for every severity of the level. Cells with the same severity are pooled.
func (l *level) responseRows() []ResponseTime {
	bySeverity := map[float64][]TrainingRow{}
	for _, c := range l.cells {
		bySeverity[c.severity] = append(bySeverity[c.severity], c.rows...)
	}
	var out []ResponseTime
	for _, severity := range sortedKeys(bySeverity) {
		rows := slices.DeleteFunc(bySeverity[severity], func(r TrainingRow) bool { return !hasStatistic(r.LatencyMS) })
		if len(rows) > 0 {
			out = append(out, ResponseTime{Utilization: l.utilization, Severity: severity, LatencyMS: meanLatency(rows), Runs: len(rows)})
		}
	}
	return out
}

func (l *level) interferenceRows() []Interference {
	var out []Interference
	for _, c := range l.cells {
		if !c.isolated && l.utilization+c.interfering < saturated {
			out = append(out, Interference{Utilization: l.utilization, Interfering: c.interfering, Severity: c.severity, Runs: len(c.rows)})
		}
	}
	return out
}

// alone returns the cell without interference; nil if there is none.
func (l *level) alone() *cell {
	if i := slices.IndexFunc(l.cells, func(c cell) bool { return c.isolated }); i >= 0 {
		return &l.cells[i]
	}
	return nil
}

// interfered counts the cells with interference.
func (l *level) interfered() int {
	n := len(l.cells)
	if l.alone() != nil {
		n--
	}
	return n
}

func (c *cell) probes() stats.Moments {
	parts := make([]stats.Moments, len(c.rows))
	for i, r := range c.rows {
		parts[i] = stats.Moments{Mean: r.ProbeMS.Mean, Stddev: r.ProbeMS.Stddev, N: r.ProbeMS.N}
	}
	return stats.Pool(parts)
}

// meanLatency averages each statistic over the runs that have it, weighted by their numbers of requests.
func meanLatency(rows []TrainingRow) quell.Latency {
	var out quell.Latency
	for metric, dst := range map[quell.Metric]**float64{
		quell.Mean: &out.Mean, quell.P50: &out.P50, quell.P90: &out.P90, quell.P95: &out.P95, quell.P99: &out.P99,
	} {
		var values []stats.Weighted
		for _, r := range rows {
			if v, ok := r.LatencyMS.Of(metric); ok {
				values = append(values, stats.Weighted{Value: v, Weight: float64(max(r.LatencyMS.N, 1))})
			}
		}
		if len(values) > 0 {
			*dst = new(stats.WeightedMean(values))
		}
	}
	for _, r := range rows {
		out.N += r.LatencyMS.N
	}
	return out
}

// Converged is the stopping rule of a training level: at least three runs, and the width of the 95% confidence interval of the
// mean probe time at most 5% of the mean (PRIMA, section III-B1). It takes the mean probe time of each run and returns the
// relative half width and the result. With fewer than two runs the half width is +Inf.
func Converged(runMeansMS []float64) (relative float64, converged bool) {
	interval, ok := stats.MeanInterval(runMeansMS, 0.95)
	if !ok {
		return math.Inf(1), false
	}
	relative, ok = interval.Relative()
	return relative, ok && len(runMeansMS) >= 3 && interval.Within(0.05)
}

// notConverged lists the cells whose runs stopped too early according to their last run. If the runs of an isolation cell do
// not say so, Converged decides.
func (l *level) notConverged() []Cell {
	var out []Cell
	for _, c := range l.cells {
		if !c.converged() {
			out = append(out, Cell{Level: l.commanded, Interfering: c.interfering})
		}
	}
	return out
}

func (c *cell) converged() bool {
	for _, r := range slices.Backward(c.rows) {
		if r.Converged != nil {
			return *r.Converged
		}
	}
	var means []float64
	for _, r := range c.rows {
		means = append(means, r.ProbeMS.Mean)
	}
	_, ok := Converged(means)
	return ok || !c.isolated
}

// groupLevels sorts the runs into levels and cells.
func groupLevels(rows []TrainingRow) ([]*level, error) {
	byLevel := map[float64][]TrainingRow{}
	for _, r := range rows {
		key := math.Round(r.Level*1e6) / 1e6
		byLevel[key] = append(byLevel[key], r)
	}
	var levels []*level
	for _, key := range sortedKeys(byLevel) {
		l := &level{commanded: key, cells: groupCells(byLevel[key])}
		l.utilization = meanOf(byLevel[key], func(r TrainingRow) float64 { return r.Utilization })
		levels = append(levels, l)
	}
	slices.SortStableFunc(levels, func(a, b *level) int { return cmp.Compare(a.utilization, b.utilization) })
	for i := 1; i < len(levels); i++ {
		if a, b := levels[i-1], levels[i]; a.utilization == b.utilization {
			return nil, fmt.Errorf("levels %v and %v both carried a utilization of %v: train on levels that differ",
				a.commanded, b.commanded, a.utilization)
		}
	}
	return levels, nil
}

// groupCells groups the runs of a level by their commanded interference or, if a row does not have it, by the interference
// that was carried, in steps of 0.01.
func groupCells(rows []TrainingRow) []cell {
	type key struct {
		isolated, commanded bool
		value               float64
	}
	groups := map[key][]TrainingRow{}
	var order []key // the keys in order of appearance
	for _, r := range rows {
		k := key{value: math.Round(r.Interfering*100) / 100}
		switch {
		case r.isolated():
			k = key{isolated: true}
		case r.InterferingLevel != nil:
			k = key{commanded: true, value: math.Round(*r.InterferingLevel*1e6) / 1e6}
		}
		if _, ok := groups[k]; !ok {
			order = append(order, k)
		}
		groups[k] = append(groups[k], r)
	}
	byCarried := map[float64]cell{} // cells with the same carried interference are merged
	for _, k := range order {
		group := groups[k]
		var carried float64
		if !k.isolated {
			carried = meanOf(group, func(r TrainingRow) float64 { return r.Interfering })
		}
		c := byCarried[carried]
		byCarried[carried] = cell{isolated: k.isolated, interfering: carried, rows: append(c.rows, group...)}
	}
	var cells []cell
	for _, carried := range sortedKeys(byCarried) {
		cells = append(cells, byCarried[carried])
	}
	return cells
}

// isolated returns whether the run had no interference; if the commanded value is unknown, less than 0.005 counts as
// none.
func (r *TrainingRow) isolated() bool {
	if r.Interfering == 0 {
		return true
	}
	if r.InterferingLevel != nil {
		return *r.InterferingLevel == 0
	}
	return math.Round(r.Interfering*100) == 0
}

func meanOf(rows []TrainingRow, of func(TrainingRow) float64) float64 {
	var sum float64
	for _, r := range rows {
		sum += of(r)
	}
	return sum / float64(len(rows))
}
