package stats

import (
	"math"
	"slices"
)

// Recursive is a linear regression that takes one row after the other and forgets old ones: recursive least squares with a forgetting
// factor (Ljung and Söderström 1983, section 2.6). Its zero value has no rows. It is a value: With returns a changed copy.
type Recursive struct {
	Coefficients []float64 `json:"coefficients,omitempty"` // constant first
	Covariance   []float64 `json:"covariance,omitempty"`   // row by row
	Rows         int       `json:"rows,omitempty"`
	Square       float64   `json:"square,omitempty"`  // mean squared error of predictions, with forgetting
	Outside      int       `json:"outside,omitempty"` // consecutive rows far from their predictions
	Moments      moments2  `json:"moments,omitzero"`
}

// moments2 are sums over rows, with forgetting, of the first variable x and of y.
type moments2 struct {
	N  float64 `json:"n"`
	X  float64 `json:"x"`
	Y  float64 `json:"y"`
	XX float64 `json:"xx"`
	YY float64 `json:"yy"`
	XY float64 `json:"xy"`
}

// Constants of Recursive.
const (
	vague     = 1e4 // variance of a coefficient of which nothing is known
	farRows   = 6   // after this many consecutive rows far from their predictions, the regression begins anew from there
	farErrors = 4   // a row is far if its error is this many times the usual one
	usualRows = 10  // rows after which the usual error is known
)

// With returns the regression after one more row: y is explained by the variables x. forget, from 0 to 1, is the weight that all earlier
// rows keep. Rows that are not finite, or have another number of variables than the first one, change nothing.
func (r Recursive) With(x []float64, y, forget float64) Recursive {
	row := append([]float64{1}, x...)
	if len(r.Coefficients) != 0 && len(r.Coefficients) != len(row) || !finite(row...) || !finite(y) {
		return r
	}
	n := len(row)
	next := r
	next.Coefficients, next.Covariance = make([]float64, n), make([]float64, n*n)
	copy(next.Coefficients, r.Coefficients)
	copy(next.Covariance, r.Covariance)
	if r.Rows == 0 {
		next.know(vague)
	}
	wrong := y - next.predict(row)
	next.judge(wrong, 1+next.variance(row), forget)

	// gain = P row / (forget + row' P row); coefficients += gain * error; P = (P - gain row' P) / forget.
	weighted := make([]float64, n)
	norm := forget
	for i := range n {
		for j := range n {
			weighted[i] += next.Covariance[i*n+j] * row[j]
		}
		norm += row[i] * weighted[i]
	}
	for i := range n {
		next.Coefficients[i] += weighted[i] / norm * wrong
		for j := range n {
			next.Covariance[i*n+j] -= weighted[i] * weighted[j] / norm
		}
	}
	next.forgetUnlessVague(forget)
	next.Rows++
	if len(x) > 0 {
		next.Moments = next.Moments.with(x[0], y, forget)
	}
	return next
}

// forgetUnlessVague raises the variances, so that new rows count more. Rows that are all alike must not let them grow without bound.
func (r *Recursive) forgetUnlessVague(forget float64) {
	n, trace := len(r.Coefficients), 0.0
	for i := range n {
		trace += r.Covariance[i*n+i]
	}
	if trace > forget*vague*float64(n) {
		return
	}
	for i := range r.Covariance {
		r.Covariance[i] /= forget
	}
}

// know sets the variance of all coefficients.
func (r *Recursive) know(variance float64) {
	clear(r.Covariance)
	for i := range r.Coefficients {
		r.Covariance[i*len(r.Coefficients)+i] = variance
	}
}

// variance returns that of a prediction, as a multiple of the variance of single rows: large where nothing was seen yet.
func (r *Recursive) variance(row []float64) (v float64) {
	n := len(row)
	for i := range n {
		for j := range n {
			v += row[i] * r.Covariance[i*n+j] * row[j]
		}
	}
	return max(v, 0)
}

// judge updates the usual error. If rows are far off several times in a row, what was learned counts no more than a guess. expected is the
// variance of this error over the usual one: a first row from elsewhere may be far off, and is no change.
func (r *Recursive) judge(wrong, expected, forget float64) {
	far := r.Rows >= usualRows && wrong*wrong > farErrors*farErrors*r.Square*expected && math.Abs(wrong) > 1e-6
	if !far {
		r.Outside = 0
	} else if r.Outside++; r.Outside >= farRows {
		r.know(vague)
		r.Outside, r.Rows, r.Square, r.Moments = 0, 1, 0, moments2{}
		return
	}
	if r.Rows > 0 && !far {
		weight := max(1-forget, 1/float64(r.Rows))
		r.Square += weight * (wrong*wrong/expected - r.Square)
	}
}

// Predict returns y for the variables x; ok is false without rows, or with another number of variables.
func (r Recursive) Predict(x []float64) (y float64, ok bool) {
	if r.Rows == 0 || len(x)+1 != len(r.Coefficients) {
		return 0, false
	}
	return r.predict(append([]float64{1}, x...)), true
}

func (r Recursive) predict(row []float64) (y float64) {
	for i, c := range r.Coefficients {
		y += c * row[i]
	}
	return y
}

// Error is the root of the mean squared error of the predictions of rows that were not known yet.
func (r Recursive) Error() float64 { return math.Sqrt(r.Square) }

// Correlation is Pearson's coefficient of the first variable and y, with forgetting (ACS, Eq. 9); ok is false if one of them is constant.
func (r Recursive) Correlation() (c float64, ok bool) {
	m := r.Moments
	xx, yy := m.N*m.XX-m.X*m.X, m.N*m.YY-m.Y*m.Y
	if xx <= 1e-12*m.N*m.XX || yy <= 1e-12*m.N*m.YY || m.N == 0 {
		return 0, false
	}
	return min(1, max(-1, (m.N*m.XY-m.X*m.Y)/math.Sqrt(xx*yy))), true
}

func (m moments2) with(x, y, forget float64) moments2 {
	return moments2{forget*m.N + 1, forget*m.X + x, forget*m.Y + y, forget*m.XX + x*x, forget*m.YY + y*y, forget*m.XY + x*y}
}

func finite(list ...float64) bool {
	return !slices.ContainsFunc(list, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}
