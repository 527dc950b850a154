package stats

import (
	"math"
	"testing"
)

func TestRegressFindsTheLine(t *testing.T) {
	var a [][]float64
	var b, weights []float64
	for i := range 10 {
		a, b, weights = append(a, []float64{1, float64(i)}), append(b, 3+2*float64(i)), append(weights, 1e6)
	}
	x, covariance, ok := Regress(a, b, weights, []Normal{{0, 100}, {1, 1}})
	if !ok || math.Abs(x[0]-3) > 1e-3 || math.Abs(x[1]-2) > 1e-3 {
		t.Errorf("3 + 2 x: %v", x)
	}
	if covariance[1][1] <= 0 || covariance[1][1] > 1e-6 {
		t.Errorf("variance %v of a slope that a million measurements tell", covariance[1][1])
	}
}

// Without rows the prior is the answer; one row moves it as far as its weight says.
func TestRegressKeepsThePrior(t *testing.T) {
	x, covariance, ok := Regress(nil, nil, nil, []Normal{{4, 2}})
	if !ok || math.Abs(x[0]-4) > 1e-12 || math.Abs(covariance[0][0]-4) > 1e-12 {
		t.Errorf("prior 4 +- 2: %v, variance %v", x, covariance)
	}
	x, _, _ = Regress([][]float64{{1}}, []float64{6}, []float64{0.25}, []Normal{{4, 2}})
	if math.Abs(x[0]-5) > 1e-12 {
		t.Errorf("prior 4 +- 2 and a measurement of 6 +- 2: %v, want 5", x[0])
	}
	if _, _, ok := Regress([][]float64{{math.NaN()}}, []float64{6}, []float64{1}, []Normal{{4, 2}}); ok {
		t.Error("a number that is not finite gives a result")
	}
}
