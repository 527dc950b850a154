package rivals

import (
	"math"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/setting"
)

// CurvePoint is one observation of an instance: requests per second, and the mean response time of N requests.
type CurvePoint struct {
	At   time.Time `json:"at"`
	Rate float64   `json:"rate"`
	MS   float64   `json:"ms"`
	N    int       `json:"n,omitempty"` // 0: unknown, counts as 1
}

// knapsackInstance is what knapsack remembers of an instance.
type knapsackInstance struct {
	Curve []CurvePoint `json:"curve,omitempty"` // the newest observations, oldest first
}

func knapsackOf(m *policy.Member) *knapsackInstance { return policy.MemoryOf[knapsackInstance](m) }

// Constants of learning the curves.
const (
	pointsKept   = 12
	pointFades   = 0.8 // weight of each point as a fraction of the weight of the next newer one
	priorSpread  = 0.1 // spread of rates, as a fraction of their mean, at which data and prior have equal weight
	steepest     = 5.0 // limits of beta
	flattest     = 0.05
	exploring    = 0.05 // lowest share, as a fraction of an equal one: an instance without requests gives no data
	fullCapacity = 0.95 // load, as a fraction of the curves' total capacity, above which shares follow capacity alone
)

// KnapsackSettings are the settings of knapsack.
type KnapsackSettings struct {
	Tolerance float64 // no weight changes by less than this fraction of itself
}

var Knapsack = policy.Spec[KnapsackSettings]{
	Name: "knapsack", About: "weights by latency curves that are learned in place, on a group of fixed size, like KnapsackLB",
	Scope:    policy.ServiceScope,
	Defaults: KnapsackSettings{Tolerance: 0.05},
	Keys:     func(s *KnapsackSettings) setting.Table { return setting.Table{policy.ToleranceKey(&s.Tolerance)} },
	Instance: policy.Empty[knapsackInstance],
	Decide:   knapsack,
}

// knapsack is like KnapsackLB (Gandhi and Narayana, 2023). It learns how each instance's latency grows with its load,
// and chooses the weights that minimise the predicted mean latency of all requests. It does not scale the group. It
// differs from the original in three points: it learns from the balancer's readings instead of probes at special
// weights; the curve is a/(1-bx) instead of a polynomial; and the solution is exact for such curves instead of an
// integer program.
func knapsack(in *policy.Input, set KnapsackSettings, g *policy.Group, _ *policy.State) quell.Plan {
	policy.RememberedOf[knapsackInstance](g)
	var plan quell.Plan
	for i := range g.Members {
		learnCurve(&g.Members[i])
	}
	rate := offered(in, g)
	if shares := minimising(g, rate); rate > 0 {
		shift(g, &plan, shares, set.Tolerance, "weights that minimise the mean response time predicted for %.1f requests/s", rate)
	}
	return plan
}

// learnCurve adds the newest observation of a ready instance to its points. A restarted instance begins without
// points.
func learnCurve(m *policy.Member) {
	if m.State != quell.Ready {
		knapsackOf(m).Curve = nil
		return
	}
	if !m.Fresh || m.Failing || m.Observation.RequestRate == nil || *m.Observation.RequestRate <= 0 {
		return
	}
	ms, ok := m.Observation.LatencyMS.Of(quell.Mean)
	old := knapsackOf(m).Curve
	if !ok || ms <= 0 || len(old) > 0 && m.Observation.At.Equal(old[len(old)-1].At) {
		return
	}
	recent := old[max(0, len(old)-pointsKept+1):]
	points := make([]CurvePoint, 0, len(recent)+1)
	knapsackOf(m).Curve = append(append(points, recent...),
		CurvePoint{m.Observation.At, *m.Observation.RequestRate, ms, m.Observation.LatencyMS.N})
}

// offered returns the number of requests per second that the group gets.
func offered(in *policy.Input, g *policy.Group) float64 {
	if in.Snapshot.ArrivalRate != nil {
		return *in.Snapshot.ArrivalRate
	}
	var sum float64
	for _, m := range g.Ready {
		if n := len(knapsackOf(m).Curve); n > 0 {
			sum += knapsackOf(m).Curve[n-1].Rate
		}
	}
	return sum
}

// latencyCurve predicts 1/(alpha - beta*rate) seconds: a/(1-bx) with a = 1/alpha and b = beta/alpha. The instance can
// carry up to alpha/beta requests per second.
type latencyCurve struct{ alpha, beta float64 }

// fitCurve is a least-squares fit of 1/latency = alpha - beta*rate, which is linear. Points are weighted by their
// requests, newer ones more. A single server under processor sharing has beta = 1 exactly, whatever its neighbours use.
// That value is the prior, because points at similar rates do not determine beta.
func fitCurve(points []CurvePoint) latencyCurve {
	var n, x, y float64
	weight := 1.0
	for i := len(points) - 1; i >= 0; i-- {
		w := weight * points[i].requests()
		n, x, y = n+w, x+w*points[i].Rate, y+w*1000/points[i].MS
		weight *= pointFades
	}
	x, y = x/n, y/n
	var xx, xy float64
	weight = 1
	for i := len(points) - 1; i >= 0; i-- {
		dx, w := points[i].Rate-x, weight*points[i].requests()
		xx, xy = xx+w*dx*dx, xy+w*dx*(1000/points[i].MS-y)
		weight *= pointFades
	}
	prior := n * (priorSpread * x) * (priorSpread * x)
	beta := 1.0
	if xx+prior > 0 {
		beta = math.Min(math.Max((prior-xy)/(xx+prior), flattest), steepest)
	}
	return latencyCurve{alpha: y + beta*x, beta: beta}
}

func (p *CurvePoint) requests() float64 { return float64(max(1, p.N)) }

// minimising returns the shares of the ready instances that minimise the predicted mean latency at a total rate.
// Instances without a curve get an equal share.
func minimising(g *policy.Group, rate float64) []float64 {
	n := float64(len(g.Ready))
	curves, shares := make([]latencyCurve, len(g.Ready)), make([]float64, len(g.Ready))
	rest := 0.0
	for i, m := range g.Ready {
		if len(knapsackOf(m).Curve) > 0 {
			curves[i] = fitCurve(knapsackOf(m).Curve)
			rest += 1 / n
		}
	}
	rates, sum := leastLatency(curves, rate*rest), 0.0
	for i := range g.Ready {
		shares[i] = 1 / n
		if curves[i].alpha > 0 && rate > 0 {
			shares[i] = math.Max(rates[i]/rate, exploring/n)
		}
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

// leastLatency divides a rate over curves so that the sum of rate_i * latency_i(rate_i) is minimal; curves without an
// alpha get nothing. At the minimum the slopes alpha/(alpha-beta*x)^2 are equal, so x = (alpha - sqrt(alpha)*s)/beta for
// one s, which is found by bisection.
func leastLatency(curves []latencyCurve, rate float64) []float64 {
	rates := make([]float64, len(curves))
	fill := func(s float64) (sum float64) {
		for i, c := range curves {
			if c.alpha > 0 {
				rates[i] = math.Max(0, c.alpha-math.Sqrt(c.alpha)*s) / c.beta
				sum += rates[i]
			}
		}
		return sum
	}
	capacity := fill(0)
	if rate >= fullCapacity*capacity {
		for i := range rates {
			if capacity > 0 {
				rates[i] *= rate / capacity
			}
		}
		return rates
	}
	low, high := 0.0, 0.0
	for _, c := range curves {
		high = math.Max(high, math.Sqrt(c.alpha))
	}
	for range 60 {
		if middle := (low + high) / 2; fill(middle) > rate {
			low = middle
		} else {
			high = middle
		}
	}
	fill(low)
	return rates
}

// shift plans the shares if they differ enough from those that are planned, and says why.
func shift(g *policy.Group, plan *quell.Plan, shares []float64, tolerance float64, why string, args ...any) {
	if !moves(g, shares, tolerance) {
		return
	}
	for i, m := range g.Ready {
		m.Planned = shares[i]
	}
	policy.AddReason(plan, "shift", "", why, args...)
}

// moves returns whether some share would change by more than the tolerance, which is a fraction of that share.
func moves(g *policy.Group, shares []float64, tolerance float64) bool {
	for i, m := range g.Ready {
		if math.Abs(shares[i]-m.Planned) > tolerance*m.Planned {
			return true
		}
	}
	return false
}
