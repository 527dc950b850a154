package budget

import (
	"maps"
	"time"

	"github.com/quellhq/quell"
)

// Report is a budget as it is shown. Amounts are seconds or requests.
type Report struct {
	Target  float64            `json:"target"` // part that must meet the objective
	Of      quell.BudgetOf     `json:"of"`
	OverS   float64            `json:"over_s"`
	Since   time.Time          `json:"since,omitzero"` // when counting began
	Judged  float64            `json:"judged"`         // within the window
	Allowed float64            `json:"allowed"`        // what of the whole window may be missed, at the rate at which it was judged so far
	Missed  float64            `json:"missed"`         // within the window
	Left    float64            `json:"left"`           // part of what is allowed that is left; below 0: more was missed
	By      map[Cause]float64  `json:"by,omitempty"`   // Missed, by cause
	Burn    map[string]float64 `json:"burn,omitempty"` // by length of time: missed over what may be missed in it; 1 uses the budget up exactly
	Days    []Span             `json:"days,omitempty"` // the parts of the window in which something was judged
	Blind   int                `json:"blind,omitempty"`

	TotalJudged float64           `json:"total_judged"`           // since counting began
	TotalBy     map[Cause]float64 `json:"total_missed,omitempty"` // of that; an unknown cause counts when none will be found
}

// windows are those of the usual alerts on burn rates, by name: pairs of a long one, and a short one that ends the alert soon.
var windows = []struct {
	name string
	long time.Duration
}{
	{"5m", 5 * time.Minute}, {"30m", 30 * time.Minute}, {"1h", time.Hour}, {"6h", 6 * time.Hour}, {"3d", 72 * time.Hour},
}

// Report sums a ledger for an objective.
func (l *Ledger) Report(slo quell.SLO) Report {
	r := Report{
		Target: slo.Target, Of: slo.Of, OverS: slo.Over.Seconds(), Since: l.Since, Blind: l.Blind, Left: 1,
		TotalJudged: l.Judged, TotalBy: maps.Clone(l.Missed), Burn: map[string]float64{},
	}
	allowed := 1 - slo.Target
	r.Judged, r.By = l.within(slo.Over)
	for _, x := range r.By {
		r.Missed += x
	}
	if elapsed := min(slo.Over, l.At.Sub(l.keptSince(slo.Over))); elapsed > 0 {
		r.Allowed = allowed * max(r.Judged, r.Judged*slo.Over.Seconds()/elapsed.Seconds())
	}
	if slo.Of != quell.OfRequests { // the first period is judged, and no time is counted before its end
		r.Allowed = min(r.Allowed, allowed*slo.Over.Seconds())
	}
	if r.Allowed > 0 {
		r.Left = 1 - r.Missed/r.Allowed
	}
	for _, w := range windows {
		if w.long > slo.Over {
			continue
		}
		judged, missed := l.within(w.long)
		burn := 0.0
		for _, x := range missed {
			burn += x
		}
		if judged > 0 {
			burn /= judged * allowed
		}
		r.Burn[w.name] = burn
	}
	if len(l.Rings) > 0 {
		r.Days = merged(l.Rings[len(l.Rings)-1].Spans, max(slo.Over/7, time.Minute))
	}
	return r
}

// keptSince returns since when all of a window is known that was counted in it.
func (l *Ledger) keptSince(window time.Duration) time.Time {
	if r := l.ring(window); r != nil && r.From.After(l.Since) {
		return r.From
	}
	return l.Since
}
