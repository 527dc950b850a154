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
	// mostWindows bounds a record; when there are more, the oldest goes.
	mostWindows = 400
)

// with returns the record after the windows of one more period.
func (r *Record) with(news []seenBy, period int, slo quell.SLO) *Record {
	next := &Record{}
	if r != nil {
		*next = *r
		next.Windows, next.Errors = slices.Clone(r.Windows), slices.Clone(r.Errors)
	}
	for _, w := range news {
		if !next.By.Alike(w.By) {
			next = &Record{} // times of other probes cannot be compared
		}
		if w.By != nil {
			next.By = w.By
		}
	}
	windows := make([]Window, len(news))
	for i, w := range news {
		windows[i] = w.Window
	}
	next.judge(windows, slo)
	if next.departs(windows, period) {
		next.beginAgain(period)
	}
	for _, w := range windows {
		next.add(w)
	}
	if law := next.fit(slo, period); law != nil {
		next.Law = law // else the former one stays, which is better than none
	}
	return next
}

// add puts a window into its cell.
func (r *Record) add(w Window) {
	w.Cell = r.cell(&w)
	oldest, alike := -1, 0
	for i := range r.Windows {
		if r.Windows[i].Cell == w.Cell {
			if alike++; oldest < 0 {
				oldest = i
			}
		}
	}
	switch {
	case alike >= ofOneKind:
		r.Windows = slices.Delete(r.Windows, oldest, oldest+1)
	case len(r.Windows) >= mostWindows:
		r.Windows = slices.Delete(r.Windows, 0, 1)
	}
	r.Windows = append(r.Windows, w)
}

// severityClasses is how many kinds of severity are told apart.
const severityClasses = 4

// cell numbers windows by steps of use and of severity.
func (r *Record) cell(w *Window) int {
	cell := int(min(w.Use, lawTop)/lawStep) * severityClasses
	if r.Law == nil {
		return cell
	}
	switch stretch := w.ProbeMS / r.Law.probe(w.Use); {
	case stretch < 1.15:
		return cell
	case stretch < 1.5:
		return cell + 1
	case stretch < 2.2:
		return cell + 2
	}
	return cell + 3
}
