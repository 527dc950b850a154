package arena

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/stats"
)

// Row is what a candidate achieved: means over seeds.
type Row struct {
	Candidate Candidate
	Seeds     int
	Violation Estimate  // share of the time in which the objective was violated
	Over      Estimate  // share of the requests that took longer than the threshold or failed
	Cost      Estimate  // instance-seconds
	Uneven    *Estimate // largest over mean of the instances' loads
	MeanMS    *Estimate
	P99MS     *Estimate
	Front     bool // no candidate but the bounds is better in mean violation or mean cost and at least as good in the other
	Best      bool // no other form of the same policy is, by the same rule
	Own       bool // a run of the scenario's own list, or PRIMA with the scenario's settings
}

// shown says whether the row is among those that are printed first.
func (r *Row) shown() bool { return r.Front || r.Best || r.Own }

// Estimate is a mean with half the width of its 95% confidence interval. A single value has no interval.
type Estimate struct {
	Mean float64
	Half *float64
}

const confidence = 0.95

// estimate returns nil if there are no values.
func estimate(values []float64) *Estimate {
	if len(values) == 0 {
		return nil
	}
	if i, ok := stats.MeanInterval(values, confidence); ok {
		return &Estimate{i.Mean, &i.Half}
	}
	return &Estimate{Mean: values[0]}
}

// half is the length of an error bar on each side.
func (e Estimate) half() float64 {
	if e.Half == nil {
		return 0
	}
	return *e.Half
}

// text is the mean with its interval, both multiplied by scale.
func (e *Estimate) text(scale float64, decimals int) string {
	if e == nil {
		return "-"
	}
	mean := fmt.Sprintf("%.*f", decimals, e.Mean*scale)
	if e.Half == nil {
		return mean
	}
	return fmt.Sprintf("%s ± %.*f", mean, decimals, *e.Half*scale)
}

// Rows are the candidates that have results, in order of violation, then of cost.
func (c *Contest) Rows() []Row {
	own := map[Candidate]bool{primaItself: true}
	if c.Scenario != nil {
		for _, r := range c.Scenario.Runs {
			own[candidateOf(c.Scenario, r)] = true
		}
	}
	var rows []Row
	for _, e := range c.Candidates {
		if results := c.Results[e]; len(results) > 0 {
			row := summarize(e, results)
			row.Own = own[e]
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Violation.Mean, b.Violation.Mean), cmp.Compare(a.Cost.Mean, b.Cost.Mean))
	})
	markFronts(rows)
	return rows
}

func summarize(e Candidate, results []scenario.Result) Row {
	var violation, over, cost, uneven, mean, p99 []float64
	for _, r := range results {
		over = append(over, overShare(&r))
		if r.LargestOverMean != nil {
			uneven = append(uneven, *r.LargestOverMean)
		}
		violation = append(violation, r.SLO.ViolationShare)
		cost = append(cost, r.InstanceSeconds)
		if r.LatencyMS.Mean != nil {
			mean = append(mean, *r.LatencyMS.Mean)
		}
		if r.LatencyMS.P99 != nil {
			p99 = append(p99, *r.LatencyMS.P99)
		}
	}
	return Row{
		Candidate: e, Seeds: len(results), Violation: *estimate(violation), Over: *estimate(over), Cost: *estimate(cost),
		Uneven: estimate(uneven), MeanMS: estimate(mean), P99MS: estimate(p99),
	}
}

// overShare is the share of a run's requests that failed or took longer than the threshold.
func overShare(r *scenario.Result) float64 {
	return float64(r.SLO.RequestsOver) / math.Max(1, float64(r.Requests))
}

// violationShare is the share of a run's time in which the objective was missed.
func violationShare(r *scenario.Result) float64 { return r.SLO.ViolationShare }

// markFronts sets Front and Best of the rows.
func markFronts(rows []Row) {
	for i := range front(rows, func(r *Row) bool { return !sim.Bound(r.Candidate.Policy) }) {
		rows[i].Front = true
	}
	for _, family := range families(rows) {
		for i := range front(rows, func(r *Row) bool { return r.Candidate.Policy == family }) {
			rows[i].Best = true
		}
	}
}

// front yields the indices of rows that no other row beats: rows are in order of violation, so these are the rows cheaper than all before
// them, and equal ones.
func front(rows []Row, who func(*Row) bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		var last *Row
		for i := range rows {
			r := &rows[i]
			if !who(r) {
				continue
			}
			if last == nil || r.Cost.Mean < last.Cost.Mean || r.Cost.Mean == last.Cost.Mean && r.Violation.Mean == last.Violation.Mean {
				last = r
				if !yield(i) {
					return
				}
			}
		}
	}
}

// families are the policies of the rows; PRIMA and the bounds come last.
func families(rows []Row) []string {
	var names []string
	for _, r := range rows {
		if !slices.Contains(names, r.Candidate.Policy) {
			names = append(names, r.Candidate.Policy)
		}
	}
	last := append([]string{subject}, sim.Bounds...)
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(slices.Index(last, a), slices.Index(last, b)), cmp.Compare(a, b))
	})
	return names
}

// header and cells are the table's columns.
var header = []string{
	"run", "violation, %", "requests over, %", "instance-seconds", "largest / mean load", "mean, ms", "p99, ms", "seeds", "front",
}

func (r Row) cells() []string {
	mark := ""
	if r.Front {
		mark = "*"
	}
	return []string{
		r.Candidate.Title(), r.Violation.text(100, 1), r.Over.text(100, 2), r.Cost.text(1, 0), r.Uneven.text(1, 2),
		r.MeanMS.text(1, 1), r.P99MS.text(1, 0),
		fmt.Sprint(r.Seeds), mark,
	}
}

// WriteTables prints a table for each contest: the rows that no other row beats, the best forms of each policy, and the scenario's own
// runs.
func WriteTables(w io.Writer, contests []*Contest) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range contests {
		fmt.Fprintf(t, "%s\n", c.Scenario.Name)
		writeCells(t, header)
		for _, r := range c.Rows() {
			if r.shown() {
				writeCells(t, r.cells())
			}
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func writeCells(w io.Writer, cells []string) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, c)
	}
	fmt.Fprintln(w)
}
