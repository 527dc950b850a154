package model

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/quellhq/quell"
)

// UnmarshalJSON reads a learner from a controller's store. The store is no file of a person, so nobody can mend it: what cannot have been
// measured is left out, and learning goes on with the rest.
func (l *Learner) UnmarshalJSON(data []byte) error {
	type plain Learner
	var raw plain
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	*l = Learner(raw)
	l.Periods = max(l.Periods, 0)
	for _, types := range l.Seen {
		maps.DeleteFunc(types, func(_ string, r *Record) bool { return r == nil })
		for _, r := range types {
			r.leaveOut(l.Periods)
		}
	}
	for _, parts := range l.Parts {
		for r, list := range parts {
			parts[r] = slices.DeleteFunc(list, func(p seenBy) bool { return !p.possible(l.Periods) || p.ProbeN == 0 })
		}
		maps.DeleteFunc(parts, func(_ quell.Resource, list []seenBy) bool { return len(list) == 0 })
	}
	return nil
}

// maxRatio is the largest logarithm of measured over predicted that can have come from possible times.
var maxRatio = math.Log(maxValue / minProbeMS)

// leaveOut drops what cannot have been measured until a period, and a law that is none.
func (r *Record) leaveOut(period int) {
	r.Windows = slices.DeleteFunc(r.Windows, func(w Window) bool { return !w.possible(period) })
	r.Errors = slices.DeleteFunc(r.Errors, func(m Miss) bool { return !m.possible() })
	r.Drifted = min(max(r.Drifted, 0), period)
	r.Shown = min(max(r.Shown, 0), steepestLaw)
	r.Judged, r.Covered, r.WidthMS = max(r.Judged, 0), max(r.Covered, 0), max(r.WidthMS, 0)
	if r.Quantile != 0 {
		r.Quantile = min(max(r.Quantile, minQuantile), mostQuantile)
	}
	if r.By != nil && !r.By.Sound() {
		r.By = nil
	}
	if r.Law == nil {
		return
	}
	c := &check{}
	if r.Law.check(c, ""); c.err() != nil {
		r.Law = nil
	}
}

// possible returns whether a prediction and a measurement can be so far apart.
func (m Miss) possible() bool {
	return m.PredictedMS > 0 && m.PredictedMS <= maxValue && math.Abs(m.Ratio) <= maxRatio
}

// possible returns whether a window can have been measured until a period.
func (w *Window) possible(period int) bool {
	probed := w.ProbeN == 0 || w.ProbeN > 0 && w.ProbeMS > minProbeMS && w.ProbeMS <= maxValue
	answered := w.N == 0 || w.N > 0 && w.MeanMS > minProbeMS && w.MeanMS <= maxValue && w.MetricMS > minProbeMS && w.MetricMS <= maxValue
	return probed && answered && w.At >= 0 && w.At <= period && w.Use >= 0 && w.Use <= 1 && w.Spread >= 0 && w.Spread <= widest &&
		w.Rate >= 0 && w.Size >= 0 && w.Crowd >= 0 && finite(w.Size) && finite(w.Crowd)
}
