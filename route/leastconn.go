package route

import (
	"math"

	"github.com/quellhq/quell"
)

// LeastConn picks the candidate with the smallest (inflight + 1) / weight. Equal candidates are picked in turns, so that an
// idle group with equal weights is used evenly.
type LeastConn struct {
	last int
}

// newLeastConn returns weighted least connections.
func newLeastConn() *LeastConn { return &LeastConn{last: -1} }

// Pick implements Picker.
func (l *LeastConn) Pick(candidates []*Candidate) (int, bool) {
	best, lowest := -1, math.Inf(1)
	for k := range candidates {
		i := (l.last + 1 + k) % len(candidates)
		c := candidates[i]
		if !c.pickable() {
			continue
		}
		if load := c.load(); best < 0 || load < lowest*(1-quell.SumTolerance) {
			best, lowest = i, load
		}
	}
	if best < 0 {
		return 0, false
	}
	l.last = best
	return best, true
}
