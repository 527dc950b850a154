package parallel_test

import (
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell/internal/parallel"
)

func TestEveryElementOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	rapid.Check(t, func(t *rapid.T) {
		runtime.GOMAXPROCS(rapid.IntRange(1, 9).Draw(t, "processors"))
		visits := make([]int, rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(990, 20_000)).Draw(t, "n"))
		parallel.Each(len(visits), func(i int) { visits[i]++ })
		if slices.ContainsFunc(visits, func(v int) bool { return v != 1 }) {
			t.Fatal("an element was not visited exactly once")
		}
	})
}

func TestAShortListIsOnePart(t *testing.T) {
	parts := 0
	parallel.Parts(1999, func(from, to int) {
		if parts++; from != 0 || to != 1999 {
			t.Errorf("part from %d to %d", from, to)
		}
	})
	if parts != 1 {
		t.Errorf("%d parts, want 1", parts)
	}
}

func TestTogetherCallsAll(t *testing.T) {
	for _, n := range []int{1, 5000} {
		var called [3]bool
		parallel.Together(n, func() { called[0] = true }, func() { called[1] = true }, func() { called[2] = true })
		if called != [3]bool{true, true, true} {
			t.Errorf("with %d elements, called were %v", n, called)
		}
	}
}
