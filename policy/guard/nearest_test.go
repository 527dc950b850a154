package guard_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell/policy/guard"
	"github.com/quellhq/quell/policy/policytest"
)

func drawFractions(rng *rand.Rand, n int) []guard.Fraction {
	list := make([]guard.Fraction, n)
	var sum float64
	for i := range list {
		list[i].Want = math.Pow(rng.Float64(), 3)
		if rng.IntN(10) == 0 {
			list[i].Want = 0
		}
		sum += list[i].Want
	}
	for i := range list {
		f := &list[i]
		if sum > 0 && rng.IntN(8) > 0 {
			f.Want /= sum
		}
		switch a, b := rng.Float64()*2/float64(n), rng.Float64()*4/float64(n); rng.IntN(5) {
		case 0:
			f.Low, f.High = 0, 1
		case 1:
			f.Low, f.High = math.Min(a, 1), math.Min(a, 1)
		default:
			f.Low, f.High = math.Min(math.Min(a, b), 1), math.Min(math.Max(a, b), 1)
		}
	}
	return list
}

// nearest finds the same solution as another method, and finds one whenever there is one.
func TestNearestIsNearest(t *testing.T) {
	solved := 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		fractions := drawFractions(rng, rapid.IntRange(1, 50).Draw(t, "n"))
		var low, high float64
		for _, f := range fractions {
			low, high = low+f.Low, high+f.High
		}
		x, ok := guard.Nearest(fractions)
		if ok != (low <= 1 && high >= 1) {
			t.Fatalf("bounds from %v to %v, and found: %v", low, high, ok)
		}
		if !ok {
			return
		}
		solved++
		want := policytest.ByExchange(fractions)
		var sum, distance, least float64
		for i, f := range fractions {
			sum += x[i]
			if x[i] < f.Low || x[i] > f.High {
				t.Fatalf("%v is not within %+v", x[i], f)
			}
			scale := math.Max(f.Want, guard.MinScale/float64(len(fractions)))
			distance += (x[i] - f.Want) * (x[i] - f.Want) / scale
			least += (want[i] - f.Want) * (want[i] - f.Want) / scale
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Fatalf("they sum to %v", sum)
		}
		if distance > least*(1+1e-6)+1e-9 {
			t.Fatalf("a distance of %v, and there are shares at %v:\n%v\n%v\n%+v", distance, least, x, want, fractions)
		}
	})
	if solved < 20 {
		t.Errorf("only %d of the problems had a solution", solved)
	}
}

func TestNearestOnce(t *testing.T) {
	for _, tc := range []struct {
		why       string
		fractions []guard.Fraction
		want      []float64
	}{
		{"within the bounds: as wanted", []guard.Fraction{{.3, 0, 1}, {.7, .5, .8}}, []float64{.3, .7}},
		{"what is left over goes in proportion", []guard.Fraction{{.5, 0, .2}, {.1, 0, 1}, {.4, 0, 1}}, []float64{.2, .16, .64}},
		{"as far as there is room", []guard.Fraction{{.5, 0, .2}, {.1, 0, 1}, {.4, 0, .5}}, []float64{.2, .3, .5}},
		{"nothing for those that were to have nothing", []guard.Fraction{{.5, 0, .2}, {0, 0, 1}, {.5, 0, 1}}, []float64{.2, 0, .8}},
		{"unless there is nobody else", []guard.Fraction{{.5, 0, .2}, {0, 0, 1}, {.5, 0, .6}, {0, 0, 1}}, []float64{.2, .1, .6, .1}},
		{"what is lacking comes in proportion", []guard.Fraction{{.1, .4, 1}, {.3, 0, 1}, {.6, 0, 1}}, []float64{.4, .2, .4}},
		{"all at their bounds", []guard.Fraction{{.9, .25, .25}, {.1, .75, .75}}, []float64{.25, .75}},
		{"nothing wanted", []guard.Fraction{{0, 0, 1}, {0, 0, 1}}, []float64{.5, .5}},
	} {
		x, ok := guard.Nearest(tc.fractions)
		if !ok {
			t.Errorf("%s: nothing found", tc.why)
			continue
		}
		for i := range x {
			if math.Abs(x[i]-tc.want[i]) > 1e-5 {
				t.Errorf("%s: %v, want %v", tc.why, x, tc.want)
				break
			}
		}
	}
	if x, ok := guard.Nearest([]guard.Fraction{{.5, .6, .5}, {.5, 0, 1}}); ok {
		t.Errorf("%v within bounds that cross", x)
	}
}
