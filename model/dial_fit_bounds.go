package model

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// detection finds the bounds of calm response times: a one-sided prediction bound for one window. Response times are first divided by those
// that their load explains, because otherwise a varying load would widen the bound.
func (f *dialFit) detection() {
	var points []point
	rates := make([]float64, 0, len(f.calm))
	for _, r := range f.calm {
		ms, _ := p90Of(&r)
		points, rates = append(points, point{x: r.RequestRate, y: ms, weight: float64(r.LatencyMS.N)}), append(rates, r.RequestRate)
	}
	if len(rates) == 0 {
		f.leave("detect_ms", "no row is calm (interfering 0)")
		return
	}
	slices.Sort(rates)
	f.DetectRate = stat.Quantile(0.5, stat.Empirical, rates, nil)
	if q, ok := f.calmCurve(points); ok {
		f.Calm = q
	}
	var ok bool
	if f.DetectMS, ok = f.bound(allClasses, points, f.Calm); !ok {
		f.leave("detect_ms", fmt.Sprintf("%d calm rows do not tell how response times scatter", len(points)))
		return
	}
	for class, points := range f.byClass() {
		f.detectClass(class, points)
	}
}

// calmCurve fits calm p90s over rates of requests. It returns false if they do not show how the p90 grows.
func (f *dialFit) calmCurve(points []point) (Queueing, bool) {
	if f.PeakRate <= 0 {
		return nil, false
	}
	scaled := slices.Clone(points)
	for i := range scaled {
		scaled[i].x /= f.PeakRate
	}
	q, ok := fitQueueing(scaled, true)
	return q, ok && q.MS(0) > 0
}

// byClass returns the p90s of each class in calm rows, over the rate of all requests.
func (f *dialFit) byClass() map[string][]point {
	points := map[string][]point{}
	for _, r := range f.calm {
		for class, l := range r.Observation.LatencyByClassMS {
			if ms, ok := l.Of(quell.P90); ok && ms > 0 {
				points[class] = append(points[class], point{x: r.RequestRate, y: ms, weight: float64(l.N)})
			}
		}
	}
	return points
}

// detectClass finds the bound of a class, and how its response times grow with the load. Each class needs a curve of its own: if its
// response times were compared with the growth of all, the difference would count as scatter, and the bound would be too high.
func (f *dialFit) detectClass(class string, points []point) {
	curve, ok := f.calmCurve(points)
	if ok {
		quell.Put(&f.CalmByClass, class, curve)
	} else {
		curve = f.Calm
	}
	if bound, ok := f.bound(class, points, curve); ok {
		quell.Put(&f.DetectByClassMS, class, bound)
	} else {
		delete(f.CalmByClass, class)
	}
}

// bound returns the bound of one window's p90 at DetectRate, for a window with many requests. The curve is the one by which the response
// times of the class grow.
func (f *dialFit) bound(class string, points []point, curve Queueing) (float64, bool) {
	values, chance := make([]float64, len(points)), 0.0
	for i, p := range points {
		values[i] = p.y / f.growth(class, p.x)
		if p.weight > 0 {
			sd := values[i] * sampling(f.tailOf(class), int(p.weight))
			chance += sd * sd / float64(len(points))
		}
	}
	return predictionBound(values, chance, max(1, len(curve)))
}

// predictionBound returns the bound that one more value of the same kind stays below with detectConfidence, if it does not scatter by
// chance. chance is the part of the values' variance that is due to their few requests: a window has scatter of its own, which must not
// count twice. fitted is how many parameters were fitted to the values.
func predictionBound(values []float64, chance float64, fitted int) (float64, bool) {
	n, free := float64(len(values)), float64(len(values)-fitted)
	if free < 1 {
		return 0, false
	}
	mean := stat.Mean(values, nil)
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	variance := squares / free
	return mean + stats.TQuantile(detectConfidence, free)*math.Sqrt(math.Max(0, variance-chance)+variance/n), true
}

// tail finds how much longer than their p90 the longest response times of undisturbed instances are: those of all requests, and of each
// class.
func (f *dialFit) tail() {
	var all tails
	classes := map[string]tails{}
	for _, r := range f.calm {
		all.add(r.LatencyMS)
		for class, l := range r.Observation.LatencyByClassMS {
			of := classes[class]
			of.add(l)
			classes[class] = of
		}
	}
	if all.n == 0 {
		f.leave("tail", "no calm row has a p95")
		return
	}
	f.Tail = f.mean("tail", all)
	for _, class := range sortedKeys(classes) {
		if of := classes[class]; of.n > 0 {
			quell.Put(&f.TailByClass, class, f.mean("tail_by_class."+class, of))
		}
	}
}

// mean returns the mean of tails, but at most maxTail. Response times that are either short or very long have a larger one if the p90 is a
// short one and the p95 a long one. With the largest tail, few of their windows are above the bound by chance.
func (f *dialFit) mean(part string, t tails) float64 {
	mean := t.sum / t.n
	if mean > maxTail {
		f.leave(part, fmt.Sprintf("the p95 is so much longer than the p90 that it would be %.4g; %d is used", mean, maxTail))
		return maxTail
	}
	return mean
}

// tails sums up how much longer than their p90 response times are. A request exceeds the p90 with probability 0.1 and the p95 with 0.05, so
// p95 = p90 * (1 + Tail * ln 2).
type tails struct{ sum, n float64 }

func (t *tails) add(l quell.Latency) {
	p90, known := l.Of(quell.P90)
	if p95, ok := l.Of(quell.P95); ok && known && p90 > 0 && p95 >= p90 {
		t.sum, t.n = t.sum+(p95/p90-1)/math.Ln2, t.n+1
	}
}
