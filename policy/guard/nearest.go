package guard

import "math"

// Fraction is one instance's part of the traffic: the wanted value and its bounds.
type Fraction struct{ Want, Low, High float64 }

// MinScale is a multiple of an equal fraction. Wanted fractions below it weigh as if they were that large in Nearest.
const MinScale = 1e-9

// Tolerances: how near to 1 a sum must be when searching, and how far bounds or wanted values may be off without a
// correction, because such differences are rounding.
const (
	Exactly = 1e-12
	nearly  = 1e-10
)

// rounds limits the search of Nearest, which usually ends after a few rounds. Bisection alone would need about 100.
const rounds = 200

// Nearest returns the fractions within their bounds that sum to 1 and are nearest to the wanted ones. The distance is
// the sum of (x - want)² / want: a change counts relative to an instance's load, so a surplus goes to the instances in
// proportion to their wanted fractions. At the minimum, x = want + want * s within the bounds, for one s. It returns
// false if no fractions within the bounds sum to 1.
func Nearest(fractions []Fraction) ([]float64, bool) {
	if !feasible(fractions) {
		return nil, false
	}
	x := make([]float64, len(fractions))
	least := MinScale / float64(len(fractions))
	from, to := 0.0, 0.0
	for _, f := range fractions {
		scale := math.Max(f.Want, least)
		from, to = math.Min(from, (f.Low-f.Want)/scale), math.Max(to, (f.High-f.Want)/scale)
	}
	s := 0.0
	for i := range rounds {
		sum, slope := moveBy(x, fractions, s, least)
		if whole := math.Abs(sum - 1); whole < Exactly || i == 0 && whole < nearly {
			break
		}
		if sum < 1 {
			from = s
		} else {
			to = s
		}
		// Newton's step is exact if it reaches no further bound. After ten rounds, every second one halves the interval
		// instead.
		if next := s + (1-sum)/slope; slope > 0 && next > from && next < to && (i < 10 || i%2 == 0) {
			s = next
		} else {
			s = (from + to) / 2
		}
	}
	return x, true
}

// moveBy sets x for one s, and returns the sum and its derivative in s.
func moveBy(x []float64, fractions []Fraction, s, least float64) (sum, slope float64) {
	for i, f := range fractions {
		scale := math.Max(f.Want, least)
		x[i] = f.Want + s*scale
		switch {
		case x[i] <= f.Low:
			x[i] = f.Low
		case x[i] >= f.High:
			x[i] = f.High
		default:
			slope += scale
		}
		sum += x[i]
	}
	return sum, slope
}

// feasible returns whether fractions within these bounds can sum to 1.
func feasible(fractions []Fraction) bool {
	var low, high float64
	for _, f := range fractions {
		if f.Low > f.High {
			return false
		}
		low, high = low+f.Low, high+f.High
	}
	return low <= 1+nearly && high >= 1-nearly
}
