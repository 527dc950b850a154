package stats

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestRecursiveFindsALine(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var r Recursive
	for range 300 {
		x := 4 * rng.Float64()
		r = r.With([]float64{x}, 1+0.5*x+0.05*rng.NormFloat64(), 0.99)
	}
	if math.Abs(r.Coefficients[0]-1) > 0.03 || math.Abs(r.Coefficients[1]-0.5) > 0.02 {
		t.Errorf("coefficients %v, want 1 and 0.5", r.Coefficients)
	}
	if e := r.Error(); e < 0.03 || e > 0.08 {
		t.Errorf("error %v, want about 0.05", e)
	}
	if c, ok := r.Correlation(); !ok || c < 0.98 {
		t.Errorf("correlation %v", c)
	}
}

// Without forgetting and with many rows it equals least squares.
func TestRecursiveIsLeastSquares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Recursive
		var a [][]float64
		var b []float64
		for i := range rapid.IntRange(5, 40).Draw(t, "rows") {
			x, z, y := float64(i%5)+rapid.Float64Range(0, 0.5).Draw(t, "x"), float64(i%3), rapid.Float64Range(-5, 5).Draw(t, "y")
			r = r.With([]float64{x, z}, y, 1)
			if r.Rows != i+1 {
				return // it began anew
			}
			a, b = append(a, []float64{1, x, z}), append(b, y)
		}
		want, err := LeastSquares(a, b, 0, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if math.Abs(r.Coefficients[i]-want[i]) > 0.02*(1+math.Abs(want[i])) {
				t.Fatalf("coefficients %v, least squares %v", r.Coefficients, want)
			}
		}
	})
}

// After a change of behaviour a few rows suffice.
func TestRecursiveRecalibrates(t *testing.T) {
	var r Recursive
	for i := range 200 {
		x := float64(i % 7)
		r = r.With([]float64{x}, 1+x, 0.995)
	}
	for i := range 9 {
		x := float64(i % 7)
		r = r.With([]float64{x}, 3+2*x, 0.995)
	}
	if y, ok := r.Predict([]float64{4}); !ok || math.Abs(y-11) > 0.2 {
		t.Errorf("predicts %v, want 11", y)
	}
}

func TestRecursiveIsAValue(t *testing.T) {
	before := Recursive{}.With([]float64{1}, 2, 0.9)
	kept, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	before.With([]float64{3}, 4, 0.9)
	if now, _ := json.Marshal(before); string(now) != string(kept) {
		t.Errorf("a row changed the value it was added to: %s, %s", kept, now)
	}
	for _, row := range [][]float64{{math.NaN()}, {math.Inf(1)}, {1, 2}, {}} {
		if after := before.With(row, 1, 0.9); !reflect.DeepEqual(after, before) {
			t.Errorf("row %v is taken", row)
		}
	}
	if _, ok := (Recursive{}).Predict([]float64{1}); ok {
		t.Error("predicts without rows")
	}
	if _, ok := before.Correlation(); ok {
		t.Error("one row has a correlation")
	}
}

// Alike rows, also very many of them, keep everything finite.
func TestRecursiveStaysFinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Recursive
		x, y := rapid.Float64Range(0, 1000).Draw(t, "x"), rapid.Float64Range(0, 1000).Draw(t, "y")
		for range 5000 {
			r = r.With([]float64{x}, y, 0.95)
		}
		got, ok := r.Predict([]float64{x})
		if !ok || math.Abs(got-y) > 1e-3*(1+y) || !finite(r.Covariance...) {
			t.Fatalf("predicts %v for %v: %+v", got, y, r)
		}
	})
}

// Two states that take turns, each for five rows, are no change, although one line does not describe both.
func TestRecursiveKeepsStatesThatTakeTurns(t *testing.T) {
	var r Recursive
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range 60 {
		x, y := 1+0.1*rng.NormFloat64(), 0.0
		if y = 1 + 0.8*x; i/5%2 == 1 {
			x += 4
			y = 1.5 + x + 0.5*(x-5)
		}
		r = r.With([]float64{x}, y+0.02*rng.NormFloat64(), 0.98)
	}
	if c, ok := r.Correlation(); r.Rows < 60 || !ok || c < 0.9 {
		t.Errorf("%d of 60 rows count, correlation %.2f", r.Rows, c)
	}
}
