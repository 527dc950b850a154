package redline

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// sample is what an instance did in one period.
type sample struct {
	rate float64 // requests per second
	ms   float64 // the objective's metric
	n    float64 // requests
}

// line is 1/ms = a - b rate. Under processor sharing a response takes s / (1 - rho - u), where rho is the own use, which is in proportion
// to the rate, and u is what neighbours use (Kleinrock, Queueing Systems II, 4.4): its inverse falls linearly with the rate. Percentiles
// grow by nearly the same factor.
type line struct {
	a, b       float64
	va, vb, ab float64 // variances and covariance of a and b
	noise      float64 // standard deviation of one period's metric, as a fraction of it
	free       float64 // degrees of freedom
}

// fit finds the line by least squares. The error of a measured time is in proportion to it and to 1/sqrt(n), so the weight of 1/ms is
// n ms^2. It returns false if the samples do not show a line that falls.
func fit(samples []sample) (l line, ok bool) {
	var w, wx, wy float64
	for _, s := range samples {
		k := s.n * s.ms * s.ms
		w, wx, wy = w+k, wx+k*s.rate, wy+k/s.ms
	}
	if w == 0 {
		return l, false
	}
	mx, my := wx/w, wy/w
	var sxx, sxy float64
	for _, s := range samples {
		k := s.n * s.ms * s.ms
		sxx, sxy = sxx+k*(s.rate-mx)*(s.rate-mx), sxy+k*(s.rate-mx)*(1/s.ms-my)
	}
	l.free = float64(len(samples) - 2)
	if l.free < 1 || sxx <= 0 || sxy >= 0 {
		return l, false
	}
	l.b = -sxy / sxx
	l.a = my + l.b*mx
	var rest, relative float64
	for _, s := range samples {
		d := 1/s.ms - (l.a - l.b*s.rate)
		rest, relative = rest+s.n*s.ms*s.ms*d*d, relative+d*d*s.ms*s.ms
	}
	variance := rest / l.free
	l.vb = variance / sxx
	l.va = variance/w + mx*mx*l.vb
	l.ab = mx * l.vb
	l.noise = math.Sqrt(relative / l.free)
	return l, true
}

// at predicts the metric at a rate, infinite from saturation on.
func (l line) at(rate float64) float64 {
	if y := l.a - l.b*rate; y > 0 {
		return 1 / y
	}
	return math.Inf(1)
}

// within returns the rate at which the metric reaches a threshold, with its 90% interval.
func (l line) within(ms float64) Interval {
	x := (l.a - 1/ms) / l.b
	// x = (a - c)/b, so dx = (da - x db)/b.
	sd := math.Sqrt(math.Max(0, l.va+x*x*l.vb-2*x*l.ab)) / l.b
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: l.free}.Quantile(0.95)
	return Interval{x, math.Max(0, x-t*sd), x + t*sd}
}

// Interval is a value with its 90% interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

func (i Interval) times(k float64) Interval { return Interval{i.Value * k, i.Low * k, i.High * k} }
