package train

import (
	"fmt"
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Adaptive measures first what the capacity hangs on. It begins with half of the plan's cells, once each, and
// then chooses the next ones by expected model change (Settles, Craven and Ray 2008): it fits the models with
// each cell's run made up, longer or shorter than they foretell, and runs those cells that would move the capacity
// most. These lie where the models are least sure near the threshold; what lies far from it is left alone.
type Adaptive struct {
	Metric      quell.Metric // of the objective
	ThresholdMS float64
	Budget      int     // runs at most
	Bound       float64 // ends once the capacity's standard error is at most this, a utilisation; 0: at the end of the budget
	AtOnce      int     // runs chosen together: as many as there are machines, so that none waits
}

// Learn is the adaptive plan with the paper's utilisations as its cells.
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

// leastBudget is more than the first cells of the paper's utilisations.
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

// first returns the cells to begin with: every level alone, and every other one of those under interference, as the
// squares of one colour.
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

// guess is what the rows so far say, and what another one would change.
type guess struct {
	*Adaptive
	rows          []model.TrainingRow
	interferences []float64
	runs          map[Cell]int
	now           *model.Predictor
	seen          []felt
	capacity      []float64 // of those seen
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

// untested is a confidence that costs nothing: no severity is tested here.
const untested = 0.5

func (a *Adaptive) fit(rows []model.TrainingRow) (*model.Predictor, error) {
	m, _, err := model.Fit(rows, model.FitOptions{Metric: a.Metric, Unscored: true})
	if err != nil {
		return nil, err
	}
	return model.Compile(m, model.Spec{Resource: rows[0].Resource, Metric: a.Metric, InterferenceModel: quell.Joint, Confidence: untested})
}

// felt is an instance with a neighbour, as a controller sees it.
type felt struct{ utilization, probeMS, interfering float64 }

// instances meet every interference at the capacity it leaves, and at half of that.
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

// capacities are what models make of the instances' probe times.
func (g *guess) capacities(p *model.Predictor) []float64 {
	var out []float64
	for _, i := range g.seen {
		alone, _, _ := p.Isolation(i.utilization)
		out = append(out, p.Capacity(p.Interfering(i.utilization, i.probeMS/alone-1), g.ThresholdMS), p.Capacity(i.interfering, g.ThresholdMS))
	}
	return out
}

// uncertainty is the standard error of the capacity by the jackknife over runs (Efron 1982), the mean over the
// instances seen. Where cells have one run each it holds the error of interpolation as well.
func (g *guess) uncertainty() float64 {
	squares := make([]float64, len(g.capacity))
	for i := range g.rows {
		p, err := g.fit(slices.Concat(g.rows[:i], g.rows[i+1:]))
		if err != nil {
			continue // the only run of its kind
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

// choose returns the n cells that promise most, apart from each other; where none promises anything, as when every load
// meets the threshold or none does, those that were measured least.
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

// reach is how far the knowledge of a cell reaches, as a utilisation.
const reach = 0.2

// again keeps the cell just chosen a candidate, for when nothing else matters.
const again = 0.05

func apart(a, b Cell) float64 {
	return math.Abs(a.Level-b.Level) + math.Abs(a.Interference-b.Interference)
}

// How far a run may be off what is expected of it, relative: of a cell that was measured, and of one that was not.
const (
	scatter  = 0.2
	surprise = 0.3
)

// worth is the change of capacity, summed over the instances seen, that a run of the cell would bring if it came out
// longer or shorter than expected.
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

// expected is a run as the models foretell it, its response and probe times multiplied.
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
	row.LatencyMS = latency(g.Metric, max(leastMS, g.now.ResponseTime(row.Utilization, sf)*response), g.rows[0].LatencyMS.N)
	return row
}

// leastMS keeps a foretold time positive.
const leastMS = 1e-3

// carried is the mean over the runs that match, or the commanded utilisation if there is none.
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

// latency is a summary with one statistic.
func latency(metric quell.Metric, ms float64, n int) quell.Latency {
	l := quell.Latency{N: n}
	switch metric {
	case quell.Mean:
		l.Mean = &ms
	case quell.P50:
		l.P50 = &ms
	case quell.P90:
		l.P90 = &ms
	case quell.P95:
		l.P95 = &ms
	case quell.P99:
		l.P99 = &ms
	}
	return l
}
