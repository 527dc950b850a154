package stats

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Interval is a mean of N values with half the width of its confidence interval, both in the unit of the values.
type Interval struct {
	Mean float64
	Half float64
	N    int
}

// MeanInterval returns the two-sided confidence interval of the mean at the given confidence (a fraction), by Student's t.
// It returns false if there are fewer than two values, because their spread is unknown.
func MeanInterval(values []float64, confidence float64) (Interval, bool) {
	n := len(values)
	if n < 2 {
		return Interval{}, false
	}
	mean, stddev := stat.MeanStdDev(values, nil)
	t := TQuantile((1+confidence)/2, float64(n-1))
	return Interval{Mean: mean, Half: t * stat.StdErr(stddev, float64(n)), N: n}, true
}

// Within returns whether the whole width is at most this share of the mean. Training repeats a run until Within is true (PRIMA, section
// III-B1).
func (i Interval) Within(share float64) bool { return 2*i.Half <= share*math.Abs(i.Mean) }

// Relative returns the half width as a share of the mean. It returns false if the mean is 0.
func (i Interval) Relative() (float64, bool) {
	if i.Mean == 0 {
		return 0, false
	}
	return i.Half / math.Abs(i.Mean), true
}

// TQuantile returns the value below which Student's t with df > 0 degrees of freedom lies with probability p,
// 0 < p < 1.
func TQuantile(p, df float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: df}.Quantile(p)
}
