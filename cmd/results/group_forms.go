package main

import (
	"math"

	"github.com/quellhq/quell/model"
)

// groupForm is a form that the mean response time of a group may have: the slowness, times R0, which is fitted as well.
type groupForm struct {
	Name     string
	Formula  string
	grid     [][]float64 // values of each parameter that are tried
	slowness func(n, use float64, p []float64) float64
}

// groupForms are the forms that are compared, from the one with the least parameters.
var groupForms = []groupForm{
	{"single", "(1 + E(1, u))^k: each instance for itself", [][]float64{between(0.05, 1.5)},
		func(_, use float64, p []float64) float64 { return math.Pow(1+model.WaitFactor(1, use), p[0]) }},
	{"station", "1 + E(n^g, u)", [][]float64{between(0, 1)},
		func(n, use float64, p []float64) float64 { return 1 + model.WaitFactor(math.Pow(n, p[0]), use) }},
	{"closed", "1 + S(n^g, u), S in Sakasegawa's closed form", [][]float64{between(0, 1)},
		func(n, use float64, p []float64) float64 {
			m := math.Pow(n, p[0])
			return 1 + math.Pow(use, math.Sqrt(2*(m+1))-1)/(m*(1-use))
		}},
	{"blend", "1 + E(1, u)^(1-g) E(n, u)^g", [][]float64{between(0, 1)},
		func(n, use float64, p []float64) float64 {
			return 1 + math.Pow(model.WaitFactor(1, use), 1-p[0])*math.Pow(model.WaitFactor(n, use), p[0])
		}},
	{"part", "1 + w E(n^g, u)", [][]float64{between(0, 1), between(0.3, 1.5)},
		func(n, use float64, p []float64) float64 { return 1 + p[1]*model.WaitFactor(math.Pow(n, p[0]), use) }},
	{"power", "(1 + E(n^g, u))^k", [][]float64{between(0, 1), between(0.3, 1.5)},
		func(n, use float64, p []float64) float64 {
			return math.Pow(1+model.WaitFactor(math.Pow(n, p[0]), use), p[1])
		}},
}

// between lists values in steps of 0.05.
func between(low, high float64) (list []float64) {
	for i := 0; low+float64(i)*0.05 < high+0.025; i++ {
		list = append(list, math.Round(100*(low+float64(i)*0.05))/100)
	}
	return list
}

// groupFit is a form fitted to the mean response times of some groups.
type groupFit struct {
	Form        *groupForm
	R0MS        float64
	Parameters  []float64
	Mean, Worst float64 // error of a mean response time, as a fraction
}

// fit finds the parameters with the least squared error of the logarithm of the mean, and R0 with them.
func (f *groupForm) fit(cells []groupCell) (best groupFit) {
	least := math.Inf(1)
	p := make([]float64, len(f.grid))
	var try func(i int)
	try = func(i int) {
		if i < len(p) {
			for _, p[i] = range f.grid[i] {
				try(i + 1)
			}
			return
		}
		var sum, squares float64
		for j := range cells {
			e := f.error(&cells[j], 1, p)
			sum, squares = sum+e, squares+e*e
		}
		n := float64(len(cells))
		if left := squares - sum*sum/n; left < least {
			least, best = left, groupFit{Form: f, R0MS: math.Exp(sum / n), Parameters: append([]float64(nil), p...)}
		}
	}
	try(0)
	for j := range cells {
		e := math.Abs(math.Expm1(-f.error(&cells[j], best.R0MS, best.Parameters)))
		best.Mean, best.Worst = best.Mean+e/float64(len(cells)), math.Max(best.Worst, e)
	}
	return best
}

// error is the logarithm of what was measured over what the form gives.
func (f *groupForm) error(c *groupCell, r0 float64, p []float64) float64 {
	return math.Log(*c.Answer.Mean / (r0 * f.slowness(float64(c.Size), c.Use, p)))
}
