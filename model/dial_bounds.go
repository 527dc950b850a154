package model

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/quellhq/quell"
)

// Bounds are p90s in milliseconds of a window with many requests. An instance suffers from neighbours if it stays above them for two
// windows.
type Bounds struct {
	All     float64 // 0: unknown
	ByClass map[string]float64
}

// Bounds returns the bounds for an instance that gets this many requests per second.
func (s *Dial) Bounds(rate float64) Bounds {
	b := Bounds{All: s.DetectMS * s.growth(allClasses, rate)}
	for class, ms := range s.DetectByClassMS {
		quell.Put(&b.ByClass, class, ms*s.growth(class, rate))
	}
	return b
}

// allClasses stands for all requests where a class is expected.
const allClasses = ""

// Excess is a response time above its bound.
type Excess struct {
	Class     string // "": all requests
	MS, Bound float64
	Clear     bool // it is so far above the bound that chance explains it as rarely as two windows above their bounds
}

// Text describes the excess at a rate in requests per second.
func (e Excess) Text(rate float64) string {
	what := "p90"
	if e.Class != "" {
		what += " of " + e.Class
	}
	return fmt.Sprintf("%s %.1f ms at %.1f requests/s, where an instance without neighbours stays below %.1f", what, e.MS, rate, e.Bound)
}

// Exceeded lists the p90s of a window that are above their bounds: that of all requests first, then those of classes by name. rate is in
// requests per second, at the trained mix of classes.
//
// A bound is for one window (detectConfidence). If a window has n requests, its p90 is the k-th smallest of them with k = ceil(0.9 n). The
// share of an undisturbed instance's response times that are shorter is then beta distributed with parameters k and n + 1 - k, whatever the
// distribution of response times. So the bound is the response time at the 95% quantile of that share.
func (s *Dial) Exceeded(o *quell.Observation, rate float64) (list []Excess) {
	bounds := s.Bounds(rate)
	add := func(class string, l *quell.Latency, bound float64) {
		ms, ok := l.Of(quell.P90)
		if !ok || bound == 0 || ms <= bound*s.scatter(class, l.N, detectConfidence) {
			return
		}
		list = append(list, Excess{Class: class, MS: ms, Bound: bound * s.scatter(class, l.N, detectConfidence),
			Clear: ms > bound*s.doubtless(class, rate, bound)*s.scatter(class, l.N, clearConfidence)})
	}
	add(allClasses, o.LatencyMS, bounds.All)
	for _, class := range sortedKeys(bounds.ByClass) {
		if l, measured := o.LatencyByClassMS[class]; measured {
			add(class, &l, bounds.ByClass[class])
		}
	}
	return list
}

// clearConfidence is the confidence of a single window that chance exceeds as rarely as two successive ones at detectConfidence.
const clearConfidence = 1 - (1-detectConfidence)*(1-detectConfidence)

// manyRequests is a number of requests from which on the normal distribution is used instead of the beta distribution.
const manyRequests = 1000

// scatter returns how many times its p90 the bound of an undisturbed instance is, for the p90 of n requests of a class.
func (s *Dial) scatter(class string, n int, confidence float64) float64 {
	tail := s.tailOf(class)
	if n < 1 || tail == 0 {
		return 1
	}
	return 1 + tail*math.Log(0.1/(1-quantileOfP90(n, confidence)))
}

// tailOf returns the tail of a class.
func (s *Dial) tailOf(class string) float64 {
	if tail, known := s.TailByClass[class]; known {
		return tail
	}
	return s.Tail
}

// sampling returns the standard deviation of the p90 of n requests, as a part of itself: sqrt(0.9 * 0.1 / n) over the density at the p90,
// which is 0.1 / (tail * p90).
func sampling(tail float64, n int) float64 { return 3 * tail / math.Sqrt(math.Max(1, float64(n))) }

// quantileOfP90 returns the share of response times that the p90 of n requests exceeds at most, with the given confidence.
func quantileOfP90(n int, confidence float64) float64 {
	if n > manyRequests {
		return 0.9 + distuv.UnitNormal.Quantile(confidence)*math.Sqrt(0.09/float64(n))
	}
	k := math.Ceil(0.9 * float64(n))
	return distuv.Beta{Alpha: k, Beta: float64(n) + 1 - k}.Quantile(confidence)
}

// doubtless returns by which factor the bound of a class grows if its confidence is clearConfidence instead of detectConfidence: its
// distance from the calm response time of that class grows as the quantiles of the normal distribution do. If that time is unknown, nothing
// is clear.
func (s *Dial) doubtless(class string, rate, bound float64) float64 {
	calm := s.calmMS(class, rate)
	if calm == 0 || s.Tail == 0 {
		return math.Inf(1)
	}
	wider := distuv.UnitNormal.Quantile(clearConfidence) / distuv.UnitNormal.Quantile(detectConfidence)
	return math.Max(1, (calm+wider*(bound-calm))/bound)
}

// CalmMS returns the p90 in milliseconds of an undisturbed instance at a rate of requests, or 0 if it is unknown.
func (s *Dial) CalmMS(rate float64) float64 { return s.calmMS(allClasses, rate) }

// calmMS is CalmMS for the requests of one class.
func (s *Dial) calmMS(class string, rate float64) float64 {
	q := s.CalmByClass[class]
	if class == allClasses {
		q = s.Calm
	}
	if q == nil || s.PeakRate <= 0 {
		return 0
	}
	return q.MS(rate / s.PeakRate)
}

// P90 returns the p90 that response times probably have if the p90 of n of them is ms. The p90 of few requests is too small on average: it
// is the k-th smallest with k = ceil(0.9 n), whose mean is 1/n + 1/(n-1) + ... + 1/(n-k+1) for exponential response times with mean 1. That
// of many is ln 10.
func (s *Dial) P90(ms float64, n int) float64 {
	if n < 1 || n > manyRequests || s.Tail == 0 {
		return ms
	}
	k := math.Ceil(0.9 * float64(n))
	mean := 0.0
	for i := range int(k) {
		mean += 1 / float64(n-i)
	}
	return ms / math.Max(0.1, 1+s.Tail*(mean-math.Ln10))
}

// growth returns the p90 of the requests of a class at a rate of requests, divided by that at DetectRate, for an undisturbed instance.
func (s *Dial) growth(class string, rate float64) float64 {
	if s.calmMS(class, rate) == 0 {
		class = allClasses
	}
	now, then := s.calmMS(class, rate), s.calmMS(class, s.DetectRate)
	if now == 0 || then == 0 {
		return 1
	}
	return now / then
}
