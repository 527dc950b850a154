package model

import (
	"math"

	"github.com/quellhq/quell"
)

// GroupLaw says how long requests take on the instances of a group behind a balancer. A balancer that looks for an idle instance makes the
// group one station: a request waits only if all instances are busy. With n instances of pooling g, and E the waiting factor of M/M/m,
//
//	mean response time  R = R0 / (1-V) * s            V: the neighbours' use of the instance's resource
//	slowness            s = (1 + E(n^g, u))^k         u: the use of the group, its load over what the neighbours leave of all instances
//	percentile          R * ratio(s)
//
// Pooling is 0 if each instance has a queue of its own, as behind a hash or random choice. Then E is that of a single server, u/(1-u), and
// u is the instance's own use. With a pooling of 1 all instances are one station, and only the use of the group counts. Between them, u is
// the mean of both, weighted by the pooling.
type GroupLaw struct {
	R0MS     float64 // mean response time without load and neighbours
	Pooling  float64 // g, from 0 to 1
	Exponent float64 // k; 1 in theory. It is fitted to what is measured
	Ratio    RatioCurve
}

// Crowd is a group as one of its instances sees it.
type Crowd struct {
	Size float64 // n: instances that share the load, at least 1
	Use  float64 // the load of the group over what neighbours leave of all its instances
	Own  float64 // the load of the instance over what neighbours leave of it
}

// Even is a group in which every instance has the same use.
func Even(size, use float64) Crowd { return Crowd{Size: size, Use: use, Own: use} }

// mostServers bounds the servers of a station, and with them the time that a prediction takes. More servers count as so many: then requests
// wait 5% of their service time at a use of 0.9.
const mostServers = 64

// WaitFactor returns how long requests wait in M/M/m, as a multiple of their service time: ErlangC(m, m u) / (m (1-u)). Between whole
// numbers of servers its logarithm is linear in m. With one server it is u/(1-u). It is +Inf from a use of 1 on. Fewer than one server
// count as one.
func WaitFactor(servers, use float64) float64 {
	switch {
	case !(use > 0):
		return 0
	case use >= 1:
		return math.Inf(1)
	}
	servers = min(max(servers, 1), mostServers)
	whole := math.Floor(servers)
	offered := servers * use
	low, high := erlang(whole, use)
	if part := servers - whole; part > 0 && offered > 0 {
		return math.Exp((1-part)*math.Log(low) + part*math.Log(high))
	}
	return low
}

// erlang returns the waiting factors of M/M/m with m and m+1 servers at the same use (Erlang's C formula, by the recursion for blocking).
func erlang(m, use float64) (low, high float64) {
	return erlangC(m, use), erlangC(m+1, use)
}

func erlangC(m, use float64) float64 {
	blocked, offered := 1.0, m*use
	for k := 1.0; k <= m; k++ {
		blocked = offered * blocked / (k + offered*blocked)
	}
	return blocked / (1 - use*(1-blocked)) / (m * (1 - use))
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

// RatioCurve is the ratio of a metric to the mean as a function of slowness: End - (End - Start) / s^1.5. It begins where the sizes of
// requests put it, and ends at that of the exponential distribution, which waiting times have when most requests wait. If sizes spread
// more than that, it is Start everywhere.
type RatioCurve struct{ Start, End float64 }

// ratioBend is the power of slowness by which the ratio approaches its end. It was fitted to the simulator.
const ratioBend = 1.5

// exponentialRatio are the ratios of metrics to the mean in an exponential distribution.
var exponentialRatio = map[quell.Metric]float64{
	quell.Mean: 1, quell.P50: math.Ln2, quell.P90: math.Log(10), quell.P95: math.Log(20), quell.P99: math.Log(100),
}

// RatioOf returns the curve of a metric whose ratio to the mean is start without load.
func RatioOf(m quell.Metric, start float64) RatioCurve {
	end := exponentialRatio[m]
	switch {
	case m == quell.Mean:
		start = 1
	case m != quell.P50:
		end = max(start, end)
	}
	return RatioCurve{start, end}
}

// At returns the ratio at a slowness of at least 1.
func (r RatioCurve) At(slowness float64) float64 {
	return r.End - (r.End-r.Start)*math.Pow(max(slowness, 1), -ratioBend)
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
