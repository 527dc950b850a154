package probe

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"pgregory.net/rapid"
)

func TestStratify(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "n")
		window := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "window"))
		seed := rapid.Uint64().Draw(t, "seed")
		slots := Stratify(rand.New(rand.NewPCG(seed, 1)), n, window)
		if again := Stratify(rand.New(rand.NewPCG(seed, 1)), n, window); !slices.Equal(slots, again) {
			t.Fatal("the same seed gives other slots")
		}
		if len(slots) != n {
			t.Fatalf("%d slots, want %d", len(slots), n)
		}
		var before time.Duration
		for k, s := range slots {
			if s.At < before || s.At > s.Until {
				t.Fatalf("slot %d at %v is outside [%v, %v]", k, s.At, before, s.Until)
			}
			before = s.Until
		}
		if before > window || before < window-time.Microsecond {
			t.Fatalf("the slots end at %v, want %v", before, window)
		}
	})
}

func TestStratifyIsUniform(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const draws, bins = 4000, 8
	var hits [bins]int
	for range draws {
		for _, s := range Stratify(rng, 2, 2*time.Second) {
			hits[int(s.At%time.Second*bins/time.Second)]++
		}
	}
	for bin, n := range hits {
		// The standard deviation of the number of probes in a bin is 30.
		if math.Abs(float64(n)-2*draws/bins) > 150 {
			t.Errorf("bin %d was hit %d times, want about %d", bin, n, 2*draws/bins)
		}
	}
}

func TestFitSize(t *testing.T) {
	for _, c := range []struct {
		name     string
		capacity float64 // 0: unknown
		size     int64
		count    int
		budget   float64
		period   time.Duration
		want     int64
		fails    string
	}{
		{name: "2% of 40 Mbit/s over 1 s, one in 100 ms", capacity: 40e6, period: time.Second, want: 10_000 - headerBytes},
		{name: "as much over 10 s", capacity: 40e6, period: 10 * time.Second, want: 10_000 - headerBytes},
		{name: "fewer where they would be small", capacity: 10e6, period: time.Second, want: 3_125 - headerBytes},
		{name: "eight at least", capacity: 40e6, count: 8, period: time.Second, want: 12_500 - headerBytes},
		{name: "twice the probes, half the size", capacity: 40e6, count: 16, period: time.Second, want: 6_250 - headerBytes},
		{name: "never above 1 MB", capacity: 10e9, period: 10 * time.Second, want: 1_000_000},
		{name: "a given size within the budget", capacity: 40e6, size: 5000, period: time.Second, want: 5000},
		{name: "a given size above it shrinks", capacity: 40e6, size: 50_000, period: time.Second, want: 12_500 - headerBytes},
		{name: "a given size above 1 MB within it", capacity: 10e9, size: 2 << 20, period: 10 * time.Second, want: 2 << 20},
		{name: "a given size needs no capacity", size: 5000, period: time.Second, want: 5000},
		{name: "neither size nor capacity", period: time.Second, fails: "set probe.capacity"},
		{name: "too small to measure", capacity: 1e6, period: time.Second, fails: "probe.budget"},
		{name: "the budget makes room", capacity: 1e6, budget: 0.1, period: time.Second, want: 1562 - headerBytes},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Size: c.size, Count: c.count, Budget: c.budget, Period: c.period}
			if c.capacity > 0 {
				o.Capacity = &c.capacity
			}
			p, err := NewProber(o)
			if c.fails != "" {
				mustBeUsers(t, err, c.fails)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.Size() != c.want {
				t.Errorf("%d bytes, want %d", p.Size(), c.want)
			}
		})
	}
}

func TestTheBudgetIsAHardCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Float64Range(1e6, 1e11).Draw(t, "capacity")
		o := Options{
			Capacity: &capacity,
			Budget:   rapid.Float64Range(0.001, 1).Draw(t, "budget"),
			Count:    rapid.IntRange(8, 100).Draw(t, "count"),
			Size:     rapid.Int64Range(0, mostServed).Draw(t, "size"),
			Period:   time.Duration(rapid.Int64Range(int64(100*time.Millisecond), int64(time.Minute)).Draw(t, "period")),
		}
		p, err := NewProber(o)
		if err != nil {
			mustBeUsers(t, err, "probe.budget")
			return
		}
		bits := float64(o.Count) * float64(p.Size()+headerBytes) * 8
		if limit := o.Budget * capacity * o.Period.Seconds(); bits > limit*(1+1e-9) {
			t.Fatalf("%v bits a period, allowed are %v", bits, limit)
		}
		if p.Size() > mostServed || p.Size() < 1 {
			t.Fatalf("a probe of %d bytes", p.Size())
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	bad, capacity := math.NaN(), 1e9
	for _, c := range []struct {
		name  string
		o     Options
		fails string
	}{
		{"no period", Options{Capacity: &capacity}, "sampling"},
		{"too few probes", Options{Capacity: &capacity, Period: time.Second, Count: 7}, "at least 8"},
		{"negative count", Options{Capacity: &capacity, Period: time.Second, Count: -1}, "at least 8"},
		{"negative size", Options{Period: time.Second, Size: -1}, "probe.size"},
		{"larger than any server answers", Options{Period: time.Second, Size: mostServed + 1}, "probe.size"},
		{"no share", Options{Capacity: &capacity, Period: time.Second, Budget: 2}, "probe.budget"},
		{"NaN share", Options{Capacity: &capacity, Period: time.Second, Budget: bad}, "probe.budget"},
		{"NaN capacity", Options{Capacity: &bad, Period: time.Second}, "probe.capacity"},
		{"timeout above the period", Options{Capacity: &capacity, Period: time.Second, Timeout: 2 * time.Second}, "probe.timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewProber(c.o)
			mustBeUsers(t, err, c.fails)
		})
	}
}

func TestSummarise(t *testing.T) {
	for _, c := range []struct {
		singles []float64
		want    quell.ProbeStats
		ok      bool
	}{
		{nil, quell.ProbeStats{}, false},
		{[]float64{7}, quell.ProbeStats{MeanMS: 7, N: 1}, true},
		{[]float64{1, 3}, quell.ProbeStats{MeanMS: 2, StddevMS: math.Sqrt2, N: 2}, true},
		{[]float64{5, 5, 5}, quell.ProbeStats{MeanMS: 5, N: 3}, true},
	} {
		got, ok := Summarise(c.singles)
		if got != c.want || ok != c.ok {
			t.Errorf("%v: got %+v, %t; want %+v, %t", c.singles, got, ok, c.want, c.ok)
		}
	}
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

func mustBeUsers(t fataler, err error, want string) {
	t.Helper()
	var user *quell.UserError
	if !errors.As(err, &user) || !strings.Contains(err.Error(), want) {
		t.Fatalf("error %v, want a user's mistake that names %q", err, want)
	}
}
