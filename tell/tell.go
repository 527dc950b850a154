// Package tell puts a controller's status into the words that the command line and the page share.
package tell

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
)

// Words is a status with the words for it.
type Words struct {
	*controller.Status
	clock func(time.Time) string
	why   []quell.Reason    // all that are shown
	code  map[string]string // by instance: the code of the last reason about it, one with a clause before all others
}

// clauses are the codes of reasons for which Clause has words.
var clauses = []string{"other_services", "own_work", "interference", "suspected"}

// Of returns the words for a status. clock writes a time.
func Of(s *controller.Status, clock func(time.Time) string) Words {
	w := Words{Status: s, clock: clock, code: map[string]string{}}
	w.why = quell.ShownReasons(slices.Concat(s.Reasons, s.FastReasons), s.At)
	for _, r := range w.why {
		if slices.Contains(clauses, r.Code) || !slices.Contains(clauses, w.code[r.Instance]) {
			w.code[r.Instance] = r.Code
		}
	}
	return w
}

// Level says how well a service is.
type Level string

// Levels, from the worst.
const (
	Down    Level = "down"    // no instance is ready
	Missed  Level = "missed"  // an instance is above the objective
	Unknown Level = "unknown" // nothing was measured in the last period
	Well    Level = "well"
)

// Objective says whether the service is well.
func (w Words) Objective() (string, Level) {
	metric, _, _ := strings.Cut(w.SLO, " ")
	what := "; objective " + w.SLO
	if w.At.IsZero() {
		return w.Service + ": no decision yet" + what, Unknown
	}
	var worst *controller.InstanceStatus
	ready, missed := 0, 0
	for i := range w.Instances {
		row := &w.Instances[i]
		if row.State == quell.Ready && row.Held == nil {
			ready++
		}
		if row.LatencyMS == nil {
			continue
		}
		if *row.LatencyMS > w.ThresholdMS {
			missed++
		}
		if worst == nil || *row.LatencyMS > *worst.LatencyMS {
			worst = row
		}
	}
	switch {
	case ready == 0:
		return w.Service + " is DOWN: no instance is ready" + what, Down
	case worst == nil:
		return w.Service + ": not known if it is well, no response time in the last period" + what, Unknown
	case missed == 0:
		return fmt.Sprintf("%s is well: %s is %s at most (%s)%s", w.Service, metric, MS(*worst.LatencyMS), worst.ID, what), Well
	}
	since, more := "", ""
	if !w.MissedSince.IsZero() {
		since = " since " + w.clock(w.MissedSince)
	}
	if missed > 1 {
		more = fmt.Sprintf(" and %d more", missed-1)
	}
	return fmt.Sprintf("%s MISSES its objective%s: %s is %s (%s%s)%s", w.Service, since, metric, MS(*worst.LatencyMS), worst.ID, more,
		what), Missed
}

// Acting says which policy runs, and whether it changes anything.
func (w Words) Acting() string {
	name := "policy " + w.Policy
	if w.Fast != "" {
		name += " with " + w.Fast
	}
	switch {
	case w.Lost != "":
		return name + ": changes nothing until quell resume, because the controller's memory was lost"
	case w.Refused != "":
		return name + ": changes nothing, because the balancer obeys another controller"
	case w.Released != nil:
		return name + ": " + w.Released.Text()
	case w.Paused:
		return name + ": changes nothing until quell resume, paused by " + w.PausedBy
	case !w.Leading && (w.Standby || w.NotLeading == ""):
		return name + ": changes nothing, another controller leads (standby)"
	case !w.Leading:
		return name + ": changes nothing, does not lead, and knows of none that does"
	case w.Mode == quell.Advise:
		return name + ": changes nothing (mode: advise), WOULD BE is what it would set"
	case !w.HasModels():
		return name + ": waits for models, shares are equal"
	case w.Nightly != nil && w.Nightly.Instance != "":
		return name + ": acts, and tests " + w.Nightly.Instance + " at its red line"
	case w.Comparison != nil:
		return name + ": acts in half of the turns of a comparison, until " + w.clock(w.Comparison.Until)
	case w.AuthorityFor != nil:
		return name + ": authority " + w.AuthorityFor.Text()
	case w.Authority == quell.AuthorityAdvise:
		return name + ": changes nothing until its predictions are proven, WOULD BE is what it would set"
	case w.Authority == quell.AuthorityStep:
		return name + ": changes shares in small steps, until its predictions are proven"
	}
	return name + ": acts"
}

// idle returns whether nothing is changed at present.
func (w Words) idle() bool {
	return w.Lost != "" || w.Refused != "" || w.Released != nil || w.Paused || !w.Leading || w.Mode == quell.Advise || !w.HasModels() ||
		w.Comparison == nil && w.Authority == quell.AuthorityAdvise
}

// Night says when instances are tested at their red line, and what is in the way; "" if the configuration asks for no such tests.
func (w Words) Night() string {
	n := w.Nightly
	if n == nil {
		return ""
	}
	text := fmt.Sprintf("%s each night; next %s", n.Window, n.Next.Format("2006-01-02 15:04 -07:00"))
	switch {
	case n.Instance != "":
		text += "; now " + n.Instance
	case n.Waits != "":
		text += "; now nothing is tested: " + n.Waits
	}
	if last := len(n.Tested) - 1; last >= 0 && n.Tested[last].Text != "" {
		text += "; last: " + n.Tested[last].Text
	}
	return text
}

// Load says how much load there is, how much the instances can take, and what they cost.
func (w Words) Load() string {
	var can float64
	known := 0
	for _, row := range w.Instances {
		if row.CanTakeRate != nil && row.State == quell.Ready && row.Held == nil {
			can += *row.CanTakeRate
			known++
		}
	}
	load, most := "load unknown", "unknown what the instances can take"
	if w.ArrivalRate != nil {
		load = "load " + Rate(*w.ArrivalRate)
	}
	if w.Unserved > 0 {
		load += ", and " + Rate(w.Unserved) + " found no instance"
	}
	if known > 0 {
		most = fmt.Sprintf("%d of %d instances can take %s", known, len(w.Instances), Rate(can))
	}
	parts := []string{load, most}
	if w.Coming > 0 {
		parts = append(parts, fmt.Sprintf("%d coming", w.Coming))
	}
	return strings.Join(append(parts, "cost "+Age(w.InstanceSeconds)+" of instances", "decided "+w.clock(w.At)), "; ")
}

// Concern says how much an instance needs attention, from 0 to 3.
func (w Words) Concern(row *controller.InstanceStatus) int {
	switch {
	case row.LatencyMS != nil && *row.LatencyMS > w.ThresholdMS:
		return 3
	case row.State != quell.Ready || row.Stale || row.Unprobed || row.Held != nil:
		return 2
	case w.Clause(row) != "":
		return 1
	}
	return 0
}

// State is the text with an instance's state, and one clause about why it is as it is.
func (w Words) State(row *controller.InstanceStatus) string {
	parts := []string{string(row.State)}
	if row.Replaces != "" {
		parts = append(parts, "to replace "+row.Replaces)
	}
	if row.Missing != nil {
		parts = append(parts, "missing from the scaler's list")
	}
	if row.Held != nil {
		parts = []string{w.Held(row)}
	}
	if row.Cut != nil {
		parts = append(parts, fmt.Sprintf("cut to %.0f%%", 100**row.Cut))
	}
	if share, ok := w.Overrides[row.ID]; ok {
		parts = append(parts, fmt.Sprintf("set to %.3f", share)+w.until(row.ID))
	}
	text, clause := strings.Join(parts, ", "), w.Clause(row)
	switch {
	case clause == "":
		return text
	case text == string(quell.Ready):
		return clause
	}
	return text + ": " + clause
}

// until says when an override ends, "" if it has no end.
func (w Words) until(id string) string {
	if o, ends := w.Temporary[id]; ends {
		return " until " + w.clock(o.Until)
	}
	return ""
}

// Clause says in a few words why an instance is slow, or has the share that it has. quell explain has the rest.
func (w Words) Clause(row *controller.InstanceStatus) string {
	switch {
	case row.Health != "":
		return "health check: " + row.Health
	case row.Unprobed:
		return "unprobed"
	case row.Stale:
		return "stale: no readings"
	case len(row.ProbeFailed) > 0:
		return strings.Join(resourceNames(row.ProbeFailed), ", ") + " not probed"
	case w.code[row.ID] == "other_services":
		return "other services"
	case w.code[row.ID] == "own_work":
		return "own work"
	case w.code[row.ID] == "interference":
		return "neighbours" + neighbours(row)
	case w.code[row.ID] == "suspected":
		return "perhaps neighbours"
	case row.Limiter == "errors":
		return "answers with errors"
	case row.Limiter == "credits":
		return "few credits"
	case row.CanTakeRate != nil && row.RequestRate != nil && *row.RequestRate > *row.CanTakeRate:
		return "too much load"
	}
	return ""
}

// neighbours says on which resource neighbours are felt most, and how much of it they use.
func neighbours(row *controller.InstanceStatus) string {
	most, text := 0.0, ""
	for _, r := range slices.Sorted(maps.Keys(row.Interference)) {
		if x := row.Interference[r]; x.Hidden != nil && *x.Hidden > most {
			most, text = *x.Hidden, fmt.Sprintf(" on %.0f%% of %s", 100**x.Hidden, r)
		}
	}
	if resource, _, _ := felt(row); text == "" && resource != "" {
		return " on " + resource
	}
	return text
}

func resourceNames[V any](of map[quell.Resource]V) (names []string) {
	for _, r := range slices.Sorted(maps.Keys(of)) {
		names = append(names, string(r))
	}
	return names
}

// Reasons returns why an instance, or the group if the id is empty, is as it is, what needs attention first.
func (w Words) Reasons(id string) []quell.Reason {
	about := slices.DeleteFunc(slices.Clone(w.why), func(r quell.Reason) bool { return r.Instance != id })
	rank := func(r quell.Reason) int {
		return slices.Index([]quell.Severity{quell.Warning, quell.Notice, quell.Routine}, r.Kind().Severity)
	}
	slices.SortStableFunc(about, func(a, b quell.Reason) int { return rank(a) - rank(b) })
	return about
}

// Problems returns what is wrong at present, one text for each problem.
func (w Words) Problems() (all []string) {
	for _, p := range []struct{ what, why string }{{"memory lost", w.Lost}, {"balancer", w.Refused},
		{"not kept over a restart", w.Store}, {"bus", w.Bus}} {
		if p.why != "" {
			all = append(all, p.what+": "+p.why)
		}
	}
	for _, part := range slices.Sorted(maps.Keys(w.LastFailure)) {
		what := part
		if part == "look" {
			what = "asking scaler and balancer"
		}
		all = append(all, fmt.Sprintf("%s fails, last %s (%d so far): %s", what, w.clock(w.LastFailureAt[part]), w.Failures[part],
			w.LastFailure[part]))
	}
	for _, u := range w.UnknownSenders {
		all = append(all, fmt.Sprintf("readings come for %q, which is no instance of this service (%s %q, since %s): correct the name there, "+
			"or add it", u.Instance, u.Source, u.Sender, w.clock(u.Since)))
	}
	return all
}

// Held says who took an instance out of rotation, and since when.
func (w Words) Held(row *controller.InstanceStatus) string {
	text := "held by " + row.Held.By
	switch {
	case row.Empty:
		text += ", empty"
	case row.Open != nil:
		text += fmt.Sprintf(", %d open", *row.Open)
	}
	text += ", since " + w.clock(row.Held.Since)
	if row.HeldUntil != nil {
		text += ", until " + w.clock(*row.HeldUntil)
	}
	if row.Held.Why != "" {
		text += " (" + row.Held.Why + ")"
	}
	return text
}

// MS writes milliseconds.
func MS(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f ms", v)
	}
	return fmt.Sprintf("%.3g ms", v)
}

// Rate writes requests per second.
func Rate(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f/s", v)
	}
	return fmt.Sprintf("%.3g/s", v)
}

// Age writes the age of an instance, or a dash if it is unknown.
func Age(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
