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

// maxErrors bounds the predictions that are kept to measure their errors.
const maxErrors = 256

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
	return r.Law.response(w.Use, severity, ratio) * math.Exp(r.Law.correction(w.Use, severity)+r.Law.OtherExponent*w.Other), true
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

// judge compares the predictions with the windows that were measured since, counts how many stayed within the margin, and corrects the
// quantile of the margin if more or fewer did than should (adaptive conformal inference; Gibbs and Candès 2021, Eq. 2).
func (r *Record) judge(windows []Window, slo quell.SLO) {
	for i := range windows {
		w := &windows[i]
		ms, ok := r.predict(w, slo.Metric)
		if !ok || w.N < fewest {
			continue
		}
		miss := Miss{PredictedMS: round(ms), Ratio: round(math.Log(w.MetricMS / ms))}
		if margin, ok := r.margin(ms); ok {
			r.count(miss, margin)
		}
		if r.Errors = append(r.Errors, miss); len(r.Errors) > maxErrors {
			r.Errors = slices.Delete(r.Errors, 0, 1)
		}
	}
}

// count counts a window for which a margin was predicted.
func (r *Record) count(miss Miss, margin float64) {
	if r.Judged >= maxJudged {
		r.Judged, r.Covered, r.WidthMS = r.Judged/2, r.Covered/2, r.WidthMS/2
	}
	r.Judged++
	r.WidthMS += min(miss.PredictedMS*max(0, math.Expm1(margin)), maxValue)
	within := miss.Ratio <= margin
	if within {
		r.Covered++
	}
	step := correction * CoverageGoal
	if within {
		step -= correction
	}
	r.Quantile = min(max(cmp.Or(r.Quantile, CoverageGoal)+step, minQuantile), mostQuantile)
}

const (
	// CoverageGoal is the share of windows that a margin must cover.
	CoverageGoal = 0.9
	// maxJudged is the number of windows at which those counted so far are halved, so that old ones fade.
	maxJudged = 4000
	// correction is how far one window moves the quantile of the margin, which stays within the bounds.
	correction                = 0.02
	minQuantile, mostQuantile = 0.5, 0.99
	// minErrors is the smallest number of errors that a margin can be taken from.
	minErrors = 20
	// similar is how far predictions may differ whose errors are compared, as a logarithm: by a factor of 2.
	similar = math.Ln2
	// maxAlike is how many errors of the most similar predictions a margin is taken from.
	maxAlike = 100
)

// margin returns the logarithm of the factor by which the response time may exceed a prediction of ms, so that CoverageGoal of the windows
// stay within it. It is the conformal quantile of recent errors of the most similar predictions (Vovk, Gammerman and Shafer 2005,
// section 2.2). It returns false if there are too few errors.
func (r *Record) margin(ms float64) (float64, bool) {
	alike := slices.DeleteFunc(slices.Clone(r.Errors), func(m Miss) bool { return math.Abs(math.Log(m.PredictedMS/ms)) > similar })
	if len(alike) < minErrors {
		return 0, false
	}
	slices.SortStableFunc(alike, func(a, b Miss) int {
		return cmp.Compare(math.Abs(math.Log(a.PredictedMS/ms)), math.Abs(math.Log(b.PredictedMS/ms)))
	})
	alike = alike[:min(len(alike), maxAlike)]
	ratios := make([]float64, len(alike))
	for i, m := range alike {
		ratios[i] = m.Ratio
	}
	slices.Sort(ratios)
	rank := int(math.Ceil(cmp.Or(r.Quantile, CoverageGoal) * float64(len(ratios)+1)))
	return ratios[min(rank, len(ratios))-1], true
}

// Coverage is how many windows were judged by a margin that was predicted for them, the share that stayed within it, and the mean width of
// the margin in milliseconds.
type Coverage struct{ Windows, Share, WidthMS float64 }

// Coverage sums up all resources and types of instance.
func (l *Learner) Coverage() (c Coverage) {
	if l == nil {
		return c
	}
	for _, r := range sortedKeys(l.Seen) {
		for _, t := range sortedKeys(l.Seen[r]) {
			record := l.Seen[r][t]
			c.Windows, c.Share, c.WidthMS = c.Windows+record.Judged, c.Share+record.Covered, c.WidthMS+record.WidthMS
		}
	}
	if c.Windows > 0 {
		c.Share, c.WidthMS = c.Share/c.Windows, c.WidthMS/c.Windows
	}
	return c
}
