package loadgen

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"
)

func arrivals(t interface{ Fatal(...any) }, o ArrivalOptions) *Arrivals {
	a, err := NewArrivals(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func take(a *Arrivals, limit int) []time.Duration {
	var times []time.Duration
	for len(times) < limit {
		at, ok := a.Next()
		if !ok {
			break
		}
		times = append(times, at)
	}
	return times
}

func TestDeterministicTimes(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		rate []Step
		end  time.Duration
		want []time.Duration
	}{
		"equal gaps up to but without the end": {
			[]Step{{0, 10}}, 500 * ms, []time.Duration{100 * ms, 200 * ms, 300 * ms, 400 * ms}},
		"a step shortens the rest of the gap it falls in": { // half of the gap is over at 50 ms; the rest passes at 100/s
			[]Step{{0, 10}, {50 * ms, 100}}, 80 * ms, []time.Duration{55 * ms, 65 * ms, 75 * ms}},
		"nothing while the rate is 0, and the gap goes on after it": {
			[]Step{{0, 10}, {150 * ms, 0}, {time.Second, 10}}, 1200 * ms, []time.Duration{100 * ms, 1050 * ms, 1150 * ms}},
		"nothing before the first step": {
			[]Step{{time.Second, 10}}, 1250 * ms, []time.Duration{1100 * ms, 1200 * ms}},
		"a last rate of 0 ends the schedule": {
			[]Step{{0, 10}, {250 * ms, 0}}, 0, []time.Duration{100 * ms, 200 * ms}},
		"a rate too small for time to hold ends it too": {
			[]Step{{0, 1e-12}}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := arrivals(t, ArrivalOptions{Process: Deterministic, Rate: tc.rate, Duration: tc.end})
			got := take(a, 100)
			if !slices.EqualFunc(got, tc.want, func(g, w time.Duration) bool { return (g - w).Abs() <= 1 }) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if at, ok := a.Next(); ok {
				t.Errorf("after its end it gave %v", at)
			}
		})
	}
}

func TestPoissonHasItsRateAndDispersion(t *testing.T) {
	const rate, windows = 200.0, 2000 // windows of one second
	for _, process := range []Process{Poisson, Exponential} {
		a := arrivals(t, ArrivalOptions{Process: process, Rate: []Step{{0, rate}}, Duration: windows * time.Second, Seed: 7})
		counts := make([]float64, windows)
		for _, at := range take(a, math.MaxInt) {
			counts[at/time.Second]++
		}
		mean, variance := stat.MeanVariance(counts, nil)
		if bound := 4 * math.Sqrt(rate/windows); math.Abs(mean-rate) > bound {
			t.Errorf("%s: mean count %.2f, want %v within %.2f", process, mean, rate, bound)
		}
		// The index of dispersion of counts is 1 for a Poisson process, with variance 2/(n-1) when estimated.
		if bound := 4 * math.Sqrt(2.0/(windows-1)); math.Abs(variance/mean-1) > bound {
			t.Errorf("%s: index of dispersion %.3f, want 1 within %.3f", process, variance/mean, bound)
		}
	}
}

func TestPoissonStepTakesEffectAtItsInstant(t *testing.T) {
	steps := []Step{{0, 0.001}, {10 * time.Second, 10_000}, {11 * time.Second, 0}}
	got := take(arrivals(t, ArrivalOptions{Process: Poisson, Rate: steps, Seed: 3}), math.MaxInt)
	if n := float64(len(got)); math.Abs(n-10_000) > 400 {
		t.Errorf("%v requests in the second at 10,000/s", n)
	}
	if first := got[0]; first < 10*time.Second || first > 10*time.Second+2*time.Millisecond {
		t.Errorf("the first request after the step came at %v", first)
	}
	if last := got[len(got)-1]; last >= 11*time.Second {
		t.Errorf("a request at %v, while the rate is 0", last)
	}
}

func TestArrivalsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := ArrivalOptions{
			Process:  rapid.SampledFrom([]Process{Poisson, Exponential, Deterministic, Bursty, Synchronised}).Draw(t, "process"),
			Duration: time.Duration(rapid.Int64Range(1, 20e9).Draw(t, "duration")),
			Seed:     rapid.Uint64().Draw(t, "seed"),
		}
		at := time.Duration(0)
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			rate := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 50)).Draw(t, "rate")
			o.Rate = append(o.Rate, Step{at, rate})
			at += time.Duration(rapid.Int64Range(1, 5e9).Draw(t, "length"))
		}
		got := take(arrivals(t, o), 5000)
		if !slices.Equal(got, take(arrivals(t, o), 5000)) {
			t.Fatal("the same options gave other times")
		}
		if !slices.IsSorted(got) {
			t.Fatal("times decrease")
		}
		for _, g := range got {
			// A time is rounded down to whole nanoseconds, so it may be one nanosecond before the step that it belongs to.
			if g >= o.Duration || rateAt(o.Rate, g) == 0 && rateAt(o.Rate, g+1) == 0 {
				t.Fatalf("request at %v, where there should be none", g)
			}
		}
	})
}

func rateAt(steps []Step, at time.Duration) float64 {
	rate := 0.0
	for _, s := range steps {
		if s.At <= at {
			rate = s.PerSecond
		}
	}
	return rate
}

// All processes have the rate that was asked for; bursts and synchronised clients come together.
func TestTogether(t *testing.T) {
	for process, want := range map[Process]float64{Poisson: 1, Deterministic: 1, Bursty: burst, Synchronised: clients} {
		got := take(arrivals(t, ArrivalOptions{Process: process, Rate: []Step{{0, 100}}, Duration: 200 * time.Second, Seed: 3}), 1e6)
		if n := float64(len(got)); n < 19_000 || n > 21_000 {
			t.Errorf("%s: %v requests in 200 s at 100 a second", process, n)
		}
		moments := len(slices.Compact(slices.Clone(got)))
		if size := float64(len(got)) / float64(moments); size < 0.95*want || size > 1.05*want {
			t.Errorf("%s: %.2f requests at once, want %v", process, size, want)
		}
	}
}

func TestSeedsDiffer(t *testing.T) {
	o := ArrivalOptions{Process: Poisson, Rate: []Step{{0, 10}}, Seed: 1}
	p := o
	p.Seed = 2
	if slices.Equal(take(arrivals(t, o), 10), take(arrivals(t, p), 10)) {
		t.Error("two seeds gave the same times")
	}
}

func TestArrivalMistakes(t *testing.T) {
	ok := []Step{{0, 1}}
	for name, o := range map[string]ArrivalOptions{
		"no rate":             {Process: Poisson},
		"unknown process":     {Process: "uniform", Rate: ok},
		"negative duration":   {Process: Poisson, Rate: ok, Duration: -1},
		"negative rate":       {Process: Poisson, Rate: []Step{{0, -1}}},
		"rate not a number":   {Process: Poisson, Rate: []Step{{0, math.NaN()}}},
		"infinite rate":       {Process: Poisson, Rate: []Step{{0, math.Inf(1)}}},
		"steps out of order":  {Process: Poisson, Rate: []Step{{5, 1}, {5, 2}}},
		"step before time 0":  {Process: Poisson, Rate: []Step{{-1, 1}}},
		"two steps at a time": {Process: Poisson, Rate: []Step{{0, 1}, {0, 2}}},
	} {
		var invalid *quell.InvalidError
		if _, err := NewArrivals(o); !errors.As(err, &invalid) {
			t.Errorf("%s: got %v, want an InvalidError", name, err)
		}
	}
}

func BenchmarkArrivals(b *testing.B) {
	a := arrivals(b, ArrivalOptions{Process: Poisson, Rate: []Step{{0, 1000}}})
	for b.Loop() {
		a.Next()
	}
}
