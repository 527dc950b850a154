package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Learner learns the section live from the snapshots of a running service. It is a value: Learn returns a new one and leaves the old one
// as it is. Its size is bounded, and equal snapshots give equal learners. The zero value has learned nothing.
type Learner struct {
	Metric  quell.Metric                          `json:"metric,omitempty"`
	Prior   string                                `json:"prior,omitempty"`   // Fingerprint of the trained models that it began with
	Periods int                                   `json:"periods,omitempty"` // snapshots so far
	Last    map[string]time.Time                  `json:"last,omitempty"`    // by instance, the newest observation that was used
	Seen    map[quell.Resource]map[string]*Record `json:"seen,omitempty"`    // by resource and type of instance
	Base    map[quell.Resource]string             `json:"base,omitempty"`    // the type that loads are counted in

	// Parts are readings with too few probes for a window, by instance and resource, oldest first.
	Parts map[string]map[quell.Resource][]seenBy `json:"parts,omitempty"`

	// Pooling is that of the group, if a person told it; nil: it is learned. It is a setting, and not stored.
	Pooling *float64 `json:"-"`
}

// Told returns the learner with a pooling that a person told; nil means that it is learned.
func (l *Learner) Told(pooling *float64) *Learner {
	next := *l
	next.Pooling = pooling
	return &next
}

const (
	// maxTypes bounds the types of instances that are told apart.
	maxTypes = 4
	// perPeriod is how many instances of a type teach in one period. In larger groups they take turns.
	perPeriod = 32
)

// Learn returns what is known after one more snapshot. slo is the objective at which capacities are stated. An observation is used once.
func (l *Learner) Learn(s *quell.Snapshot, slo quell.SLO) *Learner {
	if l == nil || l.Metric != slo.Metric {
		l = &Learner{Metric: slo.Metric}
	}
	next := &Learner{Metric: l.Metric, Prior: l.Prior, Pooling: l.Pooling, Periods: l.Periods + 1, Last: map[string]time.Time{},
		Seen: maps.Clone(l.Seen), Base: maps.Clone(l.Base)}
	if next.Seen == nil {
		next.Seen = map[quell.Resource]map[string]*Record{}
	}
	fresh := next.news(l, s)
	for _, r := range sortedKeys(fresh) {
		if next.Seen[r] == nil {
			next.Seen[r] = map[string]*Record{}
		}
	}
	for _, r := range sortedKeys(fresh) {
		records := maps.Clone(next.Seen[r])
		for _, instanceType := range sortedKeys(fresh[r]) {
			old, known := records[instanceType]
			if !known && len(records) >= maxTypes && !forgetOne(records, next.Periods) {
				continue
			}
			records[instanceType] = old.with(fresh[r][instanceType], next.Periods, slo, next.only(r), balanced{s.Scheduling, l.Pooling})
		}
		next.Seen[r] = records
		next.rebase(r)
	}
	return next
}

// lately is for how many periods a resource counts as probed after its last probe.
const lately = 100

// only returns whether no resource but this one has been probed lately.
func (l *Learner) only(r quell.Resource) bool {
	for other, records := range l.Seen {
		if other == r {
			continue
		}
		for _, record := range records {
			if len(record.Windows) > 0 && l.Periods-record.newest() <= lately {
				return false
			}
		}
	}
	return true
}

// rebase chooses the type in whose units the loads of a resource are counted. One that has not been seen lately does not stay.
func (l *Learner) rebase(r quell.Resource) {
	if base := l.Seen[r][l.Base[r]]; base != nil && base.newest() < l.Periods-lately {
		delete(l.Base, r)
	}
	if base := l.Live().bestType(r); base != "" {
		quell.Put(&l.Base, r, base)
	}
}

// goneAfter is for how many periods a type of instance must be absent before another one takes its place.
const goneAfter = 1000

// forgetOne drops the type of instance that has been absent for longest. It returns false if none has been absent for long.
func forgetOne(records map[string]*Record, period int) bool {
	oldest := ""
	for _, instanceType := range sortedKeys(records) {
		if oldest == "" || records[instanceType].newest() < records[oldest].newest() {
			oldest = instanceType
		}
	}
	if period-records[oldest].newest() < goneAfter {
		return false
	}
	delete(records, oldest)
	return true
}

// news lists what the snapshot has that is new, by resource and type.
func (l *Learner) news(before *Learner, s *quell.Snapshot) map[quell.Resource]map[string][]seenBy {
	out, known := map[quell.Resource]map[string][]seenBy{}, before.Live()
	alone, crowds := countReady(s) == 1, known.crowds(s)
	for i := range s.Instances {
		in := &s.Instances[i]
		o := in.Observation
		if o == nil {
			continue
		}
		last, again := before.Last[in.ID]
		l.Last[in.ID] = o.At
		if in.State != quell.Ready {
			continue
		}
		var news map[quell.Resource]seenBy
		if !again || !o.At.Equal(last) { // an earlier one is of a clock that was set back
			news = l.windowsOf(o, alone, crowds)
		}
		t := cmp.Or(in.Type, AnyType)
		windows, left := known.take(before.Parts[in.ID], news, t)
		if len(left) > 0 {
			quell.Put(&l.Parts, in.ID, left)
		}
		for _, r := range sortedKeys(windows) {
			if out[r] == nil {
				out[r] = map[string][]seenBy{}
			}
			out[r][t] = append(out[r][t], windows[r])
		}
	}
	for _, types := range out {
		for t, list := range types {
			types[t] = inTurn(list, l.Periods)
		}
	}
	return out
}

func countReady(s *quell.Snapshot) (n int) {
	for i := range s.Instances {
		if s.Instances[i].State == quell.Ready {
			n++
		}
	}
	return n
}

// windowsOf returns the readings of an observation by resource.
func (l *Learner) windowsOf(o *quell.Observation, alone bool, crowds map[quell.Resource]Crowd) map[quell.Resource]seenBy {
	windows := make(map[quell.Resource]seenBy, len(o.Probe))
	for r := range o.Probe {
		if w, ok := windowOf(o, r, l.Metric, l.Periods); ok {
			w.Alone, w.Size, w.Crowd = alone, crowds[r].Size, round(crowds[r].Use)
			windows[r] = seenBy{w, o.Probe[r].By}
		}
	}
	return windows
}

// inTurn chooses at most perPeriod of the windows, other ones in each period.
func inTurn(list []seenBy, period int) []seenBy {
	stride := (len(list) + perPeriod - 1) / perPeriod
	if stride <= 1 {
		return list
	}
	var out []seenBy
	for i := period % stride; i < len(list); i += stride {
		out = append(out, list[i])
	}
	return out
}

// Live returns the section that can be used now: a law for each resource and type of which enough is known. Types with little data of
// their own get the law of their kin.
func (l *Learner) Live() Live {
	live := Live{}
	if l == nil {
		return live
	}
	for _, r := range sortedKeys(l.Seen) {
		for _, t := range sortedKeys(l.Seen[r]) {
			if law := l.Seen[r][t].Law; law != nil {
				if live[r] == nil {
					live[r] = map[string]*Law{}
				}
				if t == l.Base[r] {
					based := *law
					based.Base, law = true, &based
				}
				live[r][t] = law
			}
		}
	}
	return live
}

// Models returns what was learned as models; other sections are those of prior, which may be nil.
func (l *Learner) Models(prior *Models) *Models {
	m := &Models{}
	if prior != nil {
		*m = *prior
		m.Sections = slices.DeleteFunc(slices.Clone(prior.Sections), is[Live])
	}
	if live := l.Live(); len(live) > 0 {
		m.Sections = append(m.Sections, live)
	}
	return m
}

// Count returns how many windows are stored of a resource, and how many of them have a response time.
func (l *Learner) Count(r quell.Resource) (windows, answered int) {
	if l == nil {
		return 0, 0
	}
	for _, record := range l.Seen[r] {
		for i := range record.Windows {
			windows++
			if record.Windows[i].N > 0 {
				answered++
			}
		}
	}
	return windows, answered
}

// measured is the factor over the largest use that was seen up to which a law is relied on.
const measured = 1.15

// Text says how well a resource is known on a type of instance that has a law, and where its capacity lies beyond all use that was seen.
func (l *Learner) Text(r quell.Resource, instanceType string) string {
	record := l.Seen[r][instanceType]
	text := record.Law.Text()
	low, high := record.uses()
	if high == 0 || measured*high >= record.Law.Capacity {
		return text
	}
	seen := fmt.Sprintf("%.2f to %.2f", low, high)
	if high-low < 0.01 {
		seen = fmt.Sprintf("%.2f", high)
	}
	return fmt.Sprintf("%s; its use has been %s so far: above that the response time is not measured yet, but follows from the law",
		text, seen)
}

// uses returns the smallest and the largest use of windows with a response time; 0 if there are none.
func (r *Record) uses() (low, high float64) {
	for i := range r.Windows {
		w := &r.Windows[i]
		if w.N == 0 {
			continue
		}
		if high == 0 || w.Use < low {
			low = w.Use
		}
		high = max(high, w.Use)
	}
	return low, high
}
