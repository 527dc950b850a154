package model

import (
	"math"
	"slices"

	"github.com/quellhq/quell/stats"
)

// curve is a non-decreasing piecewise-linear function on [0, inf). The first knot is at 0. Each knot has the slope of the
// piece that begins there. The piece that begins at the last knot never ends.
type curve []knot

type knot struct{ x, y, slope float64 }

// maxSlope limits slopes, so that predictions stay finite if two rows have almost the same x.
const maxSlope = 1e15

func slope(dx, dy float64) float64 { return min(dy/dx, maxSlope) }

// levelCurve makes a curve from one level of a table by the documented rules. Isotonic regression, weighted by runs, makes y
// non-decreasing in x. The curve is linear between rows and constant below the first row. Above the last row it continues
// with the last segment's slope, or with the slope from the first to the last row if that is larger.
func levelCurve(rows []point) curve {
	rows = pooled(slices.Clone(rows))
	values := make([]stats.Weighted, len(rows))
	for i, r := range rows {
		values[i] = stats.Weighted{Value: r.y, Weight: r.weight}
	}
	c := make(curve, len(rows))
	for i, y := range stats.Isotonic(values) {
		c[i] = knot{x: rows[i].x, y: y}
	}
	c.flatten()
	c.connect()
	if last := len(c) - 1; last > 0 {
		secant := slope(c[last].x-c[0].x, c[last].y-c[0].y)
		c[last].slope = max(c[last].slope, secant)
	}
	if c[0].x > 0 {
		c = slices.Insert(c, 0, knot{x: 0, y: c[0].y})
	}
	return c
}

// connect computes the slopes from the knots; the last slope continues for ever.
func (c curve) connect() {
	for i := range len(c) - 1 {
		c[i].slope = slope(c[i+1].x-c[i].x, c[i+1].y-c[i].y)
	}
	if n := len(c); n > 1 {
		c[n-1].slope = c[n-2].slope
	}
}

// flatten takes away increases that are only rounding: on a flat piece that seems to rise, the largest x of a value would be its beginning.
func (c curve) flatten() {
	for i := 1; i < len(c); i++ {
		if c[i].y-c[i-1].y <= rounding*max(1, c[i].y) {
			c[i].y = c[i-1].y
		}
	}
}

// rounding is the relative difference up to which two values of a curve are the same.
const rounding = 1e-12

// piece returns the index of the piece that x >= 0 lies on.
func (c curve) piece(x float64) int {
	low, high := 0, len(c)
	for high-low > 1 {
		if mid := int(uint(low+high) >> 1); c[mid].x <= x {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

func (c curve) at(x float64) float64 {
	k := &c[c.piece(x)]
	return k.y + k.slope*(x-k.x)
}

// envelope returns the larger of two curves everywhere.
func envelope(c, d curve) curve {
	var out curve
	add := func(x float64) {
		out = append(out, knot{x: x, y: max(c.at(x), d.at(x))})
	}
	grid := unionX(c, d)
	for i, x := range grid {
		if i > 0 {
			if cross, ok := crossing(c, d, grid[i-1], x); ok {
				add(cross)
			}
		}
		add(x)
	}
	last := grid[len(grid)-1]
	if cross, ok := crossing(c, d, last, maxValue); ok {
		add(cross)
	}
	out.flatten()
	out.connect()
	out[len(out)-1].slope = steepest(c, d, out[len(out)-1].x)
	return out
}

// crossing returns the x between a and b at which two curves cross, and whether there is one. Between a and b both curves must be straight.
func crossing(c, d curve, a, b float64) (float64, bool) {
	before, after := c.at(a)-d.at(a), c.at(b)-d.at(b)
	if !(before < 0 && after > 0 || before > 0 && after < 0) {
		return 0, false
	}
	x := a + before/(before-after)*(b-a)
	return x, x > a && x < b
}

// steepest returns the slope of the larger of two curves beyond x. There must be no knot and no crossing beyond x.
func steepest(c, d curve, x float64) float64 {
	beyond := max(2*x, maxValue)
	if c.at(beyond) >= d.at(beyond) {
		return c[len(c)-1].slope
	}
	return d[len(d)-1].slope
}

// unionX returns the x of all knots of two curves in increasing order, each once.
func unionX(c, d curve) []float64 {
	xs := make([]float64, 0, len(c)+len(d))
	for _, k := range slices.Concat(c, d) {
		xs = append(xs, k.x)
	}
	slices.Sort(xs)
	return slices.Compact(xs)
}

// totalCurve makes the inverse of the paper's U_total = IM(SF), Eq. 3, from interference rows: severity as a function of
// total utilisation. Its points are the origin and the rows with severity > 0, in order of severity. Neighbouring rows that
// do not increase in both variables are pooled at their means, weighted by runs. Without such rows the curve is nil.
func totalCurve(rows []Interference) curve {
	var points []point // x severity, y total
	for _, r := range rows {
		if r.Severity > 0 {
			points = append(points, point{r.Severity, r.Utilization + r.Interfering, weightOf(r.Runs)})
		}
	}
	if len(points) == 0 {
		return nil
	}
	kept := []point{}
	for _, p := range pooled(points) {
		kept = append(kept, p)
		for n := len(kept); n > 1 && kept[n-1].y <= kept[n-2].y; n = len(kept) {
			kept = append(kept[:n-2], merge(kept[n-2], kept[n-1]))
		}
	}
	c := curve{{}}
	for _, p := range kept {
		c = append(c, knot{x: p.y, y: p.x})
	}
	c.connect()
	return c
}

// inverse returns the largest x at which the curve is at most y, or +Inf if the curve is never above y.
func (c curve) inverse(y float64) float64 {
	i := 0
	for low, high := 0, len(c); high-low > 1; {
		if mid := int(uint(low+high) >> 1); c[mid].y <= y {
			low, i = mid, mid
		} else {
			high = mid
		}
	}
	if c[i].slope == 0 {
		return math.Inf(1)
	}
	return c[i].x + (y-c[i].y)/c[i].slope
}
