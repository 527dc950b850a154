package report

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/quellhq/quell"
)

// Limits of what is concluded.
const (
	mostOff      = 1.5     // a median of measured over predicted above this says that predictions do not hold,
	leastOff     = 1.0 / 3 // and below this, too. Careful predictions are no fault: most plans stay below what is possible
	leastChecked = 20      // predictions to judge them by
	leastGained  = 2       // periods: a smaller saving is none
	covered      = 0.95    // part of the time asked for that must be recorded to speak of all of it
	leastFreed   = 0.5     // instances that plans would have taken away, averaged over time, to say so
)

func (c *Collector) conclude() *Report {
	t := &c.totals
	r := &Report{Service: c.o.Service.Name, Since: c.o.Since, Until: c.o.Until, SLO: objective(c.o.Service.SLO),
		RecordedS: t.recordedS, JudgedS: t.judgedS, MissedS: t.missedS, Requests: t.requests, Over: t.over,
		Causes: c.causes(), Change: c.change(), Advised: t.advised.result(false, &c.o), Acted: t.acted.result(true, &c.o),
		Predictions: t.ratios.result(), Timeline: c.timeline()}
	if c.o.PerMachineHour > 0 {
		r.Currency = c.o.Currency
	}
	r.Spans = longest(t.spans)
	sortSpans(r.Spans)
	r.Notes = c.notes(r)
	if r.Compared = c.compare.Result(); r.Compared != nil {
		r.Notes = append(r.Notes, r.Compared.Text())
	}
	c.judgeAll(r)
	return r
}

func objective(s quell.SLO) string { return fmt.Sprintf("%s within %v", s.Objective(), s.Threshold) }

// notes says what is missing in the records.
func (c *Collector) notes(r *Report) (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	asked := c.o.Until.Sub(c.o.Since).Seconds()
	if r.RecordedS > 0 && r.RecordedS < covered*asked {
		add("snapshots cover %s of %s: the controller is younger, did not run, or dropped older ones (bus.journal_bytes)",
			span(r.RecordedS), span(asked))
	}
	if c.gaps > 0 {
		add("%d gap(s) of %s altogether in the records: the controller did not run, or did not lead", c.gaps, span(c.gapS))
	}
	if c.back > 0 {
		add("the clock was set back %d time(s): each begins a new stretch of records", c.back)
	}
	if c.refused > 0 {
		add("%d snapshots are of another service and were left out", c.refused)
	}
	if c.none > 0 {
		add("%d snapshots have no recorded decision; nothing is compared there", c.none)
	}
	if c.totals.thin {
		add("most instances had fewer than %d requests in a period: periods are judged by %d and more, which chance decides in part",
			leastRequests, thinRequests)
	}
	for i, at := range c.cost.events {
		if i == 3 {
			add("and %d more such changes", len(c.cost.events)-i)
			break
		}
		add("at %s requests became dearer by %.0f%% or more on most instances at once: a release, or another mix of requests",
			at.UTC().Format(time.DateTime), 100*(dearer-1))
	}
	return list
}

// judgeAll sets the verdict, the sentence and the next command.
func (c *Collector) judgeAll(r *Report) {
	config := cmp.Or(c.o.Config, "quell.yaml")
	whole := span(c.o.Until.Sub(c.o.Since).Seconds())
	when := "In the last " + whole
	if asked := c.o.Until.Sub(c.o.Since).Seconds(); r.RecordedS < covered*asked {
		when = fmt.Sprintf("In %s that were recorded of the last %s", span(r.RecordedS), whole)
	}
	say := func(v Verdict, next, format string, args ...any) {
		r.Verdict, r.Next, r.Sentence = v, next, fmt.Sprintf(format, args...)
	}
	period := c.o.Service.Sampling.Seconds()
	status, online := "quell status --config "+config, "quell config check --online "+config
	switch {
	case r.RecordedS == 0:
		say(NoData, status, "Nothing was recorded in the last %s.", whole)
	case r.Requests == 0:
		say(NoData, online, "No requests were measured in the last %s.", whole)
	case r.JudgedS == 0:
		say(NotMeasured, online, "Too few requests were measured in each period to judge the last %s.", whole)
	case r.Advised == nil && r.Acted == nil:
		say(CannotTell, status, "%s There are no recorded plans to compare this with.", r.missed(when))
	case r.off():
		say(CannotTell, "quell forget --config "+config, "%s What acting changes cannot be told: measured response times were %.2g times the "+
			"predicted ones (90%% of them %.2g to %.2g times).", r.missed(when), r.Predictions.Bias, r.Predictions.Low, r.Predictions.High)
	case r.Acted != nil && (r.Advised == nil || r.Acted.Seconds >= r.Advised.Seconds):
		c.judgeActed(r, when, period, config)
	default:
		c.judgeAdvised(r, when, period, config)
	}
}

// off returns whether predictions were too far off to be used.
func (r *Report) off() bool {
	p := &r.Predictions
	return p.Checked >= leastChecked && (p.Bias > mostOff || p.Bias < leastOff)
}

func (r *Report) missed(when string) string {
	if r.MissedS == 0 {
		return when + " the objective was met."
	}
	return fmt.Sprintf("%s the objective was missed for %s.", when, span(r.MissedS))
}

// clear returns whether an estimate is a saving (1) or a loss (-1) beyond doubt, and large enough to be named; 0: neither.
func (o *Outcome) clear(period float64) int {
	switch s := o.SavedS; {
	case s.Low > 0 && s.Value >= leastGained*period:
		return 1
	case s.High < 0 && -s.Value >= leastGained*period:
		return -1
	}
	return 0
}

func (c *Collector) judgeAdvised(r *Report, when string, period float64, config string) {
	o := r.Advised
	act := "sed -i 's/^mode: advise/mode: act/' " + config + " && quell config check " + config + " && systemctl reload quell-controller"
	if c.o.Service.Mode == quell.Act {
		act = "quell authority auto --config " + config
	}
	switch o.clear(period) {
	case 1:
		r.Verdict, r.Next = WouldSave, act
		r.Sentence = fmt.Sprintf("%s acting would have saved %s of %s above the objective (%s to %s)%s.", when, span(o.SavedS.Value),
			span(o.MissedS), span(o.SavedS.Low), span(o.SavedS.High), o.machines("and needed"))
	case -1:
		r.Verdict, r.Next = WouldCost, "quell journal --all --config "+config
		r.Sentence = fmt.Sprintf("%s acting would have added %s above the objective (%s to %s)%s: stay with mode advise.", when,
			span(-o.SavedS.Value), span(-o.SavedS.High), span(-o.SavedS.Low), o.machines("and needed"))
	default:
		freed := -o.MachineHours * hour / o.Seconds
		if freed >= leastFreed && o.SavedS.Low > -leastGained*period {
			r.Verdict, r.Next = WouldFree, act
			r.Sentence = fmt.Sprintf("%s acting would have needed %.1f machine-hours less, and met the objective as well.", when,
				-o.MachineHours)
			return
		}
		r.Verdict, r.Next = NothingLost, "quell report --since 7d --config "+config
		r.Sentence = r.missed(when) + " Nothing is to be gained by acting" + o.doubt(period) + "."
	}
}

func (c *Collector) judgeActed(r *Report, when string, period float64, config string) {
	o := r.Acted
	switch o.clear(period) {
	case 1:
		r.Verdict, r.Next = DidSave, "quell journal --brief --config "+config
		r.Sentence = fmt.Sprintf("%s acting saved at least %s above the objective: it was missed for %s. How much more "+
			"it saved, the record does not show.", when, span(o.SavedS.Low), span(o.MissedS))
	case -1:
		r.Verdict, r.Next = DidCost, "quell journal --brief --config "+config
		r.Sentence = fmt.Sprintf("%s acting added %s above the objective (%s to %s): it was missed for %s.", when,
			span(-o.SavedS.Value), span(-o.SavedS.High), span(-o.SavedS.Low), span(o.MissedS))
	default:
		r.Verdict, r.Next = NothingLost, "quell report --since 7d --config "+config
		r.Sentence = r.missed(when) + " Acting changed nothing that can be told" + o.doubt(period) + "."
	}
}

// doubt says how large a saving or a loss may be, if that is not small.
func (o *Outcome) doubt(period float64) string {
	if o.SavedS.High < leastGained*period && o.SavedS.Low > -leastGained*period {
		return ""
	}
	return fmt.Sprintf(" that can be told from chance (between %s saved and %s added)", span(max(0, o.SavedS.High)),
		span(max(0, -o.SavedS.Low)))
}

// machines says how many machines acting needs more or fewer.
func (o *Outcome) machines(begin string) string {
	switch {
	case math.Abs(o.MachineHours) < 0.05:
		return ""
	case o.MachineHours > 0:
		return fmt.Sprintf(", %s %.1f machine-hours more", begin, o.MachineHours)
	}
	return fmt.Sprintf(", %s %.1f machine-hours less", begin, -o.MachineHours)
}

// span writes seconds for people.
func span(s float64) string {
	switch {
	case s < 120:
		return fmt.Sprintf("%.0f s", s)
	case s < 7200:
		return fmt.Sprintf("%.0f min", s/60)
	case s < 48*hour:
		return fmt.Sprintf("%.3g h", s/hour)
	}
	return fmt.Sprintf("%.3g days", s/hour/24)
}
