package model

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

func TestWaitFactor(t *testing.T) {
	for _, tc := range []struct {
		name         string
		servers, use float64
		want         float64
	}{
		{"a single server waits u/(1-u)", 1, 0.8, 4},
		{"two servers: u^2/(1-u^2)", 2, 0.6, 0.36 / 0.64},
		{"Erlang's C of 3 servers with 2.4 Erlang is 0.6472", 3, 0.8, 0.6472 / 0.6},
		{"between whole numbers the logarithm is linear", 1.5, 0.6, math.Sqrt(1.5 * 0.36 / 0.64)},
		{"no load", 4, 0, 0},
		{"full", 4, 1, math.Inf(1)},
		{"less than one server is one", 0.3, 0.5, 1},
	} {
		if got := WaitFactor(tc.servers, tc.use); got != tc.want && !near(got, tc.want, 1e-4) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestGroupLawAgainstMeasurements compares the law with groups that were simulated, and with four nginx behind HAProxy.
func TestGroupLawAgainstMeasurements(t *testing.T) {
	simulated := &GroupLaw{R0MS: 10.1, Pooling: 0.9, Exponent: 1, Ratio: RatioOf(quell.Mean, 1)}
	real := &GroupLaw{R0MS: 6.3, Pooling: 0.9, Exponent: 0.9, Ratio: RatioOf(quell.P95, 1.1)}
	for _, tc := range []struct {
		name       string
		law        *GroupLaw
		use, taken float64
		want, part float64
	}{
		{"simulated, calm, half of the group used", simulated, 0.5, 0, 11.3, 0.03},
		{"calm, 0.7", simulated, 0.7, 0, 14.6, 0.03},
		{"calm, 0.8", simulated, 0.8, 0, 19.3, 0.03},
		{"beside a neighbour of half of the link", simulated, 0.5, 0.5, 22.6, 0.03},
		{"beside it, 0.7", simulated, 0.7, 0.5, 29.3, 0.03},
		{"beside it, 0.8", simulated, 0.8, 0.5, 38.5, 0.03},
		{"four nginx, p95, half of the links used", real, 0.5, 0, 10.3, 0.15},
		{"four nginx, 0.67", real, 0.67, 0, 14.2, 0.15},
		{"four nginx, 0.78", real, 0.78, 0, 19.2, 0.2},
		{"four nginx, 0.86", real, 0.86, 0, 35.9, 0.15},
	} {
		if got := tc.law.ResponseMS(Even(4, tc.use), tc.taken); !near(got, tc.want, tc.part) {
			t.Errorf("%s: %.1f ms, want %.1f", tc.name, got, tc.want)
		}
	}
}

// TestRatioCurve compares the curve of p90 with groups that were simulated.
func TestRatioCurve(t *testing.T) {
	curve := RatioOf(quell.P90, 1)
	for slowness, want := range map[float64]float64{1.01: 1.08, 1.05: 1.13, 1.15: 1.3, 1.3: 1.46, 1.7: 1.7, 2.2: 1.85, 3.5: 2.05} {
		if got := curve.At(slowness); !near(got, want, 0.06) {
			t.Errorf("at %.2f times: %.2f, want %.2f", slowness, got, want)
		}
	}
	if got := RatioOf(quell.P90, 2.4).At(3); got != 2.4 {
		t.Errorf("sizes that spread more than waiting does: %v, want 2.4 at every slowness", got)
	}
}

func drawGroupLaw(t *rapid.T) *GroupLaw {
	metric := rapid.SampledFrom(quell.Metrics).Draw(t, "metric")
	start := rapid.Float64Range(1, 6).Draw(t, "start")
	if metric == quell.P50 {
		start = rapid.Float64Range(0.3, 1).Draw(t, "median")
	}
	return &GroupLaw{R0MS: rapid.Float64Range(0.1, 1000).Draw(t, "r0"), Pooling: rapid.Float64Range(0, 1).Draw(t, "pooling"),
		Exponent: rapid.Float64Range(0.3, 2).Draw(t, "exponent"), Ratio: RatioOf(metric, start)}
}

// TestGroupLawIsMonotone: a response takes longer with more use and more neighbours, and not longer in a larger group or with more pooling.
func TestGroupLawIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawGroupLaw(t)
		n, use := rapid.Float64Range(1, 300).Draw(t, "n"), rapid.Float64Range(0, 0.99).Draw(t, "use")
		taken := rapid.Float64Range(0, 0.95).Draw(t, "taken")
		ms := l.ResponseMS(Even(n, use), taken)
		pooled := *l
		pooled.Pooling += rapid.Float64Range(0, 1-l.Pooling).Draw(t, "more pooling")
		const rounding = 1 + 1e-9
		for what, bad := range map[string]bool{
			"more use":       l.ResponseMS(Even(n, use+(1-use)*0.1), taken)*rounding < ms,
			"more neighbour": l.ResponseMS(Even(n, use), taken+0.04)*rounding < ms,
			"a larger group": l.ResponseMS(Even(n+rapid.Float64Range(0, 9).Draw(t, "more"), use), taken) > ms*rounding,
			"more pooling":   pooled.ResponseMS(Even(n, use), taken) > ms*rounding,
			"not finite":     math.IsNaN(ms) || math.IsInf(ms, 0),
		} {
			if bad {
				t.Fatalf("%s: %+v with n %v, use %v, taken %v: %v ms", what, l, n, use, taken, ms)
			}
		}
	})
}

// TestLargestUseIsTheInverse: at the largest use the threshold is just met, and 0 means that it is missed without load.
func TestLargestUseIsTheInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawGroupLaw(t)
		n, taken := rapid.Float64Range(1, 40).Draw(t, "n"), rapid.Float64Range(0, 0.95).Draw(t, "taken")
		threshold := l.R0MS * rapid.Float64Range(0.5, 30).Draw(t, "threshold")
		use := l.LargestUse(n, taken, threshold)
		if use == 0 {
			if ms := l.ResponseMS(Even(n, 1e-3), taken); ms < threshold*0.999 {
				t.Fatalf("nothing is carried, although hardly any load takes %v of %v ms", ms, threshold)
			}
			return
		}
		if ms := l.ResponseMS(Even(n, use), taken); ms > threshold*1.000001 {
			t.Fatalf("at the largest use %v: %v ms, more than %v", use, ms, threshold)
		}
		if ms := l.ResponseMS(Even(n, use+1e-4), taken); ms < threshold*0.999999 {
			t.Fatalf("beyond the largest use %v: %v ms, still within %v", use, ms, threshold)
		}
	})
}

// TestWithoutPoolingTheLawIsThatOfToday: each instance has its own use, and a time of R0 / (1 - U - V).
func TestWithoutPoolingTheLawIsThatOfToday(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &GroupLaw{R0MS: 10, Exponent: 1, Ratio: RatioOf(quell.Mean, 1)}
		taken := rapid.Float64Range(0, 0.8).Draw(t, "taken")
		own := rapid.Float64Range(0, 0.95).Draw(t, "own") * (1 - taken)
		c := Crowd{Size: rapid.Float64Range(1, 50).Draw(t, "n"), Use: rapid.Float64Range(0, 0.9).Draw(t, "others"), Own: own / (1 - taken)}
		if got, want := l.ResponseMS(c, taken), 10/(1-own-taken); !near(got, want, 1e-9) {
			t.Fatalf("own use %v beside %v: %v ms, want %v", own, taken, got, want)
		}
	})
}

// TestQueue: the table agrees with the factors that it was made from, in both directions.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		servers, use := rapid.Float64Range(1, maxServers).Draw(t, "servers"), rapid.Float64Range(0, maxUse).Draw(t, "use")
		q, wait := NewQueue(servers), WaitFactor(servers, use)
		if got := q.log1p(use); math.Abs(got-math.Log1p(wait)) > 0.01 {
			t.Errorf("log(1 + wait) at %v of %v servers: %v, want %v", use, servers, got, math.Log1p(wait))
		}
		if got := q.UseAt(wait); wait > 1e-3 && use < lawTop && math.Abs(got-use) > 0.01 {
			t.Errorf("%v servers wait %v at %v, want %v", servers, wait, got, use)
		}
	})
	if q := NewQueue(3); q.UseAt(0) != 0 || q.UseAt(math.Inf(1)) != lawTop {
		t.Errorf("ends of the table: %v, %v", q.UseAt(0), q.UseAt(math.Inf(1)))
	}
}

// GroupLaw is the law of Station with exact figures: the truth in tests.
type GroupLaw struct {
	R0MS     float64 // mean response time without load and neighbours
	Pooling  float64 // g, from 0 to 1
	Exponent float64 // k; 1 in theory. It is fitted to what is measured
	Ratio    RatioCurve
}

// servers is how many servers the group is like.
func (l *GroupLaw) servers(size float64) float64 { return math.Pow(max(size, 1), l.Pooling) }

// Slowness returns how many times as long requests take as without load.
func (l *GroupLaw) Slowness(c Crowd) float64 {
	use := l.Pooling*c.Use + (1-l.Pooling)*c.Own
	return math.Pow(1+WaitFactor(l.servers(c.Size), use), l.Exponent)
}

// ResponseMS returns the metric of the response time, in milliseconds, of an instance whose neighbours use the part taken of its resource.
// It is +Inf if they leave nothing, or from a use of 1 on.
func (l *GroupLaw) ResponseMS(c Crowd, taken float64) float64 { return l.timeMS(l.Slowness(c), taken) }

func (l *GroupLaw) timeMS(slowness, taken float64) float64 {
	if taken >= 1 {
		return math.Inf(1)
	}
	return l.R0MS / (1 - max(taken, 0)) * slowness * l.Ratio.At(slowness)
}

// LargestUse returns the largest use at which a group of this size keeps an instance within the threshold, if all its instances have this
// use. It is the inverse of ResponseMS: 0 if even without load the threshold is missed, and below 1.
func (l *GroupLaw) LargestUse(size, taken, thresholdMS float64) float64 {
	slowness := l.Ratio.slowness(thresholdMS * (1 - min(max(taken, 0), 1)) / l.R0MS)
	if !(slowness > 1) {
		return 0
	}
	return useAtWait(l.servers(size), math.Pow(slowness, 1/l.Exponent)-1)
}

// useAtWait returns the use at which requests wait for a multiple of their service time; it is the inverse of WaitFactor.
func useAtWait(servers, waiting float64) float64 {
	if servers == 1 {
		return waiting / (1 + waiting)
	}
	low, high := 0.0, 1.0
	for range 50 {
		if mid := (low + high) / 2; WaitFactor(servers, mid) <= waiting {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// slowness returns the slowness at which slowness times ratio, which rises, reaches times; 0 if it is more even at a slowness of 1.
func (r RatioCurve) slowness(times float64) float64 {
	if !(times >= r.Start) {
		return 0
	}
	low, high := 1.0, max(times/min(r.Start, r.End), 1)
	for range 60 {
		if mid := (low + high) / 2; mid*r.At(mid) <= times {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}
