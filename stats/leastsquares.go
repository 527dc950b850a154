package stats

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// ErrUndetermined is the error of a regression whose rows do not determine its coefficients.
var ErrUndetermined = errors.New("the rows do not determine the coefficients")

// LeastSquares returns the coefficients x that minimise the sum of squares of A x - b, where x[j] >= 0 for every column j unless it is
// listed as free (Lawson and Hanson 1974, chapter 23). Each row of A is an example. Numbers that are not finite are an error. If free
// columns depend linearly on each other, the error is ErrUndetermined; if other columns do, some of their coefficients are 0.
func LeastSquares(a [][]float64, b []float64, free ...int) ([]float64, error) {
	p, err := newProblem(a, b)
	if err != nil {
		return nil, err
	}
	for _, j := range free {
		p.inside[j] = true
	}
	if len(free) > 0 {
		if !p.solve(p.inside) {
			return nil, ErrUndetermined
		}
		copy(p.x, p.next)
	}
	isFree := append([]bool(nil), p.inside...)
	refused := make([]bool, len(p.x)) // columns whose coefficient would not rise above 0, until x changes
	for {
		j := p.steepest(refused)
		if j < 0 {
			return p.unscaled(), nil
		}
		if p.inside[j] = true; !p.solve(p.inside) || p.next[j] <= 0 {
			p.inside[j], refused[j] = false, true
			continue
		}
		clear(refused)
		if !p.backInside(isFree) {
			return nil, ErrUndetermined
		}
	}
}

// problem is a least-squares problem whose columns are scaled to length 1.
type problem struct {
	a       *mat.Dense
	b       []float64
	scale   []float64 // length of each column as it was given
	x, next []float64
	inside  []bool // columns whose coefficients are not fixed at 0
}

func newProblem(a [][]float64, b []float64) (*problem, error) {
	if len(a) == 0 || len(a) != len(b) {
		return nil, fmt.Errorf("%d rows for %d values", len(a), len(b))
	}
	n := len(a[0])
	p := &problem{a: mat.NewDense(len(a), n, nil), b: b, scale: make([]float64, n), x: make([]float64, n), next: make([]float64, n),
		inside: make([]bool, n)}
	for i, row := range a {
		if len(row) != n {
			return nil, fmt.Errorf("row %d has %d columns, the first one %d", i+1, len(row), n)
		}
		for _, v := range append([]float64{b[i]}, row...) {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("row %d holds %v", i+1, v)
			}
		}
		p.a.SetRow(i, row)
	}
	for j := range n {
		column := mat.Col(nil, j, p.a)
		if p.scale[j] = floats.Norm(column, 2); p.scale[j] > 0 {
			floats.Scale(1/p.scale[j], column)
			p.a.SetCol(j, column)
		}
	}
	return p, nil
}

// solve sets next to the least-squares solution over some of the columns. It returns false if they depend on each other.
func (p *problem) solve(columns []bool) bool {
	rows, _ := p.a.Dims()
	var used []int
	for j, in := range columns {
		if in {
			used = append(used, j)
		}
	}
	if len(used) > rows {
		return false
	}
	part := mat.NewDense(rows, len(used), nil)
	for k, j := range used {
		part.SetCol(k, mat.Col(nil, j, p.a))
	}
	var qr mat.QR
	qr.Factorize(part)
	if qr.Cond() > dependent {
		return false
	}
	var x mat.VecDense
	if qr.SolveVecTo(&x, false, mat.NewVecDense(rows, p.b)) != nil {
		return false
	}
	clear(p.next)
	for k, j := range used {
		p.next[j] = x.AtVec(k)
	}
	return true
}

// dependent is a condition number. Columns of length 1 with a higher one count as dependent on each other.
const dependent = 1e10

// steepest returns the column with coefficient 0 that lowers the sum of squares fastest, or -1 if none lowers it.
func (p *problem) steepest(refused []bool) int {
	residual := append([]float64(nil), p.b...)
	rows, n := p.a.Dims()
	for i := range rows {
		residual[i] -= floats.Dot(p.a.RawRowView(i), p.x)
	}
	best, most := -1, 1e-11*floats.Norm(p.b, 2)
	for j := range n {
		if p.inside[j] || refused[j] {
			continue
		}
		if slope := floats.Dot(mat.Col(nil, j, p.a), residual); slope > most {
			best, most = j, slope
		}
	}
	return best
}

// backInside moves x to the least-squares solution. If a coefficient would go below 0 on the way, it is fixed at 0; this repeats until
// none would.
func (p *problem) backInside(free []bool) bool {
	for {
		step := 1.0
		for j, in := range p.inside {
			if in && !free[j] && p.next[j] <= 0 {
				step = math.Min(step, p.x[j]/(p.x[j]-p.next[j]))
			}
		}
		for j := range p.x {
			p.x[j] += step * (p.next[j] - p.x[j])
		}
		if step == 1 {
			return true
		}
		for j, in := range p.inside {
			if in && !free[j] && p.next[j] <= 0 && p.x[j] <= 1e-14*math.Abs(p.next[j]) {
				p.inside[j], p.x[j] = false, 0
			}
		}
		if !p.solve(p.inside) {
			return false
		}
	}
}

// unscaled returns the coefficients of the columns as they were given.
func (p *problem) unscaled() []float64 {
	x := make([]float64, len(p.x))
	for j, v := range p.x {
		if p.scale[j] > 0 {
			x[j] = v / p.scale[j]
		}
	}
	return x
}
