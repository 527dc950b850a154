package model

import (
	"math"
	"slices"
)

const (
	// band is how far the median of a period's response times may be from similar earlier windows: a quarter.
	band = 0.22
	// driftAfter is how many periods in a row must be outside the band before what was learned is dropped.
	driftAfter = 4
	// leastRequests is how many response times a period needs for that judgement.
	leastRequests = 20
)

// departs counts periods whose response times differ from those of similar earlier windows, and returns whether there were so many in a
// row that the service must have changed: a release, other requests, other machines. Single disturbed instances do not count.
func (r *Record) departs(windows []Window, period int) bool {
	if r.Law == nil {
		return false
	}
	var gaps []float64
	requests := 0
	for i := range windows {
		w := &windows[i]
		if gap, ok := r.gap(w, period); ok && w.N >= fewest {
			gaps = append(gaps, gap)
			requests += w.N
		}
	}
	if requests < leastRequests {
		return false
	}
	slices.Sort(gaps)
	switch median := gaps[len(gaps)/2]; {
	case median > band:
		r.Off = max(r.Off, 0) + 1
	case median < -band:
		r.Off = min(r.Off, 0) - 1
	default:
		r.Off = 0
	}
	return max(r.Off, -r.Off) >= driftAfter
}

// gap returns by how much a window's response time differs from earlier windows of similar use and severity, as a logarithm, after
// the law's difference between them. It returns false if there are too few.
func (r *Record) gap(w *Window, period int) (float64, bool) {
	felt := r.Law.felt(w)
	var others []float64
	for i := range r.Windows {
		o := &r.Windows[i]
		if o.N < fewest || o.At >= period-driftAfter || math.Abs(o.Use-w.Use) > 2*lawStep {
			continue
		}
		severity := r.Law.felt(o)
		if math.Abs(math.Log1p(severity)-math.Log1p(felt)) > 0.3 {
			continue
		}
		law := r.Law.Exponent*(crowding(w.Use)-crowding(o.Use)) + r.Law.SeverityExponent*(math.Log1p(felt)-math.Log1p(severity))
		others = append(others, math.Log(o.MeanMS)+law)
	}
	if len(others) < driftAfter {
		return 0, false
	}
	slices.Sort(others)
	return math.Log(w.MeanMS) - others[len(others)/2], true
}

// beginAgain drops the response times from before a change of the service. Probes are kept, because machines stayed the same.
func (r *Record) beginAgain(period int) {
	for i := range r.Windows {
		if w := &r.Windows[i]; w.At < period-driftAfter+1 {
			w.N, w.MeanMS, w.MetricMS, w.Rate = 0, 0, 0, 0
		}
	}
	r.Off, r.Drifted = 0, period
	r.Errors, r.Judged, r.Covered = nil, 0, 0
}
