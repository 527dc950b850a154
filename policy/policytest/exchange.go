package policytest

import (
	"math"

	"github.com/quellhq/quell/policy/guard"
)

// ByExchange solves the problem of guard.Nearest by another method. It repeatedly moves traffic between the two instances for which this
// reduces the distance most, until no pair reduces it.
func ByExchange(fractions []guard.Fraction) []float64 {
	n := len(fractions)
	x := make([]float64, n)
	rest := 1.0
	for i, f := range fractions {
		x[i] = f.Low
		rest -= f.Low
	}
	for i, f := range fractions { // any shares within the bounds
		more := math.Min(rest, f.High-f.Low)
		x[i] += more
		rest -= more
	}
	scale := func(i int) float64 { return math.Max(fractions[i].Want, guard.MinScale/float64(n)) }
	slope := func(i int) float64 { return (x[i] - fractions[i].Want) / scale(i) }
	for range 200_000 {
		up, down := -1, -1
		for i, f := range fractions {
			if x[i] < f.High && (up < 0 || slope(i) < slope(up)) {
				up = i
			}
			if x[i] > f.Low && (down < 0 || slope(i) > slope(down)) {
				down = i
			}
		}
		if up < 0 || down < 0 || slope(down)-slope(up) < 1e-9 {
			break
		}
		most := math.Min(fractions[up].High-x[up], x[down]-fractions[down].Low)
		by := math.Min(most, (slope(down)-slope(up))/(1/scale(up)+1/scale(down)))
		x[up] += by
		x[down] -= by
	}
	return x
}
