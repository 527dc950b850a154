package model

import (
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// queueing fits Eq. 1 for each trained resource to what its total use, by the service and the interferer, adds to the calm p90; see
// Dial.Predict.
func (f *dialFit) queueing() {
	for _, resource := range resourcesOf(f.rows) {
		rows := slices.DeleteFunc(cellMeans(ofResource(f.rows, resource)), unsettled)
		if resource == quell.Memory && f.stretched(rows) {
			continue
		}
		q, ok := f.fitTo(rows, true)
		if !ok {
			f.leave("queueing."+string(resource), "response times do not grow with its use, or rows are too few")
			continue
		}
		linear, _ := f.fitTo(rows, false)
		quell.Put(&f.Queueing, resource, q)
		quell.Put(&f.Errors, resource, f.errorsOf(rows, resource, q, linear))
	}
}

// Cells with a larger total use, or which asked for more, are not used for Eq. 1: their queues do not settle during a run, and near the
// full resource a small error of the measured use is a large one of the response time.
const (
	settledUse  = 0.93
	settledAsks = 0.95
)

func unsettled(r TrainingRow) bool {
	asks := 0.0
	if r.InterferingLevel != nil {
		asks = r.Level + *r.InterferingLevel
	}
	return r.Utilization+r.Interfering >= settledUse || !quell.AtMost(asks, settledAsks)
}

// cellMeans returns one row for each cell of a resource's training, with the means of its runs: the p90 of a single run varies by chance,
// which is no error of Eq. 1. Rows that do not name their cell stay as they are.
func cellMeans(rows []TrainingRow) (out []TrainingRow) {
	cells := map[[2]float64][]TrainingRow{}
	for _, r := range rows {
		if r.InterferingLevel == nil {
			out = append(out, r)
			continue
		}
		cell := [2]float64{r.Level, *r.InterferingLevel}
		cells[cell] = append(cells[cell], r)
	}
	keys := slices.SortedFunc(maps.Keys(cells), func(a, b [2]float64) int { return slices.Compare(a[:], b[:]) })
	for _, cell := range keys {
		out = append(out, meanRow(cells[cell]))
	}
	return out
}

// meanRow returns a row with the mean uses, rates and response times of the runs of a cell.
func meanRow(runs []TrainingRow) TrainingRow {
	row, obs := runs[0], *runs[0].Observation
	row.Utilization = meanOf(runs, func(r TrainingRow) float64 { return r.Utilization })
	row.Interfering = meanOf(runs, func(r TrainingRow) float64 { return r.Interfering })
	row.RequestRate = meanOf(runs, func(r TrainingRow) float64 { return r.RequestRate })
	row.LatencyMS = meanLatency(runs)
	uses := make(map[quell.Resource]float64, len(obs.Utilization))
	for resource := range obs.Utilization {
		known := slices.DeleteFunc(slices.Clone(runs), func(r TrainingRow) bool { _, ok := r.Observation.Utilization[resource]; return !ok })
		uses[resource] = meanOf(known, func(r TrainingRow) float64 { return r.Observation.Utilization[resource] })
	}
	obs.Utilization, row.Observation = uses, &obs
	return row
}

// errorsOf returns how well coefficients predict the response times of the rows of a resource. linear are the coefficients of Eq. 1 without
// the square term.
func (f *dialFit) errorsOf(rows []TrainingRow, resource quell.Resource, q, linear Queueing) QueueingError {
	e := QueueingError{Rows: len(rows)}
	e.MeanRelative, e.MaxRelative = f.off(rows, resource, q)
	e.Linear, _ = f.off(rows, resource, linear)
	return e
}

// stretched fits what neighbours on the memory do to the processors (Dial.Stretch), and Eq. 1 over the use of the processors. It returns
// false if the rows do not show that processor time grows with the neighbours' use, or if Eq. 1 over the use of the memory fits better.
func (f *dialFit) stretched(rows []TrainingRow) bool {
	if f.Calm == nil {
		return false
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r TrainingRow) bool {
		use, known := r.Observation.Utilization[quell.CPU]
		return !known || use >= saturated
	})
	stretch := f.stretch(rows)
	if stretch < minStretch || stretch > maxStretch {
		return false
	}
	plain := math.Inf(1)
	if q, ok := f.fitTo(rows, true); ok {
		plain, _ = f.off(rows, quell.Memory, q)
	}
	f.Stretch = stretch
	q, ok := f.fitStretched(rows, true)
	linear, _ := f.fitStretched(rows, false)
	if e := f.errorsOf(rows, quell.Memory, q, linear); ok && e.MeanRelative < plain {
		quell.Put(&f.Queueing, quell.Memory, q)
		quell.Put(&f.Errors, quell.Memory, e)
		return true
	}
	f.Stretch = 0
	return false
}

// minStretch is the least value of Stretch that is told from none.
const minStretch = 0.05

// stretch returns by which part of itself the processor time of requests grows beside neighbours that use all of the memory: the least
// squares of use = calm use * (1 + stretch * interfering). It is 0 if the rows do not tell.
func (f *dialFit) stretch(rows []TrainingRow) float64 {
	var rates, uses []float64
	for _, r := range f.calm {
		if use, known := r.Observation.Utilization[quell.CPU]; known {
			rates, uses = append(rates, r.RequestRate), append(uses, use)
		}
	}
	if len(rates) < 2 {
		return 0
	}
	idle, perRequest := stat.LinearRegression(rates, uses, nil, false)
	var grown, square float64
	for _, r := range rows {
		calm := idle + perRequest*r.RequestRate
		grown += (r.Observation.Utilization[quell.CPU] - calm) * calm * r.Interfering
		square += calm * calm * r.Interfering * r.Interfering
	}
	if !(square > 0) {
		return 0
	}
	return grown / square
}

// fitStretched fits c1 and c2 to what neighbours on the memory add to calm response times (Queueing.stretched), and c0 as fitTo does.
func (f *dialFit) fitStretched(rows []TrainingRow, square bool) (Queueing, bool) {
	var a [][]float64
	var b []float64
	for _, r := range rows {
		if r.isolated() {
			continue
		}
		ms, _ := p90Of(&r)
		use, sigma := r.Observation.Utilization[quell.CPU], 1+f.Stretch*r.Interfering
		row := []float64{(Queueing{0, 1, 0}).stretched(use, sigma) / ms}
		if square {
			row = append(row, (Queueing{0, 0, 1}).stretched(use, sigma)/ms)
		}
		a, b = append(a, row), append(b, (ms-f.CalmMS(r.RequestRate))/ms)
	}
	if len(a) < minQueueing {
		return Queueing{0, 0, 0}, false
	}
	c, err := stats.LeastSquares(a, b)
	if err != nil {
		return Queueing{0, 0, 0}, false
	}
	q := append(append(Queueing{0}, c...), 0)[:3]
	for _, r := range rows {
		use := r.Observation.Utilization[quell.CPU] / (1 + f.Stretch*r.Interfering)
		q[0] += (f.CalmMS(r.RequestRate) - (Queueing{0, q[1], q[2]}).MS(use)) / float64(len(rows))
	}
	return q, q[1] > 0 || q[2] > 0
}

// fitTo fits Eq. 1 to rows of one resource, with the square term or without. Without a curve of calm response times it is fitted to
// response times themselves. With it, c1 and c2 are fitted to how much longer than calm ones they are, and c0 so that Eq. 1 gives the mean
// calm response time.
func (f *dialFit) fitTo(rows []TrainingRow, square bool) (Queueing, bool) {
	if f.Calm == nil {
		points := make([]point, len(rows))
		for i, r := range rows {
			points[i].x = r.Utilization + r.Interfering
			points[i].y, _ = p90Of(&r)
		}
		return fitQueueing(points, square)
	}
	var a [][]float64
	var b []float64
	uses := map[float64]bool{}
	for _, r := range rows {
		if r.isolated() {
			continue
		}
		ms, _ := p90Of(&r)
		own, total := 1/(1-r.Utilization), 1/(1-math.Min(r.Utilization+r.Interfering, fullest))
		row := []float64{(total - own) / ms}
		if square {
			row = append(row, (total*total-own*own)/ms)
		}
		a, b = append(a, row), append(b, (ms-f.CalmMS(r.RequestRate))/ms)
		uses[r.Utilization+r.Interfering] = true
	}
	if len(a) < minQueueing || len(uses) < minUses {
		return nil, false
	}
	c, err := stats.LeastSquares(a, b)
	if err != nil {
		return nil, false
	}
	q := append(append(Queueing{0}, c...), 0)[:3]
	for _, r := range rows {
		q[0] += (f.CalmMS(r.RequestRate) - (Queueing{0, q[1], q[2]}).MS(r.Utilization)) / float64(len(rows))
	}
	return q, q[1] > 0 || q[2] > 0
}

// off returns the mean and the largest relative error of the response times that Eq. 1 predicts for the rows of a resource.
func (f *dialFit) off(rows []TrainingRow, resource quell.Resource, q Queueing) (mean, largest float64) {
	d := Dial{Calm: f.Calm, PeakRate: f.PeakRate, Stretch: f.Stretch, Queueing: map[quell.Resource]Queueing{resource: q}}
	for _, r := range rows {
		ms, _ := p90Of(&r)
		own, _ := useOf(&r, d.Over(resource))
		gap := math.Abs(d.Predict(resource, r.RequestRate, own, r.Interfering)-ms) / ms
		mean += gap / float64(len(rows))
		largest = math.Max(largest, gap)
	}
	return mean, largest
}

// fitQueueing fits Eq. 1 to uses and p90s, with the square term or without. It minimises relative errors, because longer response times
// scatter more. It returns false if the response times do not grow with use.
func fitQueueing(points []point, square bool) (Queueing, bool) {
	uses := map[float64]bool{}
	a, b := make([][]float64, len(points)), make([]float64, len(points))
	for i, p := range points {
		x := 1 / (1 - math.Min(p.x, fullest))
		uses[p.x] = true
		if a[i], b[i] = []float64{1 / p.y, x / p.y}, 1; square {
			a[i] = append(a[i], x*x/p.y)
		}
	}
	if len(points) < minQueueing || len(uses) < minUses {
		return nil, false
	}
	c, err := stats.LeastSquares(a, b, 0)
	if err != nil {
		return nil, false
	}
	q := append(Queueing(c), 0)[:3]
	return q, q[1] > 0 || q[2] > 0
}
