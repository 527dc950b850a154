package budget

import (
	"fmt"
	"maps"
	"time"

	"github.com/quellhq/quell"
)

// Ledger counts what was judged and what was missed. Its zero value is empty. All its times are of one clock: if that was set, they move
// with it, so that the age of what was missed stays as it is.
type Ledger struct {
	Objective string            `json:"objective,omitempty"` // what it counts; what was counted for another objective is dropped
	Since     time.Time         `json:"since,omitzero"`      // when it began
	At        time.Time         `json:"at,omitzero"`         // the end of the newest period
	Rings     []Ring            `json:"rings,omitempty"`     // the finest first
	Judged    float64           `json:"judged,omitempty"`    // since it began, in seconds or requests
	Missed    map[Cause]float64 `json:"missed,omitempty"`    // of that, without Open: no entry ever falls
	Open      float64           `json:"open,omitempty"`      // missed in this episode; its cause is not known yet
	Untold    int               `json:"untold,omitempty"`    // periods of the episode in which that was
	Blind     int               `json:"blind,omitempty"`     // periods in a row with requests, and without the objective's statistic
}

// Ring keeps sums over equal spans of time, the oldest first.
type Ring struct {
	Width time.Duration `json:"width"`
	Count int           `json:"count"`
	From  time.Time     `json:"from,omitzero"` // what was before is not kept, because the ring was shorter then
	Spans []Span        `json:"spans,omitempty"`
}

// Span is the sum over a span of time.
type Span struct {
	At     time.Time         `json:"at"` // its begin
	Judged float64           `json:"judged"`
	Missed map[Cause]float64 `json:"missed,omitempty"`
}

const (
	// spans is how many spans the window of the budget has.
	spans = 168
	// explainedWithin is how many periods later a cause still explains a miss: a neighbour is felt first and found afterwards.
	explainedWithin = 3
)

// Objective names what a budget counts. A change of the target or of the window leaves the count as it is.
func Objective(slo quell.SLO) string { return fmt.Sprintf("%s of %s", slo.Text(), slo.Of) }

// rings returns the rings for a window: minutes for the burn rates of an hour, ten minutes for six hours, and the whole window.
func rings(over time.Duration) []Ring {
	width := max(time.Minute, (over / spans).Truncate(time.Minute))
	return []Ring{
		{Width: time.Minute, Count: 61}, {Width: 10 * time.Minute, Count: 37}, {Width: width, Count: int(over/width) + 1},
	}
}

// For returns the ledger as it is for an objective. If it has counted for another one, begun is true and it is empty. If only the window
// has changed, what was counted stays, as far as it was kept.
func (l Ledger) For(slo quell.SLO) (next Ledger, begun bool) {
	want := rings(slo.Over)
	if l.Objective != Objective(slo) {
		return Ledger{Objective: Objective(slo), Rings: want}, l.Objective != ""
	}
	if len(l.Rings) == len(want) && l.Rings[2].Width == want[2].Width && l.Rings[2].Count == want[2].Count {
		return l, false
	}
	for i := range want {
		if i >= len(l.Rings) {
			break
		}
		old := &l.Rings[i]
		want[i].Spans, want[i].From = old.Spans, old.From
		if kept := l.At.Add(-old.length()); old.length() < want[i].length() && kept.After(old.From) {
			want[i].From = kept
		}
	}
	want[2].Spans = merged(want[2].Spans, want[2].Width)
	l.Rings = want
	return l, false
}

// length is how long a ring keeps what it sums.
func (r *Ring) length() time.Duration { return time.Duration(r.Count) * r.Width }

// merged adds up spans that begin within the same wider span.
func merged(old []Span, width time.Duration) (list []Span) {
	for _, s := range old {
		start := s.At.Truncate(width)
		if n := len(list); n > 0 && !list[n-1].At.Before(start) {
			last := &list[n-1]
			last.Judged, last.Missed = last.Judged+s.Judged, sum(last.Missed, s.Missed)
			continue
		}
		list = append(list, Span{At: start, Judged: s.Judged, Missed: maps.Clone(s.Missed)})
	}
	return list
}

func sum(a, b map[Cause]float64) map[Cause]float64 {
	all := maps.Clone(a)
	if all == nil && len(b) > 0 {
		all = map[Cause]float64{}
	}
	for c, x := range b {
		all[c] += x
	}
	return all
}

// Period is what a ledger adds: a judged amount, in seconds or requests, and what of it was missed.
type Period struct {
	At      time.Time     // its end, by the wall clock
	Elapsed time.Duration // since the end of the last period, by a clock that is never set; 0: unknown, as after a restart
	Judged  float64
	Missed  map[Cause]float64
	Blind   bool // there were requests, and the objective's statistic was not measured
}

// clockSet is the least difference between two clocks that counts as a setting of one of them.
const clockSet = 2 * time.Second

// Add adds a period. The ledger's maps and slices change in place.
func (l *Ledger) Add(p Period) {
	p.At = p.At.Round(0)
	l.follow(p)
	if l.Since.IsZero() {
		l.Since = p.At
	}
	l.At = p.At
	l.Blind++
	if !p.Blind {
		l.Blind = 0
	}
	if p.Judged <= 0 {
		return
	}
	l.Judged += p.Judged
	l.Missed = sum(l.Missed, l.settled(p))
	for i := range l.Rings {
		l.Rings[i].add(p)
	}
}

// follow moves all times if the clock was set. After a restart only a clock that was set back is noticed.
func (l *Ledger) follow(p Period) {
	if l.At.IsZero() {
		return
	}
	set := p.At.Sub(l.At) - p.Elapsed
	if p.Elapsed == 0 {
		set = min(0, p.At.Sub(l.At))
	}
	if set.Abs() < clockSet {
		return
	}
	l.Since, l.At = l.Since.Add(set), l.At.Add(set)
	for i := range l.Rings {
		if r := &l.Rings[i]; !r.From.IsZero() {
			r.From = r.From.Add(set)
		}
		for k := range l.Rings[i].Spans {
			s := &l.Rings[i].Spans[k]
			s.At = s.At.Add(set)
		}
	}
}

// settled returns what a period adds to the totals: what it missed for a known cause, and what was open and is settled by it. The last
// misses of an episode without a known cause get the one that a later period of it has, and so do the rings.
func (l *Ledger) settled(p Period) map[Cause]float64 {
	settled, cause, over := sum(map[Cause]float64{}, p.Missed), p.cause(), len(p.Missed) == 0
	if cause == Unknown && !over && l.Untold < explainedWithin {
		l.Open, l.Untold = l.Open+p.Missed[Unknown], l.Untold+1
		delete(settled, Unknown)
		return settled
	}
	if l.Open > 0 {
		settled[cause] += l.Open
		if cause != Unknown {
			l.rename(cause, l.Open)
		}
		l.Open = 0
	}
	if over || cause != Unknown {
		l.Untold = 0
	}
	return settled
}

// cause returns why most of a period was missed.
func (p *Period) cause() Cause {
	cause := Unknown
	for _, c := range Causes {
		if p.Missed[c] > p.Missed[cause] {
			cause = c
		}
	}
	return cause
}

// rename moves an amount from the unknown cause to another one in the newest span of each ring.
func (l *Ledger) rename(to Cause, amount float64) {
	for i := range l.Rings {
		n := len(l.Rings[i].Spans)
		if n == 0 {
			continue
		}
		missed := l.Rings[i].Spans[n-1].Missed
		part := min(amount, missed[Unknown])
		if part <= 0 {
			continue
		}
		missed[to] += part
		if missed[Unknown] -= part; missed[Unknown] <= 0 {
			delete(missed, Unknown)
		}
	}
}

func (r *Ring) add(p Period) {
	n := len(r.Spans)
	if n == 0 || !p.At.Before(r.Spans[n-1].At.Add(r.Width)) {
		r.Spans = append(r.Spans, Span{At: p.At.Truncate(r.Width)})
		n++
	}
	last := &r.Spans[n-1]
	last.Judged, last.Missed = last.Judged+p.Judged, sum(last.Missed, p.Missed)
	oldest := p.At.Add(-time.Duration(r.Count) * r.Width)
	drop := 0
	for drop < n-1 && (r.Spans[drop].At.Before(oldest) || n-drop > r.Count+1) {
		drop++
	}
	r.Spans = r.Spans[drop:]
}

// ring returns the finest ring that keeps all of a window, nil if there is none.
func (l *Ledger) ring(window time.Duration) *Ring {
	for i := range l.Rings {
		if r := &l.Rings[i]; i == len(l.Rings)-1 || time.Duration(r.Count-1)*r.Width >= window {
			return r
		}
	}
	return nil
}

// within sums the spans that end within the given time before the newest period.
func (l *Ledger) within(window time.Duration) (judged float64, missed map[Cause]float64) {
	r := l.ring(window)
	if r == nil {
		return 0, nil
	}
	from := l.At.Add(-window)
	for _, s := range r.Spans {
		if s.At.Add(r.Width).After(from) {
			judged, missed = judged+s.Judged, sum(missed, s.Missed)
		}
	}
	return judged, missed
}
