package policy

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// byExchange solves the same problem as nearest by another method. It repeatedly moves traffic between the two instances for which this
// reduces the distance most, until no pair reduces it.
func byExchange(fractions []fraction) []float64 {
	n := len(fractions)
	x := make([]float64, n)
	rest := 1.0
	for i, f := range fractions {
		x[i] = f.low
		rest -= f.low
	}
	for i, f := range fractions { // any shares within the bounds
		more := math.Min(rest, f.high-f.low)
		x[i] += more
		rest -= more
	}
	scale := func(i int) float64 { return math.Max(fractions[i].want, leastScale/float64(n)) }
	slope := func(i int) float64 { return (x[i] - fractions[i].want) / scale(i) }
	for range 200_000 {
		up, down := -1, -1
		for i, f := range fractions {
			if x[i] < f.high && (up < 0 || slope(i) < slope(up)) {
				up = i
			}
			if x[i] > f.low && (down < 0 || slope(i) > slope(down)) {
				down = i
			}
		}
		if up < 0 || down < 0 || slope(down)-slope(up) < 1e-9 {
			break
		}
		most := math.Min(fractions[up].high-x[up], x[down]-fractions[down].low)
		by := math.Min(most, (slope(down)-slope(up))/(1/scale(up)+1/scale(down)))
		x[up] += by
		x[down] -= by
	}
	return x
}

func drawFractions(rng *rand.Rand, n int) []fraction {
	list := make([]fraction, n)
	var sum float64
	for i := range list {
		list[i].want = math.Pow(rng.Float64(), 3)
		if rng.IntN(10) == 0 {
			list[i].want = 0
		}
		sum += list[i].want
	}
	for i := range list {
		f := &list[i]
		if sum > 0 && rng.IntN(8) > 0 {
			f.want /= sum
		}
		switch a, b := rng.Float64()*2/float64(n), rng.Float64()*4/float64(n); rng.IntN(5) {
		case 0:
			f.low, f.high = 0, 1
		case 1:
			f.low, f.high = math.Min(a, 1), math.Min(a, 1)
		default:
			f.low, f.high = math.Min(math.Min(a, b), 1), math.Min(math.Max(a, b), 1)
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
			low, high = low+f.low, high+f.high
		}
		x, ok := nearest(fractions)
		if ok != (low <= 1 && high >= 1) {
			t.Fatalf("bounds from %v to %v, and found: %v", low, high, ok)
		}
		if !ok {
			return
		}
		solved++
		want := byExchange(fractions)
		var sum, distance, least float64
		for i, f := range fractions {
			sum += x[i]
			if x[i] < f.low || x[i] > f.high {
				t.Fatalf("%v is not within %+v", x[i], f)
			}
			scale := math.Max(f.want, leastScale/float64(len(fractions)))
			distance += (x[i] - f.want) * (x[i] - f.want) / scale
			least += (want[i] - f.want) * (want[i] - f.want) / scale
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
		fractions []fraction
		want      []float64
	}{
		{"within the bounds: as wanted", []fraction{{.3, 0, 1}, {.7, .5, .8}}, []float64{.3, .7}},
		{"what is left over goes in proportion", []fraction{{.5, 0, .2}, {.1, 0, 1}, {.4, 0, 1}}, []float64{.2, .16, .64}},
		{"as far as there is room", []fraction{{.5, 0, .2}, {.1, 0, 1}, {.4, 0, .5}}, []float64{.2, .3, .5}},
		{"nothing for those that were to have nothing", []fraction{{.5, 0, .2}, {0, 0, 1}, {.5, 0, 1}}, []float64{.2, 0, .8}},
		{"unless there is nobody else", []fraction{{.5, 0, .2}, {0, 0, 1}, {.5, 0, .6}, {0, 0, 1}}, []float64{.2, .1, .6, .1}},
		{"what is lacking comes in proportion", []fraction{{.1, .4, 1}, {.3, 0, 1}, {.6, 0, 1}}, []float64{.4, .2, .4}},
		{"all at their bounds", []fraction{{.9, .25, .25}, {.1, .75, .75}}, []float64{.25, .75}},
		{"nothing wanted", []fraction{{0, 0, 1}, {0, 0, 1}}, []float64{.5, .5}},
	} {
		x, ok := nearest(tc.fractions)
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
	if x, ok := nearest([]fraction{{.5, .6, .5}, {.5, 0, 1}}); ok {
		t.Errorf("%v within bounds that cross", x)
	}
}
