package policy

import "math"

// fraction is one instance's part of the traffic: what is wanted, and between which bounds it must lie.
type fraction struct{ want, low, high float64 }

// leastScale is the wanted fraction, of an equal one, below which all fractions count alike in nearest.
const leastScale = 1e-9

// How near to 1 a sum must come that is searched for, and how far the bounds, or what is wanted, may be off: there rounding
// is no reason to move anything.
const (
	exactly = 1e-12
	nearly  = 1e-10
)

// rounds bounds the search of nearest. It ends after a few; halving alone would need about 100.
const rounds = 200

// nearest returns the fractions within their bounds that sum to 1 and are nearest to what is wanted. The distance is the
// sum of (x - want)² / want: a change counts by how much it changes an instance's load, so what is to be spread goes to
// the instances in proportion to what they were to have, and nothing to those that were to have nothing. At the least,
// x = want + want * s within the bounds, for one s. It returns false if no fractions within the bounds sum to 1.
func nearest(fractions []fraction) ([]float64, bool) {
	if !feasible(fractions) {
		return nil, false
	}
	x := make([]float64, len(fractions))
	least := leastScale / float64(len(fractions))
	from, to := 0.0, 0.0
	for _, f := range fractions {
		scale := math.Max(f.want, least)
		from, to = math.Min(from, (f.low-f.want)/scale), math.Max(to, (f.high-f.want)/scale)
	}
	s := 0.0
	for i := range rounds {
		sum, slope := moveBy(x, fractions, s, least)
		if whole := math.Abs(sum - 1); whole < exactly || i == 0 && whole < nearly {
			break
		}
		if sum < 1 {
			from = s
		} else {
			to = s
		}
		// Newton's step is exact where no more bounds are met. Every other one of many halves the interval instead.
		if next := s + (1-sum)/slope; slope > 0 && next > from && next < to && (i < 10 || i%2 == 0) {
			s = next
		} else {
			s = (from + to) / 2
		}
	}
	return x, true
}

// moveBy sets x for one s, and returns the sum and how fast it grows with s.
func moveBy(x []float64, fractions []fraction, s, least float64) (sum, slope float64) {
	for i, f := range fractions {
		scale := math.Max(f.want, least)
		x[i] = f.want + s*scale
		switch {
		case x[i] <= f.low:
			x[i] = f.low
		case x[i] >= f.high:
			x[i] = f.high
		default:
			slope += scale
		}
		sum += x[i]
	}
	return sum, slope
}

// feasible says whether fractions within these bounds can sum to 1.
func feasible(fractions []fraction) bool {
	var low, high float64
	for _, f := range fractions {
		if f.low > f.high {
			return false
		}
		low, high = low+f.low, high+f.high
	}
	return low <= 1+nearly && high >= 1-nearly
}
