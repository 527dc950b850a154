package train

import (
	"fmt"
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Adaptive measures first the cells on which the capacity depends most. It runs half of the plan's cells once each. Then it chooses cells
// by expected model change (Settles, Craven and Ray 2008): for each cell it assumes a run with longer or shorter times than predicted, fits
// the models with that run, and chooses the cells that would change the capacity most. The chosen cells are near the threshold; cells far
// from it are not measured again.
type Adaptive struct {
	Metric      quell.Metric // metric of the objective
	ThresholdMS float64
	Budget      int     // largest number of runs
	Bound       float64 // stop when the capacity's standard error is at most this utilisation; 0: when the budget is used up
	AtOnce      int     // number of runs chosen together: one for each machine, so that no machine waits
}

// Learn is the adaptive plan whose cells have the utilisations of PRIMA's paper.
func Learn(metric quell.Metric, thresholdMS float64, budget int, bound float64, atOnce int) Plan {
	p := Full()
	p.Repeat, p.MaxRepeat = 1, 1
	p.Adaptive = &Adaptive{Metric: metric, ThresholdMS: thresholdMS, Budget: budget, Bound: bound, AtOnce: atOnce}
	return p
}

func (a *Adaptive) validate() error {
	switch {
	case a == nil:
		return nil
	case !slices.Contains(quell.Metrics, a.Metric):
		return &quell.InvalidError{Path: "slo.metric", Problem: fmt.Sprintf("unknown metric %q", a.Metric)}
	case !(a.ThresholdMS > 0):
		return &quell.InvalidError{Path: "slo.threshold", Problem: "must be more than 0"}
	case a.Budget < leastBudget:
		return &quell.InvalidError{Path: "train.budget", Problem: fmt.Sprintf("at least %d runs are needed to begin with", leastBudget)}
	case !(a.Bound >= 0 && a.Bound < 1):
		return &quell.InvalidError{Path: "train.bound", Problem: "must be a utilisation from 0 to below 1"}
	case a.AtOnce < 1:
		return &quell.InvalidError{Path: "train.hosts", Problem: "at least 1"}
	}
	return nil
}

// leastBudget is larger than the number of cells with which Learn begins.
const leastBudget = 30

func (a *Adaptive) round(p Plan, number int, rows []model.TrainingRow) ([]Cell, error) {
	if number == 0 {
		return first(p.Cells()), nil
	}
	left := a.Budget - len(rows)
	if left <= 0 {
		return nil, nil
	}
	g := &guess{Adaptive: a, rows: rows, interferences: p.Interference, runs: map[Cell]int{}}
	if err := g.learn(); err != nil {
		return nil, fmt.Errorf("choosing what to measure next: %w", err)
	}
	if a.Bound > 0 && g.uncertainty() <= a.Bound {
		return nil, nil
	}
	return g.choose(p.Cells(), min(left, a.AtOnce)), nil
}

// first returns the cells to begin with: every level without interference, and every second one with interference,
// like the fields of one colour on a chessboard.
func first(all []Cell) []Cell {
	levels, interferences := map[float64]int{}, map[float64]int{}
	var out []Cell
	for _, c := range all {
		if _, ok := levels[c.Level]; !ok {
			levels[c.Level] = len(levels)
		}
		if _, ok := interferences[c.Interference]; !ok {
			interferences[c.Interference] = len(interferences)
		}
		if c.Interference == 0 || (levels[c.Level]+interferences[c.Interference])%2 == 0 {
			out = append(out, c)
		}
	}
	return out
}

// guess has the models of the rows so far, and the capacities that follow with and without one more run.
type guess struct {
	*Adaptive
	rows          []model.TrainingRow
	interferences []float64
	runs          map[Cell]int
	now           *model.Predictor
	seen          []felt
	capacity      []float64 // capacities of the instances
}

func (g *guess) learn() error {
	for i := range g.rows {
		g.runs[cellOf(&g.rows[i])]++
	}
	var err error
	if g.now, err = g.fit(g.rows); err != nil {
		return err
	}
	g.seen = g.instances(g.interferences)
	g.capacity = g.capacities(g.now)
	return nil
}

func cellOf(r *model.TrainingRow) Cell {
	if r.InterferingLevel == nil {
		return Cell{r.Level, r.Interfering}
	}
	return Cell{r.Level, *r.InterferingLevel}
}

// untested is a placeholder confidence, because severity is not tested here.
const untested = 0.5

func (a *Adaptive) fit(rows []model.TrainingRow) (*model.Predictor, error) {
	m, _, err := model.Fit(rows, model.FitOptions{Metric: a.Metric, Unscored: true})
	if err != nil {
		return nil, err
	}
	return model.Compile(m, model.Spec{Resource: rows[0].Resource, Metric: a.Metric, InterferenceModel: quell.Joint, Confidence: untested})
}

// felt is an instance with a neighbour, as a controller observes it.
type felt struct{ utilization, probeMS, interfering float64 }

// instances returns, for every interference, an instance whose utilisation is the capacity that is left, and one at half of that.
func (g *guess) instances(interferences []float64) []felt {
	var out []felt
	for _, interfering := range interferences {
		capacity := g.now.Capacity(interfering, g.ThresholdMS)
		for _, u := range []float64{capacity / 2, capacity} {
			alone, _, _ := g.now.Isolation(u)
			out = append(out, felt{u, alone * (1 + g.now.SeverityAt(u, interfering)), interfering})
		}
	}
	return out
}

// capacities are those that the models give for the instances' probe times.
func (g *guess) capacities(p *model.Predictor) []float64 {
	var out []float64
	for _, i := range g.seen {
		alone, _, _ := p.Isolation(i.utilization)
		out = append(out, p.Capacity(p.Interfering(i.utilization, i.probeMS/alone-1), g.ThresholdMS), p.Capacity(i.interfering, g.ThresholdMS))
	}
	return out
}

// uncertainty is the standard error of the capacity by the jackknife over runs (Efron 1982), as the mean over the instances. If
// each cell has one run, the result includes the error of interpolating between cells.
func (g *guess) uncertainty() float64 {
	squares := make([]float64, len(g.capacity))
	for i := range g.rows {
		p, err := g.fit(slices.Concat(g.rows[:i], g.rows[i+1:]))
		if err != nil {
			continue // without this run the models cannot be fitted
		}
		for k, c := range g.capacities(p) {
			squares[k] += (c - g.capacity[k]) * (c - g.capacity[k])
		}
	}
	var sum float64
	n := float64(len(g.rows))
	for _, s := range squares {
		sum += math.Sqrt(s * (n - 1) / n)
	}
	return sum / float64(len(squares))
}

// choose returns the n cells with the largest expected effect, not too near to each other. If none has an effect, for
// example when every load meets the threshold, it returns those that were measured least.
func (g *guess) choose(cells []Cell, n int) []Cell {
	worth := make([]float64, len(cells))
	for i, c := range cells {
		worth[i] = g.worth(c)
	}
	var out []Cell
	for range n {
		best := 0
		for i, c := range cells {
			if worth[i] > worth[best] || worth[i] == worth[best] && g.runs[c] < g.runs[cells[best]] {
				best = i
			}
		}
		out = append(out, cells[best])
		g.runs[cells[best]]++
		for i, c := range cells {
			worth[i] *= min(1, (again+apart(c, cells[best]))/reach)
		}
	}
	return out
}

// reach is the distance, as a utilisation, up to which a run in one cell also says something about another.
const reach = 0.2

// again is added to the distance from a chosen cell, so that the cell itself keeps some worth and can be chosen again.
const again = 0.05

func apart(a, b Cell) float64 {
	return math.Abs(a.Level-b.Level) + math.Abs(a.Interference-b.Interference)
}

// The assumed relative error of a run in a cell that was measured before, and in a new cell.
const (
	scatter  = 0.2
	surprise = 0.3
)

// worth is how much the capacities, summed over the instances, would change if a run of the cell took longer or shorter than
// expected.
func (g *guess) worth(c Cell) float64 {
	by := scatter
	if g.runs[c] == 0 {
		by = surprise
	}
	var sum float64
	for _, factor := range [][2]float64{{1 + by, 1}, {1 - by, 1}, {1, 1 + by}, {1, 1 - by}} {
		p, err := g.fit(append(slices.Clip(g.rows), g.expected(c, factor[0], factor[1])))
		if err != nil {
			continue
		}
		for k, capacity := range g.capacities(p) {
			sum += math.Abs(capacity - g.capacity[k])
		}
	}
	return sum
}

// expected is a run as the models predict it, with its times multiplied by a factor.
func (g *guess) expected(c Cell, response, probe float64) model.TrainingRow {
	row := model.TrainingRow{
		Resource: g.rows[0].Resource, Level: c.Level, InterferingLevel: &c.Interference,
		Utilization: g.carried(c.Level, func(r *model.TrainingRow) bool { return r.Level == c.Level },
			func(r *model.TrainingRow) float64 { return r.Utilization }),
		Interfering: g.carried(c.Interference, func(r *model.TrainingRow) bool { return cellOf(r) == c },
			func(r *model.TrainingRow) float64 { return r.Interfering }),
	}
	sf := g.now.SeverityAt(row.Utilization, row.Interfering)
	alone, stddev, _ := g.now.Isolation(row.Utilization)
	row.ProbeMS = model.ProbeRun{Mean: max(leastMS, alone*(1+sf)*probe), Stddev: stddev, N: g.rows[0].ProbeMS.N}
	row.LatencyMS = quell.Latency{N: g.rows[0].LatencyMS.N}
	row.LatencyMS.Set(g.Metric, max(leastMS, g.now.ResponseTime(row.Utilization, sf)*response))
	return row
}

// leastMS keeps a predicted time positive.
const leastMS = 1e-3

// carried is the mean measured utilisation of the matching runs, or the commanded one if no run matches.
func (g *guess) carried(commanded float64, match func(*model.TrainingRow) bool, of func(*model.TrainingRow) float64) float64 {
	var sum, n float64
	for i := range g.rows {
		if match(&g.rows[i]) {
			sum, n = sum+of(&g.rows[i]), n+1
		}
	}
	if n == 0 {
		return commanded
	}
	return sum / n
}
