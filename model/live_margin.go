package model

import (
	"cmp"
	"math"
	"slices"

	"github.com/quellhq/quell"
)

// Miss is a prediction and what was measured: Ratio is the logarithm of measured over predicted.
type Miss struct {
	PredictedMS float64 `json:"p"`
	Ratio       float64 `json:"r"`
}

// mostErrors bounds the predictions that are kept to measure their errors.
const mostErrors = 256

// predict returns the response time that the law gives for a window, in milliseconds; false if it is unknown.
func (r *Record) predict(w *Window, metric quell.Metric) (float64, bool) {
	if r.Law == nil {
		return 0, false
	}
	ratio, ok := r.Law.ratio(metric)
	if !ok {
		return 0, false
	}
	severity := r.Law.felt(w)
	return r.Law.response(w.Use, severity, ratio) * math.Exp(r.Law.correction(w.Use, severity)), true
}

// felt is the severity of a window, 0 if chance explains its probes.
func (w *Law) felt(x *Window) float64 {
	alone := w.probe(x.Use)
	se := math.Sqrt((w.SpreadIdle + w.SpreadBusy*x.Use) / float64(x.ProbeN))
	if x.ProbeMS < alone*(1+1.64*se) {
		return 0
	}
	return x.ProbeMS/alone - 1
}

// correction is the refinement at the nearest point of the grid.
func (w *Law) correction(u, severity float64) float64 {
	level := math.Round(min(u, lawTop)/lawStep) * lawStep
	nearest, best := math.Inf(1), 0.0
	for _, r := range w.Refined {
		if math.Abs(r.Utilization-level) > lawStep/2 {
			continue
		}
		if d := math.Abs(math.Log1p(r.Severity) - math.Log1p(severity)); d < nearest {
			nearest, best = d, r.LogRatio
		}
	}
	return best
}

// judge compares the predictions with the windows that were measured since, and counts how many stayed within the margin.
func (r *Record) judge(windows []Window, slo quell.SLO) {
	for i := range windows {
		w := &windows[i]
		ms, ok := r.predict(w, slo.Metric)
		if !ok || w.N < fewest {
			continue
		}
		miss := Miss{PredictedMS: round(ms), Ratio: round(math.Log(w.MetricMS / ms))}
		if margin, ok := r.Margin(ms, CoverageGoal); ok {
			r.Judged, r.Covered = fading*r.Judged+1, fading*r.Covered
			if miss.Ratio <= margin {
				r.Covered++
			}
		}
		if r.Errors = append(r.Errors, miss); len(r.Errors) > mostErrors {
			r.Errors = slices.Delete(r.Errors, 0, 1)
		}
	}
}

const (
	// CoverageGoal is the share of windows that a margin must cover.
	CoverageGoal = 0.9
	// fading is the weight that each window leaves to the earlier ones when coverage is measured: a memory of about 1,000 windows.
	fading = 0.999
	// leastErrors is the smallest number of errors that a margin can be taken from.
	leastErrors = 20
	// mostAlike is how many errors of the most similar predictions a margin is taken from.
	mostAlike = 100
)

// Margin returns the logarithm of the factor by which the response time may exceed a prediction of ms, so that the given share of windows
// stays within it. It is the conformal quantile of recent errors of the most similar predictions (Vovk, Gammerman and Shafer 2005,
// section 2.2). It returns false if there are too few errors.
func (r *Record) Margin(ms, share float64) (float64, bool) {
	if r == nil || len(r.Errors) < leastErrors {
		return 0, false
	}
	alike := slices.Clone(r.Errors)
	slices.SortStableFunc(alike, func(a, b Miss) int {
		return cmp.Compare(math.Abs(math.Log(a.PredictedMS/ms)), math.Abs(math.Log(b.PredictedMS/ms)))
	})
	alike = alike[:min(len(alike), mostAlike)]
	ratios := make([]float64, len(alike))
	for i, m := range alike {
		ratios[i] = m.Ratio
	}
	slices.Sort(ratios)
	rank := int(math.Ceil(share * float64(len(ratios)+1)))
	return ratios[min(rank, len(ratios))-1], true
}

// Coverage returns the share of windows whose response time stayed within the predicted margin, and how many windows were judged.
func (l *Learner) Coverage() (share, windows float64) {
	var judged, covered float64
	if l == nil {
		return 0, 0
	}
	for _, types := range l.Seen {
		for _, t := range sortedKeys(types) {
			judged, covered = judged+types[t].Judged, covered+types[t].Covered
		}
	}
	if judged == 0 {
		return 0, 0
	}
	return covered / judged, judged
}
