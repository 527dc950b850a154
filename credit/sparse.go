package credit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/quellhq/quell"
)

// SparseOptions say which profile is wanted.
type SparseOptions struct {
	Resources   []quell.Resource // that can be limited
	ObjectiveMS float64
	Least       map[quell.Resource]float64 // no limit is below this; without an entry: a tenth of the use
	PerRow      int                        // limits of each resource; 0: 4, as in the paper
	Worst       float64                    // times the objective: a limit that makes response times longer ends the row; 0: 2
}

// Sparse plans the measurement of a sparse profile (MRburst, section 3.2.2), and collects its rows: every load without a limit; at the
// first load, several limits of each resource; at every other load, one limit of each resource. The loads are those that come. Sparse is
// pure.
type Sparse struct {
	opts    SparseOptions
	loads   []float64 // in the order in which they came
	limits  map[quell.Resource][]float64
	refused map[quell.Resource]string
	ended   map[quell.Resource]bool // tighter limits would miss the objective by more
	cells   []measuredCell
}

// SparseCell is what is measured in one go: a limit, or none, at a load.
type SparseCell struct {
	Limited quell.Resource // "": nothing
	Limit   float64
	Load    float64
}

type measuredCell struct {
	SparseCell
	rows []ProfileRow
}

// Constants of sparse profiles.
const (
	usualPerRow = 4
	sameLoad    = 1.1  // loads up to this many times another one count as the same
	loosest     = 0.95 // of the use without a limit: a limit that is hardly felt
	narrowest   = 0.1  // of the use without a limit: the tightest limit if no least is known
	usualWorst  = 2
)

// NewSparse returns a plan of which nothing is measured.
func NewSparse(o SparseOptions) (*Sparse, error) {
	o.PerRow = cmp.Or(o.PerRow, usualPerRow)
	o.Worst = cmp.Or(o.Worst, usualWorst)
	if o.PerRow < 2 || !(o.Worst >= 1) || len(o.Resources) == 0 || !(o.ObjectiveMS > 0) {
		return nil, errors.New("a profile needs resources to limit, an objective, at least 2 limits of each resource, and a worst " +
			"response time of at least the objective")
	}
	return &Sparse{opts: o, limits: map[quell.Resource][]float64{}, refused: map[quell.Resource]string{},
		ended: map[quell.Resource]bool{}}, nil
}

// Next returns what to measure at the present load. ok is false if everything is known at this load, or there is no load.
func (s *Sparse) Next(load float64) (c SparseCell, ok bool) {
	if !(load > 0) || math.IsInf(load, 0) {
		return c, false
	}
	c.Load = s.levelOf(load)
	if !s.measured(c) {
		return c, true
	}
	for _, r := range s.opts.Resources {
		if s.refused[r] != "" || len(s.limits[r]) == 0 {
			continue
		}
		c.Limited = r
		for _, c.Limit = range s.wanted(r, c.Load) {
			if !s.measured(c) {
				return c, true
			}
		}
	}
	return SparseCell{}, false
}

// wanted lists the limits of a resource to measure at a load: at the first one the whole row, from the loosest on, until the objective is
// missed by far; at the others the tightest that keeps it.
func (s *Sparse) wanted(r quell.Resource, load float64) []float64 {
	row := s.limits[r]
	if load != s.loads[0] {
		return []float64{s.reference(r)}
	}
	if !s.ended[r] {
		return row
	}
	return nil
}

// reference is the limit of a resource that is measured at all loads: the tightest of the row that keeps the objective, if it is known, or
// one in the middle.
func (s *Sparse) reference(r quell.Resource) float64 {
	row := s.limits[r]
	for _, c := range s.cells { // once a column has begun, it goes on
		if c.Limited == r && c.Load != s.loads[0] {
			return c.Limit
		}
	}
	best := row[len(row)/2]
	for i, limit := range row {
		ms, known := s.latency(SparseCell{r, limit, s.loads[0]})
		if known && ms <= s.opts.ObjectiveMS && (i == 0 || limit < best) {
			best = limit
		}
	}
	return best
}

// levelOf returns the load that a load counts as: one that came before, or itself.
func (s *Sparse) levelOf(load float64) float64 {
	for _, known := range s.loads {
		if (SparseCell{Load: known}).Same(load) {
			return known
		}
	}
	return load
}

func (s *Sparse) measured(c SparseCell) bool { return s.find(c) >= 0 }

func (s *Sparse) find(c SparseCell) int {
	return slices.IndexFunc(s.cells, func(m measuredCell) bool { return m.SparseCell == c })
}

// latency is the response time of a cell's windows that a profile goes by.
func (s *Sparse) latency(c SparseCell) (ms float64, known bool) {
	i := s.find(c)
	if i < 0 || len(s.cells[i].rows) == 0 {
		return 0, false
	}
	return upper(s.cells[i].rows), true
}

// upper is the latencyQuantile of the windows' response times.
func upper(rows []ProfileRow) float64 {
	var list []float64
	for i := range rows {
		list = append(list, rows[i].LatencyMS)
	}
	slices.Sort(list)
	return list[int(latencyQuantile*float64(len(list)-1)+0.5)]
}

// Add enters what was measured of a cell: one row for each window. Without rows, it counts as measured, so that it is not tried for ever.
// The rows get the cell's limit and load.
func (s *Sparse) Add(c SparseCell, rows []ProfileRow) {
	for i := range rows {
		rows[i].Limited, rows[i].Limit, rows[i].Load = c.Limited, c.Limit, c.Load
	}
	if i := s.find(c); i >= 0 {
		s.cells[i].rows = append(s.cells[i].rows, rows...)
		return
	}
	if !slices.Contains(s.loads, c.Load) && len(rows) > 0 {
		s.loads = append(s.loads, c.Load)
	}
	s.cells = append(s.cells, measuredCell{c, rows})
	switch {
	case c.Limited != "" && (len(rows) == 0 || upper(rows) > s.WorstMS()):
		s.End(c.Limited)
	case c.Limited == "" && len(rows) > 0 && len(s.loads) == 1:
		s.choose(rows)
	}
}

// End ends the row of a resource: no tighter limits of it are measured.
func (s *Sparse) End(r quell.Resource) { s.ended[r] = true }

// WorstMS is the response time beyond which a limit should be lifted at once.
func (s *Sparse) WorstMS() float64 { return s.opts.Worst * s.opts.ObjectiveMS }

// Same returns whether a load counts as the load of a cell.
func (c SparseCell) Same(load float64) bool {
	return load <= c.Load*sameLoad && c.Load <= load*sameLoad
}

// Refuse enters why a resource cannot be limited.
func (s *Sparse) Refuse(r quell.Resource, why string) { s.refused[r] = why }

// Refused returns why resources cannot be limited or measured.
func (s *Sparse) Refused() map[quell.Resource]string { return maps.Clone(s.refused) }

// choose sets the limits of the rows, evenly spaced on a logarithmic scale, from what is used without limits.
func (s *Sparse) choose(free []ProfileRow) {
	for _, r := range s.opts.Resources {
		var uses []float64
		for i := range free {
			if use, known := free[i].Use[r]; known {
				uses = append(uses, use)
			}
		}
		if len(uses) == 0 {
			s.refused[r] = "its use is not measured"
			continue
		}
		slices.Sort(uses)
		most := loosest * uses[len(uses)/2]
		least := most * narrowest
		if known, ok := s.opts.Least[r]; ok {
			least = math.Max(known, least)
		}
		if !(least > 0) || most < least*1.1 {
			s.refused[r] = fmt.Sprintf("%.4g of it are used without a limit: no limit would save credits", uses[len(uses)/2])
			continue
		}
		n := float64(s.opts.PerRow - 1)
		for i := range s.opts.PerRow {
			s.limits[r] = append(s.limits[r], most*math.Pow(least/most, float64(i)/n))
		}
	}
}

// Rows returns all rows.
func (s *Sparse) Rows() (rows []ProfileRow) {
	for _, c := range s.cells {
		rows = append(rows, c.rows...)
	}
	return rows
}

// Loads lists the loads that were measured, in ascending order.
func (s *Sparse) Loads() []float64 { return slices.Sorted(slices.Values(s.loads)) }

// Limitable lists the resources that were limited.
func (s *Sparse) Limitable() []quell.Resource {
	return slices.DeleteFunc(slices.Clone(s.opts.Resources), func(r quell.Resource) bool { return s.refused[r] != "" || s.limits[r] == nil })
}

// Share returns how many cells were measured, and how many an exhaustive search would measure: limits of each resource in steps of a tenth,
// from the loosest to the tightest of the row, and no limit, at every load.
func (s *Sparse) Share() (measured, exhaustive int) {
	const step = 1.1
	for _, c := range s.cells {
		if len(c.rows) > 0 {
			measured++
		}
	}
	each := 1
	for _, row := range s.limits {
		each += 1 + int(math.Log(row[0]/row[len(row)-1])/math.Log(step))
	}
	return measured, each * len(s.loads)
}
