package arena

import (
	"fmt"
	"math"
	"strings"

	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/stats"
)

// Rival is a policy at its best, compared with PRIMA. Of all its forms (every scheduling with every size or target) it has the two that
// an operator would choose.
type Rival struct {
	Policy string
	// Cheap is the form that violates least among those that cost at most as much as PRIMA; nil if there is none.
	Cheap *Match
	// Good is the form that costs least among those that violate at most as much as PRIMA; nil if there is none.
	Good *Match
}

// Match compares a candidate's row with PRIMA's row, seed by seed.
type Match struct {
	Row
	Against Verdict // whether the row violates more or less than PRIMA's
	Dearer  float64 // relative difference of the row's cost from PRIMA's: 0.1 is 10% dearer
}

// Verdict says which of two candidates violates more. The test is the 95% confidence interval of their differences, seed by seed, because
// all runs with one seed have the same arrivals and neighbours.
type Verdict string

// Verdicts. Equal means that the interval contains 0, so the difference may be chance.
const (
	Less  Verdict = "less"
	More  Verdict = "more"
	Equal Verdict = "as much, within chance"
)

// sameCost is the factor within which costs count as equal: 1%.
const sameCost = 1.01

// costMargin is sameCost in percent above PRIMA's cost.
const costMargin = (sameCost - 1) * 100

// Rivals compares every policy with PRIMA. It is empty if PRIMA did not play.
func (c *Contest) Rivals() []Rival {
	rows := c.Rows()
	us := find(rows, primaItself)
	if us == nil {
		return nil
	}
	var rivals []Rival
	for _, name := range families(rows) {
		rival := Rival{Policy: name}
		for i := range rows { // in order of violation
			r := &rows[i]
			if r.Candidate.Policy != name || r.Candidate == primaItself {
				continue
			}
			if rival.Cheap == nil && r.Cost.Mean <= sameCost*us.Cost.Mean {
				rival.Cheap = c.match(r, us)
			}
			if r.Violation.Mean <= us.Violation.Mean && (rival.Good == nil || r.Cost.Mean < rival.Good.Cost.Mean) {
				rival.Good = c.match(r, us)
			}
		}
		rivals = append(rivals, rival)
	}
	return rivals
}

func find(rows []Row, e Candidate) *Row {
	for i := range rows {
		if rows[i].Candidate == e {
			return &rows[i]
		}
	}
	return nil
}

func (c *Contest) match(r, us *Row) *Match {
	return &Match{
		Row: *r, Against: c.compare(r.Candidate, us.Candidate, violationShare), Dearer: r.Cost.Mean/us.Cost.Mean - 1,
	}
}

// compare says whether a candidate violates more or less than another, by a measure of their results.
func (c *Contest) compare(a, b Candidate, of func(*scenario.Result) float64) Verdict {
	other := map[uint64]scenario.Result{}
	for _, r := range c.Results[b] {
		other[r.Seed] = r
	}
	var differences []float64
	for _, r := range c.Results[a] {
		if o, ok := other[r.Seed]; ok {
			differences = append(differences, of(&r)-of(&o))
		}
	}
	i, ok := stats.MeanInterval(differences, confidence)
	switch {
	case ok && i.Mean+i.Half < 0:
		return Less
	case ok && i.Mean-i.Half > 0:
		return More
	}
	return Equal
}

// outcome describes how PRIMA compares with every rival at its best. The sentences are generated from the figures.
func (c *Contest) outcome() string {
	rivals := c.Rivals()
	us := find(c.Rows(), primaItself)
	if us == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "`%s` misses the objective for %s%% of the time and costs %s instance-seconds.",
		us.Candidate.Title(), us.Violation.text(100, 1), us.Cost.text(1, 0))
	var less, equal, cheaper []string
	asGood := false // some rival violates as little as PRIMA
	for _, r := range rivals {
		if r.Policy == subject || sim.Bound(r.Policy) {
			continue
		}
		if m := r.Cheap; m != nil && m.Against == Less {
			less = append(less, m.brief())
		} else if m != nil && m.Against == Equal {
			equal = append(equal, m.brief())
		}
		asGood = asGood || r.Good != nil
		if m := r.Good; m != nil && m.percent() < 0 {
			cheaper = append(cheaper, m.brief())
		}
	}
	fmt.Fprintf(&b, " Of the rivals that cost at most %.0f%% more,", costMargin)
	if len(less) > 0 {
		fmt.Fprintf(&b, " %s %s the objective for significantly less of the time.", list(less), verb(less, "misses", "miss"))
	} else {
		b.WriteString(" none misses the objective for significantly less of the time.")
	}
	if len(equal) > 0 {
		fmt.Fprintf(&b, " The difference in violation between PRIMA and %s may be due to chance.", list(equal))
	}
	switch {
	case len(cheaper) > 0:
		fmt.Fprintf(&b, " Judged by the means, %s %s the objective no more than PRIMA and cost%s less.",
			list(cheaper), verb(cheaper, "misses", "miss"), verb(cheaper, "s", ""))
	case asGood:
		b.WriteString(" Judged by the means, no rival that misses the objective as little as PRIMA costs less.")
	default:
		b.WriteString(" Judged by the means, no rival misses the objective as little as PRIMA, whatever it costs.")
	}
	c.outcomeOfOurs(&b, rivals)
	c.outcomeByRequests(&b, us)
	return b.String()
}

// outcomeOfOurs adds sentences about PRIMA's other forms and about the bounds for all policies.
func (c *Contest) outcomeOfOurs(b *strings.Builder, rivals []Rival) {
	for _, r := range rivals {
		switch {
		case r.Policy == subject && r.Cheap != nil && r.Cheap.Against == Less:
			fmt.Fprintf(b, " Of PRIMA's other forms that cost at most %.0f%% more, %s misses the objective for significantly less of the time.",
				costMargin, r.Cheap.brief())
		case r.Policy == subject:
			fmt.Fprintf(b, " No other form of PRIMA that costs at most %.0f%% more misses the objective for significantly less of the time.",
				costMargin)
		case sim.Bound(r.Policy) && r.Good != nil:
			fmt.Fprintf(b, " Of the bound %s, the cheapest form that misses the objective as little as PRIMA is %s.", r.Policy, r.Good.brief())
		}
	}
}

// outcomeByRequests adds sentences that compare PRIMA with its rivals by the share of requests over the threshold.
func (c *Contest) outcomeByRequests(b *strings.Builder, us *Row) {
	var fewest, cheapest *Row
	rows := c.Rows()
	for i := range rows {
		r := &rows[i]
		if r.Candidate.Policy == subject || sim.Bound(r.Candidate.Policy) {
			continue
		}
		if r.Cost.Mean <= sameCost*us.Cost.Mean && (fewest == nil || r.Over.Mean < fewest.Over.Mean) {
			fewest = r
		}
		if r.Over.Mean <= us.Over.Mean && (cheapest == nil || r.Cost.Mean < cheapest.Cost.Mean) {
			cheapest = r
		}
	}
	fmt.Fprintf(b, " With PRIMA %s%% of the requests are over the threshold.", us.Over.text(100, 2))
	if fewest != nil {
		fmt.Fprintf(b, " Of the rivals that cost at most %.0f%% more, `%s` has the fewest, %s%% (%s).", costMargin, fewest.Candidate.Title(),
			fewest.Over.text(100, 2), c.compare(fewest.Candidate, us.Candidate, overShare))
	}
	if cheapest == nil {
		b.WriteString(" No rival has as few, whatever it costs.")
		return
	}
	fmt.Fprintf(b, " The cheapest rival that has as few is %s.", c.match(cheapest, us).brief())
}

// brief names a candidate with its violation, its cost in instance-seconds, and how this cost differs from PRIMA's.
func (m *Match) brief() string {
	against := "the same as"
	switch percent := m.percent(); {
	case percent < 0:
		against = fmt.Sprintf("%.0f%% less than", -percent)
	case percent > 0:
		against = fmt.Sprintf("%.0f%% more than", percent)
	}
	return fmt.Sprintf("`%s` (violation %.1f%%, cost %.0f: %s PRIMA's)", m.Candidate.Title(), 100*m.Violation.Mean, m.Cost.Mean, against)
}

// dearer says by how many percent the match costs more or less than PRIMA.
func (m *Match) dearer() string {
	if percent := m.percent(); percent != 0 {
		return fmt.Sprintf("%+.0f%%", percent)
	}
	return "as much"
}

func (m *Match) percent() float64 { return math.Round(100 * m.Dearer) }

// list joins the items with commas and a final "and".
func list(items []string) string {
	if n := len(items); n > 1 {
		return strings.Join(items[:n-1], ", ") + " and " + items[n-1]
	}
	return strings.Join(items, "")
}

func verb(subjects []string, one, several string) string {
	if len(subjects) == 1 {
		return one
	}
	return several
}

// rivalHeader and cells are the columns of the table of rivals at their best.
var rivalHeader = []string{
	"rival at its best", "least violation for PRIMA's cost or less", "violation, %", "against PRIMA", "instance-seconds",
	"least cost for PRIMA's violation or less", "violation, %", "instance-seconds", "against PRIMA",
}

func (r *Rival) cells() []string {
	name := r.Policy
	if name == subject {
		name = "PRIMA's other forms"
	}
	cells := []string{name}
	if m := r.Cheap; m != nil {
		cells = append(cells, m.Candidate.Title(), m.Violation.text(100, 1), string(m.Against), m.Cost.text(1, 0))
	} else {
		cells = append(cells, "none", "", "", "")
	}
	if m := r.Good; m != nil {
		return append(cells, m.Candidate.Title(), m.Violation.text(100, 1), m.Cost.text(1, 0), m.dearer())
	}
	return append(cells, "none", "", "", "")
}
