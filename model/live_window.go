package model

import (
	"math"

	"github.com/quellhq/quell"
)

// Window is what was measured at one instance in one period. ProbeN or N is 0 if there was no probe or no response time.
type Window struct {
	At       int     `json:"t"` // the period
	Use      float64 `json:"u"`
	ProbeMS  float64 `json:"p,omitempty"`
	Spread   float64 `json:"s,omitempty"` // squared coefficient of variation of the window's single probes
	ProbeN   int     `json:"pn,omitempty"`
	MeanMS   float64 `json:"m,omitempty"`
	MetricMS float64 `json:"q,omitempty"`
	N        int     `json:"n,omitempty"`
	Rate     float64 `json:"r,omitempty"`  // requests per second
	Cell     int     `json:"c,omitempty"`  // kind of window: similar use and severity
	Alone    bool    `json:"a,omitempty"`  // no other instance was ready, so the balancer had no choice
	Size     float64 `json:"gn,omitempty"` // instances in the group; 0: unknown
	Crowd    float64 `json:"gu,omitempty"` // use of the group
	Other    float64 `json:"o,omitempty"`  // log(1 + severity) of the most disturbed other resource of the instance
}

const (
	// widest bounds the squared coefficient of variation of a window's probes, which then say nothing.
	widest = 100
	// fewest is how many response times and probes a window must have.
	fewest = 2
)

// windowOf returns the part of an observation that teaches about a resource. Without a probe nobody knows what neighbours did, so such a
// window teaches nothing.
func windowOf(o *quell.Observation, r quell.Resource, metric quell.Metric, period int) (w Window, ok bool) {
	use, hasUse := o.ForRequests(r)
	p := o.Probe[r]
	if !hasUse || p.N <= 0 || !(p.MeanMS > minProbeMS) || p.MeanMS > maxValue || use < 0 {
		return w, false
	}
	w = Window{At: period, Use: round(min(use, 1)), ProbeMS: round(p.MeanMS), ProbeN: p.N}
	w.Spread = round(min(square(p.StddevMS/p.MeanMS), widest))
	if o.RequestRate != nil && finite(*o.RequestRate) {
		w.Rate = round(*o.RequestRate)
	}
	ms, has := o.LatencyMS.Of(metric)
	if has && o.LatencyMS.N >= fewest && ms > minProbeMS && ms < maxValue {
		w.N, w.MetricMS, w.MeanMS = o.LatencyMS.N, round(ms), round(ms)
		if mean, ok := o.LatencyMS.Of(quell.Mean); ok && mean > minProbeMS {
			w.MeanMS = round(mean)
		}
	}
	return w, true
}

func square(x float64) float64 { return x * x }

// round keeps five digits, which is more than was measured, so that the stored memory is small.
func round(x float64) float64 {
	if x == 0 || !finite(x) {
		return 0
	}
	scale := math.Pow(10, 4-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}
