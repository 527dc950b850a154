package acs

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// What groups use that have all processors to themselves, computed by hand.
func TestUsedAlone(t *testing.T) {
	for _, c := range []struct {
		name                string
		free, chains, total float64
		want                float64
	}{
		{"a processor for each chain", 1.2, 2, 2, 1.2},
		{"chains that never sleep", 8, 8, 2, 2},
		{"fewer of them than processors", 1, 1, 2, 1},
		// With k of four chains ready, 1 4 6 6 3 are the probabilities, times 20.
		{"four that work half of the time, on two processors", 2, 4, 2, 34. / 20},
		// 1 3 3 1.5 times 8.5.
		{"three of these", 1.5, 3, 2, 12 / 8.5},
		{"two of these on one processor", 1, 2, 1, 4. / 5},
		// It works 2.5 times as long, and sleeps as long as before.
		{"one of these on 0.4 processors", 0.5, 1, 0.4, 2.5 / 3.5 * 0.4},
		{"between two and three, of which the mean is taken", 1.25, 2.5, 2, 1.25 * (1 + 12/8.5/1.5) / 2},
		{"a hundred that nearly always sleep", 1.5, 100, 2, 1.5},
		{"no processors", 1, 2, 0, 0},
		{"more than there are chains for", 3, 2.5, 2, 2},
	} {
		if got := usedAlone(c.free, c.chains, c.total); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %.4f processors, want %.4f", c.name, got, c.want)
		}
	}
}

// A group never uses more alone than it wants, or than there is, and uses more if it wants more.
func TestUsedAloneStaysWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chains := rapid.Float64Range(0.01, 100).Draw(t, "chains")
		total := rapid.Float64Range(0.001, 200).Draw(t, "processors")
		works := rapid.Float64Range(1e-9, 1).Draw(t, "works")
		got, less := usedAlone(works*chains, chains, total), usedAlone(works*chains*0.9, chains, total)
		if !(got > 0) || got > works*chains || got > total || less > got*(1+1e-9) {
			t.Fatalf("%v processors, and %v if they work for 90%% of that", got, less)
		}
	})
}
