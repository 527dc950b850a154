package route

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/quellhq/quell"
)

// Indexed picks like a Picker, but in a time that is logarithmic in the number of candidates (round robin: its square, on
// average over many picks). It is for groups that are so large that examining all candidates for every request takes too
// long. The caller must report changes.
type Indexed interface {
	// Reset sets new candidates, or new weights.
	Reset(candidates []*Candidate)
	// Changed says that InFlight of candidate i changed.
	Changed(i int)
	// Pick returns the index of the candidate for the next request; ok is false if none has a weight.
	Pick() (index int, ok bool)
}

// NewIndexed is like New, but returns an Indexed.
func NewIndexed(s quell.Scheduling, seed uint64) (Indexed, error) {
	switch s {
	case quell.LeastConn:
		return newIndexedLeastConn(), nil
	case quell.RoundRobin:
		return &indexedRoundRobin{}, nil
	case quell.Random2:
		return &indexedRandom2{rng: source(seed)}, nil
	case quell.EWMA:
		return newIndexedEWMA(source(seed)), nil
	case quell.LeastTime:
		return newIndexedLeastTime(), nil
	case quell.Prequal:
		return &indexedPrequal{Prequal: Prequal{rng: source(seed)}}, nil
	}
	return nil, fmt.Errorf("unknown scheduling %q (known: %v)", s, quell.Schedulings)
}

// leavesFor is the smallest power of two that is at least n.
func leavesFor(n int) int {
	leaves := 1
	for leaves < n {
		leaves *= 2
	}
	return leaves
}

// newIndexedLeastConn returns LeastConn on a tree.
func newIndexedLeastConn() *indexedLowest {
	return &indexedLowest{lowest: newLowest((*Candidate).load)}
}

// indexedLowest is lowest on a tree that keeps the lowest cost of every subtree.
type indexedLowest struct {
	lowest
	candidates []*Candidate
	least      []float64
}

func (l *indexedLowest) Reset(candidates []*Candidate) {
	l.candidates = candidates
	leaves := leavesFor(len(candidates))
	l.least = make([]float64, 2*leaves)
	for i := range leaves {
		l.least[leaves+i] = l.costOf(i)
	}
	for i := leaves - 1; i > 0; i-- {
		l.least[i] = min(l.least[2*i], l.least[2*i+1])
	}
}

func (l *indexedLowest) costOf(i int) float64 {
	if i >= len(l.candidates) || !l.candidates[i].pickable() {
		return math.Inf(1)
	}
	return l.cost(l.candidates[i])
}

func (l *indexedLowest) Changed(i int) {
	n := len(l.least)/2 + i
	l.least[n] = l.costOf(i)
	for n /= 2; n > 0; n /= 2 {
		least := min(l.least[2*n], l.least[2*n+1])
		if l.least[n] == least {
			return
		}
		l.least[n] = least
	}
}

// Pick returns a candidate with the lowest cost, apart from rounding. Of several it returns the first after the one picked last.
func (l *indexedLowest) Pick() (int, bool) {
	if len(l.candidates) == 0 || math.IsInf(l.least[1], 1) {
		return 0, false
	}
	bound := l.least[1] / (1 - quell.SumTolerance)
	i := l.first(1, 0, len(l.least)/2, (l.last+1)%len(l.candidates), bound)
	if i < 0 {
		i = l.first(1, 0, len(l.least)/2, 0, bound)
	}
	l.last = i
	return i, true
}

// first returns the first leaf of the node's subtree, not before the leaf from, whose cost is at most bound. It returns -1
// if there is none.
func (l *indexedLowest) first(node, begin, width, from int, bound float64) int {
	if begin+width <= from || l.least[node] > bound {
		return -1
	}
	if width == 1 {
		return begin
	}
	if i := l.first(2*node, begin, width/2, from, bound); i >= 0 {
		return i
	}
	return l.first(2*node+1, begin+width/2, width/2, from, bound)
}

// indexedRandom2 is Random2 with cumulative sums of the weights.
type indexedRandom2 struct {
	candidates []*Candidate
	sums       []float64
	rng        *rand.Rand
}

func (r *indexedRandom2) Reset(candidates []*Candidate) {
	r.candidates, r.sums = candidates, make([]float64, len(candidates))
	total := 0.0
	for i, c := range candidates {
		if c.pickable() {
			total += c.Weight
		}
		r.sums[i] = total
	}
}

func (*indexedRandom2) Changed(int) {}

func (r *indexedRandom2) Pick() (int, bool) {
	if !r.any() {
		return 0, false
	}
	first := r.draw()
	second := r.drawBeside(first)
	if r.candidates[second].load() < r.candidates[first].load() {
		return second, true
	}
	return first, true
}

// any returns whether there is a candidate to draw.
func (r *indexedRandom2) any() bool { return len(r.sums) > 0 && r.sums[len(r.sums)-1] > 0 }

func (r *indexedRandom2) draw() int { return r.find(r.rng.Float64() * r.sums[len(r.sums)-1]) }

// drawBeside draws a second, different candidate, if there is one.
func (r *indexedRandom2) drawBeside(first int) int {
	weight := r.candidates[first].Weight
	sought := r.rng.Float64() * (r.sums[len(r.sums)-1] - weight)
	if sought >= r.sums[first]-weight {
		sought += weight
	}
	return r.find(sought)
}

// find returns the first candidate whose cumulative sum is above sought, a part of the total.
func (r *indexedRandom2) find(sought float64) int {
	sought = min(sought, math.Nextafter(r.sums[len(r.sums)-1], 0))
	low, high := 0, len(r.sums)-1
	for low < high {
		middle := (low + high) / 2
		if r.sums[middle] > sought {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}
