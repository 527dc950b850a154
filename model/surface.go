package model

import (
	"math"
	"slices"
)

// surface is a function of utilisation and of a second variable x >= 0 (severity, or interfering utilisation), read
// from a table with levels of utilisation. It is non-decreasing and piecewise linear in both. The part between two levels
// is a strip. A strip has the knots of both its edges, so that one search finds the patch on which the surface is bilinear.
type surface struct {
	levels []float64 // utilisations, increasing
	strips []strip   // strips[i] is above levels[i]; the last one is the highest level itself
}

type strip struct {
	low     float64 // utilisation of the lower edge
	perUnit float64 // 1 over the distance to the upper edge; 0 at the highest level
	knots   []pair
}

// pair is a knot of both edges of a strip: value and slope at the lower (a) and the upper (b) edge.
type pair struct{ x, a, slopeA, b, slopeB float64 }

// newSurface builds the surface from the rows of each level. The value at a level is the largest of the values at this and
// all lower levels, so that the surface never decreases with utilisation.
func newSurface(levels map[float64][]point) *surface {
	s := &surface{levels: sortedKeys(levels)}
	curves := make([]curve, len(s.levels))
	for i, u := range s.levels {
		curves[i] = levelCurve(levels[u])
		if i > 0 {
			curves[i] = envelope(curves[i-1], curves[i])
		}
	}
	for i, u := range s.levels {
		upper := min(i+1, len(curves)-1)
		st := strip{low: u, knots: pairs(curves[i], curves[upper])}
		if upper > i {
			st.perUnit = slope(s.levels[upper]-u, 1)
		}
		s.strips = append(s.strips, st)
	}
	return s
}

func pairs(lower, upper curve) []pair {
	var out []pair
	for _, x := range unionX(lower, upper) {
		a, b := lower[lower.piece(x)], upper[upper.piece(x)]
		out = append(out, pair{x, lower.at(x), a.slope, upper.at(x), b.slope})
	}
	return out
}

// top is the highest level.
func (s *surface) top() float64 { return s.levels[len(s.levels)-1] }

// at returns the value at u and x >= 0. It is constant in u outside the levels.
func (s *surface) at(u, x float64) float64 {
	st := s.strip(u)
	return st.at(st.share(u), x)
}

// strip returns the strip that contains u, the lowest strip if u is below all levels, or the highest if u is above them.
func (s *surface) strip(u float64) *strip {
	low, high := 0, len(s.levels)
	for high-low > 1 {
		if mid := int(uint(low+high) >> 1); s.levels[mid] <= u {
			low = mid
		} else {
			high = mid
		}
	}
	return &s.strips[low]
}

// share returns the position of u between the lower and the upper edge, 0 to 1.
func (st *strip) share(u float64) float64 { return min(max((u-st.low)*st.perUnit, 0), 1) }

// piece returns the index of the last knot at or below x >= 0.
func (st *strip) piece(x float64) int {
	low, high := 0, len(st.knots)
	for high-low > 1 {
		if mid := int(uint(low+high) >> 1); st.knots[mid].x <= x {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

func (st *strip) at(share, x float64) float64 {
	k := &st.knots[st.piece(x)]
	dx := x - k.x
	return (1-share)*(k.a+k.slopeA*dx) + share*(k.b+k.slopeB*dx)
}

// atKnot is the value at knot i.
func (st *strip) atKnot(share float64, i int) float64 {
	return (1-share)*st.knots[i].a + share*st.knots[i].b
}

// slopeAt is the slope in x after knot i.
func (st *strip) slopeAt(share float64, i int) float64 {
	return (1-share)*st.knots[i].slopeA + share*st.knots[i].slopeB
}

// largest returns the largest x at which the value is at most y, 0 if it is above y everywhere, and +Inf if it never
// exceeds y.
func (st *strip) largest(share, y float64) float64 {
	low, high := -1, len(st.knots)
	for high-low > 1 {
		if mid := int(uint(low+high) >> 1); st.atKnot(share, mid) <= y {
			low = mid
		} else {
			high = mid
		}
	}
	if low < 0 {
		return 0
	}
	return st.reach(share, low, y)
}

// smallest returns the smallest x at which the value is at least y, and +Inf if it never is.
func (st *strip) smallest(share, y float64) float64 {
	i, _ := slices.BinarySearchFunc(st.knots, y, func(k pair, y float64) int {
		if (1-share)*k.a+share*k.b < y {
			return -1
		}
		return 1
	})
	if i == 0 {
		return 0
	}
	return st.reach(share, i-1, y)
}

// reach returns the x at which the piece after knot i reaches y. y must be at least the value at the knot.
func (st *strip) reach(share float64, i int, y float64) float64 {
	slope := st.slopeAt(share, i)
	if slope == 0 {
		return math.Inf(1)
	}
	x := st.knots[i].x + (y-st.atKnot(share, i))/slope
	if i+1 < len(st.knots) {
		x = min(x, st.knots[i+1].x)
	}
	return x
}
