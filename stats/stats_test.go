package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"
)

func TestIsotonic(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []Weighted
		want []float64
	}{
		{"nothing", nil, nil},
		{"increasing stays", []Weighted{{1, 1}, {2, 1}, {3, 1}}, []float64{1, 2, 3}},
		{"a dip is pooled by weight", []Weighted{{1, 1}, {5, 3}, {3, 1}, {9, 1}}, []float64{1, 4.5, 4.5, 9}},
		{"pooling reaches back", []Weighted{{4, 1}, {5, 1}, {0, 1}}, []float64{3, 3, 3}},
		{"a light outlier gives way", []Weighted{{10, 1}, {1, 9}}, []float64{1.9, 1.9}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Isotonic(c.in); !near(got, c.want, 1e-12) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// The fit is the projection onto the non-decreasing sequences: the residual is orthogonal to the fit, and its product
// with every non-decreasing direction is at most 0. The tails (0..0, 1..1) generate these directions.
func TestIsotonicIsTheNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		points := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Weighted {
			return Weighted{rapid.Float64Range(-50, 50).Draw(t, "value"), rapid.Float64Range(0.1, 9).Draw(t, "weight")}
		}), 1, 30).Draw(t, "points")
		fit := Isotonic(points)
		if !slices.IsSorted(fit) {
			t.Fatalf("not sorted: %v", fit)
		}
		var tail, product float64
		for i, p := range slices.Backward(points) {
			residual := p.Weight * (p.Value - fit[i])
			product += residual * fit[i]
			tail += residual
			if tail > 1e-6 {
				t.Fatalf("raising the values from %d on would come nearer: %v", i, fit)
			}
		}
		if math.Abs(tail) > 1e-6 || math.Abs(product) > 1e-6 {
			t.Fatalf("residual is not orthogonal: sum %g, product %g", tail, product)
		}
	})
}

func TestTQuantile(t *testing.T) {
	for _, c := range []struct{ p, df, want float64 }{ // from printed tables of Student's t
		{0.95, 1, 6.314}, {0.95, 10, 1.812}, {0.975, 4, 2.776}, {0.99, 30, 2.457}, {0.95, 1e6, 1.645}, {0.5, 3, 0},
	} {
		if got := TQuantile(c.p, c.df); math.Abs(got-c.want) > 6e-4 {
			t.Errorf("p %g, df %g: got %g, want %g", c.p, c.df, got, c.want)
		}
	}
}

func TestMeanInterval(t *testing.T) {
	got, ok := MeanInterval([]float64{10, 11, 12}, 0.95) // stddev 1, t(0.975, 2) = 4.3027
	if !ok || math.Abs(got.Mean-11) > 1e-12 || math.Abs(got.Half-4.3027/math.Sqrt(3)) > 1e-4 || got.N != 3 {
		t.Errorf("got %+v, %v", got, ok)
	}
	if got.Within(0.45) || !got.Within(0.46) {
		t.Errorf("a width of %.3f of the mean was judged wrongly", 2*got.Half/got.Mean)
	}
	if r, ok := got.Relative(); !ok || math.Abs(r-0.2258) > 1e-4 {
		t.Errorf("relative half width %g, %v", r, ok)
	}
	if _, ok := MeanInterval([]float64{10}, 0.95); ok {
		t.Error("one value has no interval")
	}
	if _, ok := (Interval{Half: 1, N: 2}).Relative(); ok {
		t.Error("a mean of 0 has no relative half width")
	}
}

func TestMeanIntervalCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	covered, rounds := 0, 4000
	for range rounds {
		values := make([]float64, 4)
		for i := range values {
			values[i] = 20 + 3*r.NormFloat64()
		}
		if i, _ := MeanInterval(values, 0.9); math.Abs(i.Mean-20) <= i.Half {
			covered++
		}
	}
	if share := float64(covered) / float64(rounds); math.Abs(share-0.9) > 0.02 {
		t.Errorf("a 90%% interval covers the mean in %.1f%% of cases", 100*share)
	}
}

func TestPoolEqualsTheValuesThemselves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.SliceOfN(rapid.SliceOfN(rapid.Float64Range(0, 100), 0, 6), 1, 6).Draw(t, "groups")
		var all []float64
		var parts []Moments
		for _, g := range groups {
			all = append(all, g...)
			parts = append(parts, momentsOf(g))
		}
		got, want := Pool(parts), momentsOf(all)
		if got.N != want.N || math.Abs(got.Mean-want.Mean) > 1e-9 || math.Abs(got.Stddev-want.Stddev) > 1e-6 {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func momentsOf(values []float64) Moments {
	switch len(values) {
	case 0:
		return Moments{}
	case 1:
		return Moments{Mean: values[0], N: 1}
	}
	mean, stddev := stat.MeanStdDev(values, nil)
	return Moments{Mean: mean, Stddev: stddev, N: len(values)}
}

func near(a, b []float64, tol float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) <= tol })
}
