package model

import (
	"testing"

	"github.com/quellhq/quell"
)

// steady are the snapshots of a group of n whose use goes up and down a little.
func (w *lawWorld) steady(law *GroupLaw, n, period int) *quell.Snapshot {
	s := w.grouped(law, n, 6+period%4)
	s.Scheduling = quell.LeastConn
	return s
}

// More or fewer instances at the same use answer at another time, which is no release. One that comes then is noticed all the same.
func TestAGroupThatGrowsIsNoRelease(t *testing.T) {
	calm := GroupLaw{R0MS: 10, Pooling: 0.9, Exponent: 1, Ratio: RatioOf(quell.Mean, 1)}
	for seed := range uint64(2) {
		learned := map[int]*Learner{}
		for _, n := range []int{2, 4, 8} {
			w := newLawWorld(seed)
			for p := range 60 {
				learned[n] = learned[n].Learn(w.steady(&calm, n, p), learnedSLO)
			}
		}
		for _, tc := range []struct {
			before, after int
			times         float64
			release       bool
		}{
			{2, 4, 1, false}, {4, 2, 1, false}, {4, 8, 1, false}, {8, 4, 1, false},
			{2, 2, 0.5, true}, {2, 2, 1.5, true}, {2, 4, 2, true}, {4, 2, 0.5, true},
		} {
			truth, w, l := calm, newLawWorld(seed+100), learned[tc.before]
			truth.R0MS, w.period = tc.times*calm.R0MS, 60
			for p := range 12 {
				l = l.Learn(w.steady(&truth, tc.after, p), learnedSLO)
			}
			if drifted := l.Seen[quell.Network][AnyType].Drifted; (drifted > 0) != tc.release {
				t.Errorf("seed %d, from %d to %d instances, times x%v: drifted %d, want it %v", seed, tc.before, tc.after, tc.times, drifted,
					tc.release)
			}
		}
	}
}
