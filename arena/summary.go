package arena

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/stats"
)

// Row is what an entrant achieved, in means over seeds.
type Row struct {
	Entrant   Entrant
	Seeds     int
	Violation Estimate  // share of the time
	Over      *Estimate // share of the requests that took longer than the threshold, or failed
	Cost      Estimate  // instance-seconds
	MeanMS    *Estimate
	P99MS     *Estimate
	Front     bool // by the means, nobody else violates less for the same cost or less, or as little for less; the clairvoyant does not count
}

// Estimate is a mean with half the width of its 95% confidence interval, which one value does not have.
type Estimate struct {
	Mean float64
	Half *float64
}

const confidence = 0.95

// estimate is nil for no values.
func estimate(values []float64) *Estimate {
	if len(values) == 0 {
		return nil
	}
	if i, ok := stats.MeanInterval(values, confidence); ok {
		return &Estimate{i.Mean, &i.Half}
	}
	return &Estimate{Mean: values[0]}
}

// half is how far an error bar reaches.
func (e Estimate) half() float64 {
	if e.Half == nil {
		return 0
	}
	return *e.Half
}

// text is the mean and its interval, scaled.
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

// Rows are the contest's entrants that have results, those that violate least first, then the cheapest.
func (c *Contest) Rows() []Row {
	var rows []Row
	for _, e := range c.Entrants {
		if results := c.Results[e]; len(results) > 0 {
			rows = append(rows, summarize(e, results))
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Violation.Mean, b.Violation.Mean), cmp.Compare(a.Cost.Mean, b.Cost.Mean))
	})
	front(rows)
	return rows
}

func summarize(e Entrant, results []quell.Result) Row {
	var violation, over, cost, mean, p99 []float64
	for _, r := range results {
		if r.Requests > 0 {
			over = append(over, float64(r.SLO.RequestsOver)/float64(r.Requests))
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
		Entrant: e, Seeds: len(results), Violation: *estimate(violation), Over: estimate(over), Cost: *estimate(cost),
		MeanMS: estimate(mean), P99MS: estimate(p99),
	}
}

// front marks the rows that no other beats: of rows in order of violation, those cheaper than all before, and their equals.
func front(rows []Row) {
	var last *Row
	for i := range rows {
		r := &rows[i]
		if r.Entrant.Policy == policy.Clairvoyant {
			continue
		}
		if last == nil || r.Cost.Mean < last.Cost.Mean || r.Cost.Mean == last.Cost.Mean && r.Violation.Mean == last.Violation.Mean {
			r.Front, last = true, r
		}
	}
}

// header and cells are the table's columns.
var header = []string{"run", "violation, %", "requests over, %", "instance-seconds", "mean, ms", "p99, ms", "seeds", "front"}

func (r Row) cells() []string {
	mark := ""
	if r.Front {
		mark = "*"
	}
	return []string{
		r.Entrant.Title(), r.Violation.text(100, 1), r.Over.text(100, 2), r.Cost.text(1, 0), r.MeanMS.text(1, 1), r.P99MS.text(1, 0), fmt.Sprint(r.Seeds), mark,
	}
}

// WriteTables prints the contests' tables.
func WriteTables(w io.Writer, contests []*Contest) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range contests {
		fmt.Fprintf(t, "%s\n", c.Scenario.Name)
		writeCells(t, header)
		for _, r := range c.Rows() {
			writeCells(t, r.cells())
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
