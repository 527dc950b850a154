package balancer

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestWhole(t *testing.T) {
	for _, c := range []struct {
		name   string
		shares []float64
		want   []int
	}{
		{"none", nil, []int{}},
		{"one", []float64{1}, []int{256}},
		{"equal ones are the largest", []float64{0.5, 0.5}, []int{256, 256}},
		{"thirds exactly, where 256 would round", []float64{2. / 3, 1. / 3}, []int{256, 128}},
		{"1:2:4 exactly", []float64{1. / 7, 2. / 7, 4. / 7}, []int{64, 128, 256}},
		{"3:7 exactly", []float64{0.3, 0.7}, []int{108, 252}},
		{"nothing stays nothing", []float64{0, 1}, []int{0, 256}},
		{"the least bit is no nothing", []float64{1e-300, 1}, []int{1, 256}},
		{"nobody serves", []float64{0, 0}, []int{0, 0}},
	} {
		if got := Whole(c.shares, 256); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestWholeIsTheBest compares the factor that Whole chooses with every possible factor, and its error with the bound for rounding errors.
func TestWholeIsTheBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shares := rapid.SliceOfN(rapid.OneOf(rapid.Just(0.), rapid.Float64Range(1e-4, 1)), 1, 40).Draw(t, "shares")
		got := Whole(shares, 256)
		for i, w := range got {
			if w < 0 || w > 256 || (w == 0) != (shares[i] == 0) {
				t.Fatalf("weight %d for a share of %v", w, shares[i])
			}
		}
		largest := slices.Max(shares)
		if largest == 0 {
			return
		}
		e := wholeError(got, shares)
		for top := 1; top <= 256; top++ {
			other := make([]int, len(shares))
			for i, s := range shares {
				if s > 0 {
					other[i] = max(1, int(math.Round(s/largest*float64(top))))
				}
			}
			if worse := wholeError(other, shares); worse < e-1e-6 {
				t.Fatalf("%v has an error of %v; with %d for the largest it is %v", got, e, top, worse)
			}
		}
	})
}

// TestWholeOfWeightsReadBack checks that nothing changes if a new controller requests the weights that it has read.
func TestWholeOfWeightsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have := rapid.SliceOfN(rapid.IntRange(0, 256), 1, 20).Draw(t, "weights")
		shares := make([]float64, len(have))
		var sum int
		for _, w := range have {
			sum += w
		}
		for i, w := range have {
			shares[i] = float64(w) / float64(max(1, sum))
		}
		if e := wholeError(have, shares); e > ties {
			t.Fatalf("%v is off itself by %v", have, e)
		}
		if e := wholeError(Whole(shares, 256), shares); e > wholeError(have, shares)+ties {
			t.Fatalf("%v scales with an error of %v", have, e)
		}
	})
}

func TestLowest(t *testing.T) {
	for _, c := range []struct{ weights, want []int }{
		{nil, nil}, {[]int{0, 0}, []int{0, 0}}, {[]int{7}, []int{1}}, {[]int{100, 25, 0}, []int{4, 1, 0}}, {[]int{3, 4}, []int{3, 4}},
	} {
		if got := Lowest(slices.Clone(c.weights)); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.weights, got, c.want)
		}
	}
}
