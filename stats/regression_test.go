package stats

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
	"pgregory.net/rapid"
)

// regressions is testdata/regressions.json, made by testdata/regressions.py.
type regressions struct {
	Least []struct {
		Name         string      `json:"name"`
		Rows         [][]float64 `json:"rows"`
		Values       []float64   `json:"values"`
		Free         []int       `json:"free"`
		Coefficients []float64   `json:"coefficients"`
	} `json:"least"`
	Quantiles []struct {
		Name   string               `json:"name"`
		Rows   [][]float64          `json:"rows"`
		Values []float64            `json:"values"`
		Fits   map[string][]float64 `json:"fits"`
	} `json:"quantiles"`
}

func readRegressions(t *testing.T) (r regressions) {
	t.Helper()
	text, err := os.ReadFile("testdata/regressions.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLeastSquaresAreThoseOfSciPy(t *testing.T) {
	for _, c := range readRegressions(t).Least {
		got, err := LeastSquares(c.Rows, c.Values, c.Free...)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		for j, want := range c.Coefficients {
			if math.Abs(got[j]-want) > 1e-7*math.Max(1, math.Abs(want)) {
				t.Errorf("%s: got %v, want %v", c.Name, got, c.Coefficients)
				break
			}
		}
	}
}

// At the minimum, the slope is 0 for coefficients that are free or above 0, and raising a coefficient that is 0 does not lower the sum.
func TestLeastSquaresAreLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "columns")
		rows := rapid.IntRange(n, 20).Draw(t, "rows")
		a, b := make([][]float64, rows), make([]float64, rows)
		for i := range a {
			a[i] = rapid.SliceOfN(rapid.Float64Range(-3, 3), n, n).Draw(t, "row")
			b[i] = rapid.Float64Range(-10, 10).Draw(t, "value")
		}
		var free []int
		if rapid.Bool().Draw(t, "free") {
			free = []int{0}
		}
		x, err := LeastSquares(a, b, free...)
		if errors.Is(err, ErrUndetermined) && free != nil {
			return // a column of zeros
		}
		if err != nil {
			t.Fatal(err)
		}
		for j := range x {
			slope, length := 0.0, 1e-12
			for i := range a {
				slope += a[i][j] * (b[i] - floats.Dot(a[i], x))
				length += a[i][j] * a[i][j]
			}
			slope /= math.Sqrt(length)
			isFree := free != nil && j == 0
			if !isFree && x[j] < 0 || slope > 1e-6 || (isFree || x[j] > 0) && slope < -1e-6 {
				t.Fatalf("coefficient %d of %v has slope %g", j, x, slope)
			}
		}
	})
}

func TestLeastSquaresOfDependentColumns(t *testing.T) {
	a := [][]float64{{1, 2, 0}, {2, 4, 0}, {3, 6, 0}} // the second twice the first, the third nothing
	x, err := LeastSquares(a, []float64{2, 4, 6})
	if err != nil || math.Abs(x[0]+2*x[1]-2) > 1e-9 || x[2] != 0 {
		t.Errorf("got %v, %v", x, err)
	}
	if _, err := LeastSquares(a, []float64{2, 4, 6}, 0, 1); !errors.Is(err, ErrUndetermined) {
		t.Errorf("got %v", err)
	}
	if x, err := LeastSquares(a, []float64{0, 0, 0}); err != nil || floats.Norm(x, 1) != 0 {
		t.Errorf("of nothing: %v, %v", x, err)
	}
}

func TestRegressionsRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		a    [][]float64
		b    []float64
		want string
	}{
		"no rows":       {nil, nil, "0 rows for 0 values"},
		"fewer values":  {[][]float64{{1}, {2}}, []float64{1}, "2 rows for 1 values"},
		"a ragged row":  {[][]float64{{1, 2}, {2}}, []float64{1, 2}, "row 2 has 1 columns, the first one 2"},
		"NaN":           {[][]float64{{1}, {math.NaN()}}, []float64{1, 2}, "row 2 holds NaN"},
		"infinite":      {[][]float64{{1}, {1}}, []float64{1, math.Inf(1)}, "row 2 holds +Inf"},
		"a row too few": {[][]float64{{1, 2}}, []float64{1}, ErrUndetermined.Error()},
	} {
		if _, err := QuantileRegression(c.a, c.b, 0.9); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
		if _, err := LeastSquares(c.a, c.b, 0, 1); name != "a row too few" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	for _, tau := range []float64{0, 1, math.NaN()} {
		if _, err := QuantileRegression([][]float64{{1}, {1}}, []float64{1, 2}, tau); err == nil {
			t.Errorf("quantile %v was taken", tau)
		}
	}
}

// statsmodels approximates the minimum by weighted regressions. The linear programme finds a solution at a corner, with a loss that is at
// most as large.
func TestQuantileRegressionIsThatOfStatsmodels(t *testing.T) {
	for _, c := range readRegressions(t).Quantiles {
		for name, want := range c.Fits {
			tau, err := strconv.ParseFloat(name, 64)
			if err != nil {
				t.Fatal(err)
			}
			got, err := QuantileRegression(c.Rows, c.Values, tau)
			if err != nil {
				t.Errorf("%s, %s: %v", c.Name, name, err)
				continue
			}
			if ours, theirs := pinball(c.Rows, c.Values, got, tau), pinball(c.Rows, c.Values, want, tau); ours > theirs*(1+1e-9) {
				t.Errorf("%s, %s: a loss of %.10g, statsmodels %.10g", c.Name, name, ours, theirs)
			}
			for j := range want {
				if math.Abs(got[j]-want[j]) > 1e-3*math.Max(1, math.Abs(want[j])) {
					t.Errorf("%s, %s: got %v, want %v", c.Name, name, got, want)
					break
				}
			}
		}
	}
}

// pinball is the loss that quantile regression minimises.
func pinball(a [][]float64, b, x []float64, tau float64) (loss float64) {
	for i := range a {
		r := b[i] - floats.Dot(a[i], x)
		loss += math.Max(tau*r, (tau-1)*r)
	}
	return loss
}

// No step of the coefficients in any direction lowers the loss. If there is only an intercept, the fit is a quantile.
func TestQuantileRegressionIsLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.IntRange(3, 25).Draw(t, "rows")
		a, b := make([][]float64, rows), make([]float64, rows)
		for i := range a {
			a[i] = []float64{1, float64(rapid.IntRange(0, 9).Draw(t, "x"))}
			b[i] = float64(rapid.IntRange(-20, 20).Draw(t, "y"))
		}
		tau := rapid.SampledFrom([]float64{0.05, 0.5, 0.9, 0.99}).Draw(t, "tau")
		x, err := QuantileRegression(a, b, tau)
		if errors.Is(err, ErrUndetermined) {
			return // all at one x
		}
		if err != nil {
			t.Fatal(err)
		}
		least := pinball(a, b, x, tau)
		for _, by := range [][2]float64{{1, 0}, {-1, 0}, {0, 1}, {0, -1}, {1, -.2}, {-1, .2}, {4, -1}, {-4, 1}} {
			for _, size := range []float64{1e-4, 0.1, 3} {
				if other := pinball(a, b, []float64{x[0] + size*by[0], x[1] + size*by[1]}, tau); other < least-1e-9 {
					t.Fatalf("a loss of %v at %v, %v beside it", least, x, other)
				}
			}
		}
	})
	got, err := QuantileRegression([][]float64{{1}, {1}, {1}, {1}, {1}, {1}, {1}}, []float64{3, 9, 1, 7, 5, 2, 100}, 0.5)
	if err != nil || math.Abs(got[0]-5) > 1e-9 {
		t.Errorf("a median of %v, %v", got, err)
	}
	if got, err := QuantileRegression([][]float64{{1}, {1}, {1}}, []float64{4, 4, 4}, 0.9); err != nil || math.Abs(got[0]-4) > 1e-9 {
		t.Errorf("of one value: %v, %v", got, err)
	}
}

func BenchmarkQuantileRegression(b *testing.B) {
	for _, n := range []int{50, 200} {
		rows, values := make([][]float64, n), make([]float64, n)
		for i := range rows {
			x := float64(i%17) + float64(i)/float64(n)
			rows[i], values[i] = []float64{1, x}, 3+2*x+x*math.Mod(float64(i)*0.618, 1)
		}
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				if _, err := QuantileRegression(rows, values, 0.9); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
