package policy

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// tailShares returns the share of the arrivals that each instance should get so that the tail of the response time is shortest (DIAL,
// section II-C). The shares sum to 1. Arrivals and rates are in requests per second; rates are the most that each instance can serve. If
// the arrivals are not less than the sum of the rates, no shares keep all queues short: then overload is true, and the shares are in
// proportion to the rates. If there are no arrivals, it returns no shares. Rates must be finite and at least 0, and one must be above 0.
//
// The paper leaves out the derivation. An instance is modelled as an M/M/1 queue: at x requests per second, the quantile q of its response
// times is -ln(1-q) / (r - x). Eq. 2 is the mean of that over all requests. With x = a p, where a are the arrivals and p is the share, the
// problem is
//
//	minimise  sum x / (r - x)   where   sum x = a,  0 <= x < r
//
// for every quantile. The sum is convex. At its minimum, the cost of one more request per second, r / (r - x)², has the same value, say
// 1/m², for all instances that have requests. For the others this cost, 1/r, is at least 1/m². So
//
//	x = r - m sqrt(r)   where sqrt(r) > m,   else 0
//	m = (sum r - a) / sum sqrt(r)   over the instances that have requests
//
// which is Eq. 3 if all instances have requests. At low load, Eq. 3 alone would give slow instances negative shares; these get none. The
// instances are added in decreasing order of their rates as long as sqrt(r) of the next one is above m. As a approaches the sum of the
// rates, m approaches 0, and the shares approach those under overload. As a approaches 0, all requests go to the fastest instance.
func tailShares(rates []float64, arrivals float64) (shares []float64, overload bool) {
	if !(arrivals > 0) {
		return nil, false
	}
	shares = make([]float64, len(rates))
	all := floats.Sum(rates)
	if arrivals >= all {
		for i, r := range rates {
			shares[i] = r / all
		}
		return shares, true
	}
	m := spareRoot(rates, arrivals)
	for i, r := range rates {
		shares[i] = math.Max(0, r-m*math.Sqrt(r)) / arrivals
	}
	whole := floats.Sum(shares) // 1, but for rounding
	for i := range shares {
		shares[i] /= whole
	}
	return shares, false
}

// spareRoot returns m of the derivation at tailShares.
func spareRoot(rates []float64, arrivals float64) (m float64) {
	fastest := slices.Clone(rates)
	slices.SortFunc(fastest, func(a, b float64) int { return cmp.Compare(b, a) })
	spare, roots := -arrivals, 0.0
	for i, r := range fastest {
		root := math.Sqrt(r)
		if i > 0 && root <= m {
			break
		}
		spare, roots = spare+r, roots+root
		m = spare / roots
	}
	return m
}
