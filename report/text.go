package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

func sortSpans(spans []Span) {
	slices.SortFunc(spans, func(a, b Span) int { return a.From.Compare(b.From) })
}

// mostCauses is how many causes a text lists.
const mostCauses = 8

// WriteText writes the report for a terminal, the conclusion first.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.Sentence)
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-13s"+format+"\n", append([]any{what}, args...)...)
	}
	line("service", "%s: %s", r.Service, r.SLO)
	line("time", "%s to %s UTC, %s judged", stamp(r.Since), stamp(r.Until), span(r.JudgedS))
	line("missed", "%s, with %.0f of %.0f requests at instances above the objective", span(r.MissedS), r.Over, r.Requests)
	for i, c := range r.Causes {
		if i == mostCauses {
			line("", "and %d more causes: --json lists them", len(r.Causes)-i)
			break
		}
		line("", "%s", c.text())
	}
	r.writeChange(line)
	r.writeOutcome(line, "acting", r.Advised, "would have missed it for %s (%s to %s): saves %s (%s to %s)")
	r.writeOutcome(line, "without it", r.Acted, "by the models it would have been missed for %s (%s to %s): saved %s (%s to %s) or more")
	if p := r.Predictions; p.Checked > 0 {
		line("predictions", "%d checked where the planned shares were in force: measured %.2g times as long (90%%: %.2g to %.2g), "+
			"%.0f%% within 25%%", p.Checked, p.Bias, p.Low, p.High, 100*p.Within)
	} else {
		line("predictions", "none could be checked: planned shares were never in force")
	}
	for _, s := range r.Spans {
		line("above", "%s to %s  %s, %s, %s", stamp(s.From), s.To.UTC().Format(time.TimeOnly), s.Instance, s.Kind, s.worst())
	}
	for _, n := range r.Notes {
		line("note", "%s", n)
	}
	line("next", "%s", r.Next)
	_, err := io.WriteString(w, b.String())
	return err
}

func stamp(t time.Time) string { return t.UTC().Format(time.DateTime) }

func (c *Cause) text() string {
	text := fmt.Sprintf("%s by %s", span(c.MissedS), c.Kind)
	if c.Instance != "" {
		text += " at " + c.Instance
	}
	if c.Resource != "" {
		text += fmt.Sprintf(", %s: neighbours used about %.0f%%", c.Resource, 100*c.Neighbour)
	}
	return text + fmt.Sprintf(", %s to %s", stamp(c.First), stamp(c.Last))
}

func (r *Report) writeChange(line func(what, format string, args ...any)) {
	c := &r.Change
	if c.Plans == 0 {
		return
	}
	text := fmt.Sprintf("%d of %d plans would have changed something", c.Different, c.Plans)
	if c.Different > 0 {
		text += fmt.Sprintf(", and moved %.1f%% of the traffic each", 100*c.MovedMean)
	}
	line("plans", "%s", text)
	if c.Instance != "" {
		line("", "%s: share %.3f, planned %.3f", c.Instance, c.Share, c.Planned)
	}
	if c.AddedMost > 0 || c.AddedMean < -0.05 {
		line("", "instances: %+.2f on average, %d more at most", c.AddedMean, c.AddedMost)
	}
}

func (r *Report) writeOutcome(line func(what, format string, args ...any), what string, o *Outcome, format string) {
	if o == nil {
		return
	}
	line(what, format, span(o.OtherS.Value), span(o.OtherS.Low), span(o.OtherS.High), signed(o.SavedS.Value), signed(o.SavedS.Low),
		signed(o.SavedS.High))
	line("", "%.0f requests (%.0f to %.0f) fewer at instances above it; machine-hours %+.1f", o.SavedOver.Value, o.SavedOver.Low,
		o.SavedOver.High, o.MachineHours)
	if o.Money != nil {
		line("", "cost of the machines: %+.2f %s", o.Money.Value, r.Currency)
	}
}

// signed writes seconds that may be negative.
func signed(s float64) string {
	text := span(math.Abs(s))
	if s < 0 && text != span(0) {
		return "-" + text
	}
	return text
}

// worst says how slow the service was at worst.
func (s Span) worst() string {
	if s.WorstMS == 0 {
		return "no response times"
	}
	return fmt.Sprintf("up to %.0f ms", s.WorstMS)
}
