package policy

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// tailShares returns the fractions of the arrivals, in requests per second, that make the tail of the response time shortest (DIAL,
// section II-C), for instances that can serve at most these rates; they sum to 1. overload says that the arrivals are no less than the
// rates together: then no fractions keep all queues short, and they are in proportion to the rates. Without arrivals there is nothing to
// choose by, and none are returned. Rates must be finite and not below 0, and some above 0.
//
// The derivation, which the paper leaves out: an instance is taken for an M/M/1 queue, whose response times have the quantile q of
// -ln(1-q) / (r - x) at x requests per second. Eq. 2 is the mean of that over requests, so that with x = a p the problem is
//
//	minimise  sum x / (r - x)   where   sum x = a,  0 <= x < r
//
// whatever the quantile. The sum is convex. At its least, what one more request per second costs, r / (r - x)², is the same for all
// instances that have requests, say 1/m², and no less, 1/r >= 1/m², for the others. So
//
//	x = r - m sqrt(r)   where sqrt(r) > m,   else 0
//	m = (sum r - a) / sum sqrt(r)   over the instances that have requests
//
// which is Eq. 3 if all of them have. At low load Eq. 3 alone gives slow instances less than nothing: they have none. As instances come in
// the order of their rates, adding the next one is right as long as its sqrt(r) is above m. As a nears the sum of the rates, m nears 0 and
// the fractions those under overload; as a nears 0 all requests go to the fastest.
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

// spareRoot is m above.
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
