package model

import (
	"slices"

	"github.com/quellhq/quell"
)

// Record is what was measured of a resource on instances of one type, and the law fitted to it.
type Record struct {
	Windows []Window       `json:"windows"` // oldest first
	By      *quell.Probing `json:"by,omitempty"`
	Law     *Law           `json:"law,omitempty"` // nil: too little is known
	Off     int            `json:"off,omitempty"` // consecutive periods outside the band of the predictions; negative: faster than predicted
	Drifted int            `json:"drifted,omitempty"`

	OffWindows int `json:"off_windows,omitempty"` // windows in these periods
	Unlike     int `json:"unlike,omitempty"`      // consecutive periods in which all probes were of another kind

	// Wild is how many times as long as usual the newest response times are, if that is too much to be true; 0: they are not wild.
	Wild float64 `json:"wild,omitempty"`

	// Shown is the exponent of severity that windows show. Their severity is known from few probes, so that it may be smaller than the law's.
	Shown float64 `json:"shown,omitempty"`

	Errors   []Miss  `json:"errors,omitempty"`   // the newest predictions and what was measured, oldest first
	Judged   float64 `json:"judged,omitempty"`   // windows for which a margin was predicted; old ones fade
	Covered  float64 `json:"covered,omitempty"`  // how many of them stayed within it
	WidthMS  float64 `json:"width_ms,omitempty"` // sum of their margins
	Quantile float64 `json:"quantile,omitempty"` // of the errors, that a margin has at present; 0: CoverageGoal
}

const (
	// ofOneKind is how many windows of similar use and severity are kept; newer ones replace older ones of the same kind. So a day
	// without traffic does not erase what a busy hour taught.
	ofOneKind = 16
	// maxWindows bounds a record; when there are more, the oldest of the most frequent kind goes.
	maxWindows = 400
)

// with returns the record after the windows of one more period. only says that no other resource is probed.
func (r *Record) with(news []seenBy, period int, slo quell.SLO, only bool, balanced balanced) *Record {
	next := &Record{}
	if r != nil {
		*next = *r
		next.Windows, next.Errors = slices.Clone(r.Windows), slices.Clone(r.Errors)
	}
	windows := next.comparable(news)
	if len(windows) == 0 {
		return next
	}
	departed := next.departs(windows, period)
	if next.Wild == 0 {
		next.judge(windows, slo)
	} else {
		windows = muted(windows)
	}
	if departed {
		next.beginAgain(period)
	}
	last := next.newest()
	for _, w := range windows {
		next.add(w)
	}
	if period/creepEvery > last/creepEvery { // there may be no windows in many a period
		next.creep()
	}
	if law := next.fit(slo, period, only); law != nil {
		law.Together = law.together(next.Windows, slo, balanced)
		next.Law = law // else the former one stays, which is better than none
	}
	return next
}

// unlikeAfter is how many periods in a row all probes must be of another kind before what was learned is dropped. So a single machine that
// is probed in another way, or a reading that comes late, drops nothing.
const unlikeAfter = 3

// comparable returns the windows whose probes are like those of the record. If for several periods there was none, probing has changed,
// and the record begins again.
func (r *Record) comparable(news []seenBy) (windows []Window) {
	alike := func(w seenBy) bool { return r.By.Alike(w.By) }
	switch {
	case slices.ContainsFunc(news, alike):
		r.Unlike = 0
	case len(r.Windows) == 0 || r.Unlike+1 >= unlikeAfter:
		*r = Record{By: news[0].By}
	default:
		r.Unlike++
	}
	for _, w := range news {
		if !alike(w) {
			continue
		}
		if windows = append(windows, w.Window); w.By != nil {
			r.By = w.By
		}
	}
	return windows
}

// add puts a window into its cell. A window without a response time never takes the place of one that has one, so that a balancer that
// reports none erases nothing.
func (r *Record) add(w Window) {
	w.Cell = r.cell(&w)
	oldest, mute, alike := -1, -1, 0
	for i := range r.Windows {
		if o := &r.Windows[i]; o.Cell == w.Cell {
			if alike++; oldest < 0 {
				oldest = i
			}
			if o.N < fewest && mute < 0 {
				mute = i
			}
		}
	}
	full := len(r.Windows) >= maxWindows
	switch {
	case alike < ofOneKind && !full:
		r.Windows = append(r.Windows, w)
		return
	case w.N < fewest:
		oldest = mute
	case alike < ofOneKind:
		oldest = r.oldestOfMost()
	}
	if oldest >= 0 {
		r.Windows = append(slices.Delete(r.Windows, oldest, oldest+1), w)
	}
}

// oldestOfMost returns the index of the oldest window of the kind of which there are most.
func (r *Record) oldestOfMost() int {
	counts, most := map[int]int{}, 0
	for i := range r.Windows {
		cell := r.Windows[i].Cell
		counts[cell]++
		most = max(most, counts[cell])
	}
	return slices.IndexFunc(r.Windows, func(w Window) bool { return counts[w.Cell] == most })
}

// severityClasses is how many kinds of severity are told apart.
const severityClasses = 4

// cell numbers windows by steps of use and of the severity that is felt. Windows that chance explains are of one kind: the calm ones among
// them would otherwise be outnumbered by unlucky ones.
func (r *Record) cell(w *Window) int {
	cell := int(min(w.Use, lawTop)/lawStep) * severityClasses
	if r.Law == nil {
		return cell
	}
	switch felt := r.Law.felt(w); {
	case felt < 0.15:
		return cell
	case felt < 0.5:
		return cell + 1
	case felt < 1.2:
		return cell + 2
	}
	return cell + 3
}

// newest is the period of the newest window, 0 if there is none.
func (r *Record) newest() int {
	if len(r.Windows) == 0 {
		return 0
	}
	return r.Windows[len(r.Windows)-1].At
}
