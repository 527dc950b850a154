package divide

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"pgregory.net/rapid"

	"github.com/quellhq/quell/internal/golden"
)

// tail is Eq. 2 of DIAL, without the constant that the percentile stands for.
func tail(rates, shares []float64, arrivals float64) (t float64) {
	for i, r := range rates {
		if shares[i] > 0 {
			t += shares[i] / (r - arrivals*shares[i])
		}
	}
	return t
}

// tailBySearch solves the problem of Shares in another way: by halving, it finds the price of a request per second at which the
// instances together take as many as arrive. An instance takes requests until the next one costs the price, which halving finds, too.
func tailBySearch(rates []float64, arrivals float64) []float64 {
	takes := func(r, logPrice float64) float64 {
		low, high := 0.0, r
		for range 60 {
			x := (low + high) / 2
			if math.Log(r)-2*math.Log(r-x) < logPrice {
				low = x
			} else {
				high = x
			}
		}
		return low
	}
	low, high := -60.0, 120.0
	shares := make([]float64, len(rates))
	for range 60 {
		price, total := (low+high)/2, 0.0
		for i, r := range rates {
			shares[i] = takes(r, price) / arrivals
			total += shares[i]
		}
		if total < 1 {
			low = price
		} else {
			high = price
		}
	}
	return shares
}

func drawRates(rng *rand.Rand, n int) []float64 {
	rates := make([]float64, n)
	for i := range rates {
		rates[i] = 1000 * (1 - 0.99*math.Pow(rng.Float64(), 2)) // up to 99% of an instance is taken by neighbours
		if rng.IntN(3) == 0 {
			rates[i] = 1000
		}
	}
	return rates
}

// tailShares returns the shares of the arrivals, whose sum is 1, if nothing bounds the queues. With overload, they are in proportion to the
// rates.
func tailShares(rates []float64, arrivals float64) (shares []float64, overload bool) {
	if !(arrivals > 0) {
		return nil, false
	}
	if all := floats.Sum(rates); arrivals >= all {
		shares = slices.Clone(rates)
		floats.Scale(1/all, shares)
		return shares, true
	}
	queues := make([]Queue, len(rates))
	for i, r := range rates {
		queues[i] = Queue{Rate: r, High: r}
	}
	shares = Within(queues, arrivals)
	floats.Scale(1/floats.Sum(shares), shares)
	return shares, false
}

// The shares are those that another method finds, and meet the conditions of optimality: one more request costs the same wherever there
// are any, and no less elsewhere.
func TestTailSharesAreOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		n := rapid.OneOf(rapid.IntRange(2, 10), rapid.IntRange(2, 1000)).Draw(t, "n")
		rates := drawRates(rng, n)
		arrivals := floats.Sum(rates) * rapid.OneOf(rapid.Float64Range(0.001, 0.1), rapid.Float64Range(0.1, 0.999)).Draw(t, "load")
		shares, overload := tailShares(rates, arrivals)
		if overload || math.Abs(floats.Sum(shares)-1) > 1e-12 {
			t.Fatalf("overload %v, sum %v", overload, floats.Sum(shares))
		}
		least, most := math.Inf(1), 0.0
		for i, r := range rates {
			x := shares[i] * arrivals
			if x < 0 || x >= r {
				t.Fatalf("%v of %v", x, r)
			}
			cost := r / ((r - x) * (r - x))
			if least = math.Min(least, cost); x > 0 {
				most = math.Max(most, cost)
			}
		}
		if most > least*(1+1e-6) {
			t.Fatalf("one more request costs from %v to %v", least, most)
		}
		if n > 60 && rng.IntN(20) > 0 {
			return // the search takes its time
		}
		search := tailBySearch(rates, arrivals)
		for i := range shares {
			if math.Abs(shares[i]-search[i]) > 1e-8 {
				t.Fatalf("instance %d gets %v, by search %v", i, shares[i], search[i])
			}
		}
	})
}

// If Eq. 3 gives no negative share, the shares are those of Eq. 3.
func TestTailSharesAreThoseOfThePaper(t *testing.T) {
	rates, arrivals := []float64{400, 1000, 1000}, 1500.0 // section II-C: peak 1000, of which neighbours take 0.6 at one instance
	roots := math.Sqrt(400) + 2*math.Sqrt(1000)
	shares, _ := tailShares(rates, arrivals)
	for i, r := range rates {
		want := (r*roots - math.Sqrt(r)*2400 + arrivals*math.Sqrt(r)) / (arrivals * roots)
		if math.Abs(shares[i]-want) > 1e-12 {
			t.Errorf("instance %d gets %v, by Eq. 3 %v", i, shares[i], want)
		}
	}
	proportional := []float64{400. / 2400, 1000. / 2400, 1000. / 2400}
	if ours, theirs := tail(rates, shares, arrivals), tail(rates, proportional, arrivals); ours >= theirs {
		t.Errorf("a tail of %v, in proportion %v", ours, theirs)
	}
}

func TestTailShares(t *testing.T) {
	for _, c := range []struct {
		why      string
		rates    []float64
		arrivals float64
		want     []float64
		overload bool
	}{
		{"no arrivals: the weights stay", []float64{400, 1000}, 0, nil, false},
		{"one instance", []float64{1000}, 600, []float64{1}, false},
		{"one instance, overloaded", []float64{1000}, 1600, []float64{1}, true},
		{"all alike", []float64{1000, 1000, 1000, 1000}, 600, []float64{.25, .25, .25, .25}, false},
		{"all contended alike", []float64{300, 300}, 500, []float64{.5, .5}, false},
		{"next to no load: the fastest has it all", []float64{400, 1000}, 1, []float64{0, 1}, false},
		{"two fastest at next to no load", []float64{1000, 400, 1000}, 1, []float64{.5, 0, .5}, false},
		{"more arrive than can be served: in proportion", []float64{250, 750}, 1200, []float64{.25, .75}, true},
		{"as many as can be served", []float64{250, 750}, 1000, []float64{.25, .75}, true},
		{"almost as many: next to the same", []float64{250, 750}, 1000 - 1e-6, []float64{.25, .75}, false},
		{"nothing left of one", []float64{0, 750, 250}, 900, []float64{0, .75, .25}, false},
	} {
		shares, overload := tailShares(c.rates, c.arrivals)
		if overload != c.overload || len(shares) != len(c.want) {
			t.Errorf("%s: got %v, overload %v", c.why, shares, overload)
			continue
		}
		for i := range shares {
			if tolerance := 0.02; math.Abs(shares[i]-c.want[i]) > tolerance {
				t.Errorf("%s: got %v, want %v", c.why, shares, c.want)
				break
			}
		}
	}
}

// As the rate of an instance grows, its share rises from 0 without a jump.
func TestTailSharesAreContinuous(t *testing.T) {
	rates := []float64{1000, 600, 350, 100}
	before, _ := tailShares(rates, 1)
	for a := 2.0; a < 2050; a++ {
		shares, _ := tailShares(rates, a)
		for i := range shares {
			if gap := math.Abs(shares[i]*a - before[i]*(a-1)); gap > 1+1e-9 {
				t.Fatalf("from %v to %v requests per second instance %d changes by %v", a-1, a, i, gap)
			}
		}
		before = shares
	}
}

// Within bounds, the solution meets the conditions of optimality: one more request costs the same wherever no bound holds, at least as much
// at a lower bound, and at most as much at an upper one.
func TestTailWithinIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		rates := drawRates(rng, rapid.IntRange(2, 1000).Draw(t, "n"))
		queues := make([]Queue, len(rates))
		lows, highs := 0.0, 0.0
		for i, r := range rates {
			low, high := 0.2*r*rng.Float64(), r*(0.3+0.7*rng.Float64())
			queues[i] = Queue{r, low, high}
			lows, highs = lows+low, highs+high
		}
		arrivals := lows + (highs-lows)*rapid.Float64Range(0.001, 0.999).Draw(t, "load")
		x := Within(queues, arrivals)
		if math.Abs(floats.Sum(x)-arrivals) > 1e-9*arrivals {
			t.Fatalf("%v in sum, want %v", floats.Sum(x), arrivals)
		}
		least, most := math.Inf(1), 0.0
		for i, q := range queues {
			if x[i] < q.Low || x[i] > q.High {
				t.Fatalf("%v is outside %+v", x[i], q)
			}
			switch cost := q.Rate / ((q.Rate - x[i]) * (q.Rate - x[i])); x[i] {
			case q.Low:
				least = math.Min(least, cost)
			case q.High:
				most = math.Max(most, cost)
			default:
				least, most = math.Min(least, cost), math.Max(most, cost)
			}
		}
		if most > least*(1+1e-6) {
			t.Fatalf("one more request costs %v where it is at most %v elsewhere", least, most)
		}
	})
}

func BenchmarkTailShares(b *testing.B) {
	for _, n := range []int{10, 1000} {
		rates := drawRates(rand.New(rand.NewPCG(1, 1)), n)
		arrivals := 0.6 * floats.Sum(rates)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				tailShares(rates, arrivals)
			}
		})
	}
}

// The example on dial's page.
func TestSharesAsOnThePage(t *testing.T) {
	rates, arrivals := []float64{500, 1000, 1000}, 1200.0
	p, _ := tailShares(rates, arrivals)
	golden.Says(t, "policies/dial.md",
		fmt.Sprintf("The instances get %.0f, %.0f and %.0f requests per second: %.0f%%, %.0f%% and %.0f%%.", p[0]*arrivals, p[1]*arrivals,
			p[2]*arrivals, 100*p[0], 100*p[1], 100*p[2]))
}
