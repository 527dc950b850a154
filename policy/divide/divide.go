// Package divide divides load among instances of different capacity.
package divide

import "math"

// Rule says how load is divided.
type Rule string

// The rules. Proportional shares are in proportion to capacity. Tail shares make the tail of all response times shortest (Within).
// AtPoint limits the use of instances that have neighbours.
const (
	Proportional Rule = "proportional"
	Tail         Rule = "tail"
	AtPoint      Rule = "set_point"
)

// Queue is an instance as a queue: the most that it can serve, and the bounds of what it may be sent, all in the same unit. No bound is
// above the rate.
type Queue struct{ Rate, Low, High float64 }

// spare returns x of the derivation at Within for one m, within the queue's bounds. root is the square root of the queue's rate.
func (q *Queue) spare(m, root float64) float64 {
	return max(min(q.Rate-m*root, q.High), q.Low)
}

// halvings is how often Within halves the interval in which m lies before it computes m exactly.
const halvings = 60

// Within divides arrivals so that the tail of the response time is shortest (DIAL, section II-C). It returns what each queue gets, within
// its bounds. Arrivals and rates are in the same unit, and the arrivals must be between the sums of the bounds.
//
// The paper leaves out the derivation. An instance is modelled as an M/M/1 queue: at x requests per second, the quantile q of its response
// times is -ln(1-q) / (r - x). Eq. 2 is the mean of that over all requests. With the arrivals a, the problem is
//
//	minimise  sum x / (r - x)   where   sum x = a,  0 <= x < r
//
// for every quantile. The sum is convex. At its minimum, the cost of one more request per second, r / (r - x)², has the same value, say
// 1/m², for all instances that have requests. For the others this cost, 1/r, is at least 1/m². So
//
//	x = r - m sqrt(r)   where sqrt(r) > m,   else 0
//	m = (sum r - a) / sum sqrt(r)   over the instances that have requests
//
// which is Eq. 3 if all instances have requests. At low load, Eq. 3 alone would give slow instances negative shares; these get none. As a
// approaches the sum of the rates, m approaches 0, and the shares approach those in proportion to the rates. As a approaches 0, all
// requests go to the fastest instance.
//
// With bounds, low <= x <= high for each queue, the same cost holds for all queues that are not at a bound, so x = r - m sqrt(r) there for
// one m. The sum of all x never rises with m, so m is found by halving.
func Within(queues []Queue, arrivals float64) []float64 {
	x, roots := make([]float64, len(queues)), make([]float64, len(queues))
	fill := func(m float64) (sum float64) {
		for i := range queues {
			x[i] = queues[i].spare(m, roots[i])
			sum += x[i]
		}
		return sum
	}
	low, high := 0.0, 0.0
	for i, q := range queues {
		roots[i] = math.Sqrt(q.Rate)
		high = max(high, roots[i])
	}
	for range halvings {
		if m := (low + high) / 2; fill(m) > arrivals {
			low = m
		} else {
			high = m
		}
	}
	fill(low)
	left, free := -arrivals, 0.0
	for i, q := range queues {
		if x[i] > q.Low && x[i] < q.High {
			left, free = left+q.Rate, free+roots[i]
		} else {
			left += x[i]
		}
	}
	if free > 0 {
		fill(left / free)
	}
	return x
}
