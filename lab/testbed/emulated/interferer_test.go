package emulated

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func newLink(t testing.TB, bitsPerSecond int64) *Link {
	l, err := NewLink(LinkOptions{BitsPerSecond: bitsPerSecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func newInterferer(t testing.TB, o InterfererOptions) *Interferer {
	i, err := NewInterferer(o)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestNeighboursCarryWhatTheyAskFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, 40_000_000)
		i := newInterferer(t, InterfererOptions{Link: l, Seed: 1})
		var before uint64
		for _, use := range []float64{0.4, 0.1, 0, 0.7} {
			if err := i.SetUse(use); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second) // flows of the last use that are still open end
			before = l.Counters().Neighbours
			time.Sleep(1000 * time.Second)
			carried := float64(l.Counters().Neighbours-before) * 8 / 1000 / 40e6
			// The number of flows in 1000 s is Poisson-distributed: its standard deviation is the root of its mean.
			flows := use * 40e6 / 8 / defaultFlowBytes * 1000
			if math.Abs(carried-use) > 4*use/math.Sqrt(max(flows, 1)) {
				t.Errorf("asked for %v, carried %v", use, carried)
			}
		}
	})
}

func TestOverloadIsBoundedAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, 40_000_000)
		i := newInterferer(t, InterfererOptions{Link: l, Backlog: 2 * time.Second, Seed: 1})
		if err := i.SetUse(3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Second)
		c := l.Counters()
		if full := 40e6 / 8 * 100; float64(c.Neighbours) < 0.99*full || float64(c.Neighbours) > full {
			t.Errorf("carried %d bytes in 100 s of overload, want about %v", c.Neighbours, full)
		}
		if want := 2 * 40e6 / 8 * 100; math.Abs(float64(c.Dropped)-want) > 0.05*want {
			t.Errorf("dropped %d bytes, want about %v", c.Dropped, want)
		}
		if err := i.SetUse(0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2100 * time.Millisecond)
		end := l.Counters().Neighbours
		time.Sleep(10 * time.Second)
		if left := l.Counters().Neighbours - end; left != 0 {
			t.Errorf("%d bytes still crossed once the backlog's 2 s were over", left)
		}
	})
}

// The times of the flows depend only on the seed and on the changes of the rate. If the rate changes during a gap between flows, the
// elapsed part of the gap counts.
func TestNeighbourGapsSurviveRateChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		a, b := newNeighbours(1, seed), newNeighbours(1, seed)
		a.setRate(0, 10)
		b.setRate(0, 10)
		first, _ := a.next()
		at := time.Duration(rapid.Int64Range(0, int64(first)).Draw(t, "at"))
		b.setRate(at, 5)
		got, _ := b.next()
		if want := at + 2*(first-at); (got - want).Abs() > time.Microsecond {
			t.Fatalf("at half the rate from %v on the flow of %v came at %v, want %v", at, first, got, want)
		}
		b.setRate(at, 0)
		if at, ok := b.next(); ok {
			t.Fatalf("at rate 0 a flow at %v", at)
		}
		b.setRate(at, 10)
		if got, _ := b.next(); (got - first).Abs() > time.Microsecond {
			t.Fatalf("back at the old rate at once the flow came at %v, want %v", got, first)
		}
	})
}

func TestInterfererMistakes(t *testing.T) {
	l := newLink(t, 40_000_000)
	i := newInterferer(t, InterfererOptions{Link: l})
	for _, use := range []float64{-0.1, math.NaN(), math.Inf(1)} {
		if i.SetUse(use) == nil {
			t.Errorf("use %v was accepted", use)
		}
	}
	for name, o := range map[string]InterfererOptions{
		"a second one":            {Link: l},
		"negative flows":          {Link: newLink(t, 8000), FlowBytes: -1},
		"flows above the backlog": {Link: newLink(t, 8000), FlowBytes: 16 << 10},
	} {
		if _, err := NewInterferer(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
