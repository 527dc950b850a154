package route

import (
	"math"

	"github.com/quellhq/quell"
)

// LeastConn picks the candidate with the smallest (inflight + 1) / weight. Equal candidates are picked in turns, so that an
// idle group with equal weights is used evenly.
type LeastConn struct{ lowest }

// newLeastConn returns weighted least connections.
func newLeastConn() *LeastConn { return &LeastConn{newLowest((*Candidate).load)} }

// NewIdleFirst returns least connections as HAProxy has it: an idle candidate is picked whatever its weight.
func NewIdleFirst() Picker { return &LeastConn{newLowest((*Candidate).unlessIdle)} }

// NewIndexedIdleFirst is like NewIdleFirst, but returns an Indexed.
func NewIndexedIdleFirst() Indexed { return &indexedLowest{lowest: newLowest((*Candidate).unlessIdle)} }

// unlessIdle is load, but 0 for a candidate without requests.
func (c *Candidate) unlessIdle() float64 {
	if c.InFlight == 0 {
		return 0
	}
	return c.load()
}

// lowest picks the candidate with the lowest cost, and equal ones in turns.
type lowest struct {
	cost func(*Candidate) float64
	last int
}

func newLowest(cost func(*Candidate) float64) lowest { return lowest{cost, -1} }

// Pick implements Picker.
func (l *lowest) Pick(candidates []*Candidate) (int, bool) {
	best, least := -1, math.Inf(1)
	for k := range candidates {
		i := (l.last + 1 + k) % len(candidates)
		c := candidates[i]
		if !c.pickable() {
			continue
		}
		if cost := l.cost(c); best < 0 || cost < least*(1-quell.SumTolerance) {
			best, least = i, cost
		}
	}
	if best < 0 {
		return 0, false
	}
	l.last = best
	return best, true
}
