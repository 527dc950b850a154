package model

import (
	"math"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// Crowd is a group as one of its instances sees it.
type Crowd struct {
	Size float64 // n: instances that share the load, at least 1
	Use  float64 // the load of the group over what neighbours leave of all its instances
	Own  float64 // the load of the instance over what neighbours leave of it
}

// Even is a group in which every instance has the same use.
func Even(size, use float64) Crowd { return Crowd{Size: size, Use: use, Own: use} }

// maxServers bounds the servers of a station, and with them the time that a prediction takes. More servers count as so many: then requests
// wait 5% of their service time at a use of 0.9.
const maxServers = 64

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
	servers = min(max(servers, 1), maxServers)
	whole := math.Floor(servers)
	low, part := stats.ErlangC(whole, use), servers-whole
	if part == 0 {
		return low
	}
	return math.Exp((1-part)*math.Log(low) + part*math.Log(stats.ErlangC(whole+1, use)))
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
