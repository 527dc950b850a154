package route

import "math"

// indexedRoundRobin is RoundRobin with credits as straight lines. As long as a candidate is not picked, its credit grows by
// its share of every request, so after r requests it is base + share * r. The tree keeps the highest line (the winner) of
// every subtree, and the r until which that line stays the highest. As r grows, only subtrees whose winner changes are
// evaluated again (a kinetic tournament).
type indexedRoundRobin struct {
	candidates []*Candidate
	base       []float64 // credit of each candidate at r = 0
	share      []float64 // credit that each candidate gains per request; candidates with 0 are never picked
	requests   float64   // r
	winner     []int32
	until      []float64 // the r at which a winner below may change
}

// Reset sets new candidates or weights. The candidates keep their credits.
func (t *indexedRoundRobin) Reset(candidates []*Candidate) {
	t.settle()
	t.candidates, t.requests = candidates, 0
	leaves := leavesFor(len(candidates))
	t.base, t.share = make([]float64, leaves), make([]float64, leaves)
	t.winner, t.until = make([]int32, 2*leaves), make([]float64, 2*leaves)
	total := totalWeight(candidates)
	for i := range leaves {
		t.base[i], t.winner[leaves+i], t.until[leaves+i] = math.Inf(-1), int32(i), math.Inf(1)
		if i < len(candidates) && candidates[i].pickable() {
			t.base[i], t.share[i] = candidates[i].credit, candidates[i].Weight/total
		}
	}
	for i := leaves - 1; i > 0; i-- {
		t.play(i)
	}
}

// settle writes the credits back into the candidates.
func (t *indexedRoundRobin) settle() {
	for i, c := range t.candidates {
		if t.share[i] > 0 {
			c.credit = t.credit(int32(i))
		}
	}
}

func (*indexedRoundRobin) Changed(int) {}

// rebase is the number of requests after which credits are written out, so that rounding errors do not accumulate.
const rebase = 1 << 24

func (t *indexedRoundRobin) Pick() (int, bool) {
	if len(t.candidates) == 0 {
		return 0, false
	}
	if t.requests >= rebase {
		t.Reset(t.candidates)
	}
	t.requests++
	t.refresh(1)
	best := t.winner[1]
	if t.share[best] == 0 {
		t.requests--
		return 0, false
	}
	t.base[best]--
	for n := (len(t.base) + int(best)) / 2; n > 0; n /= 2 {
		t.play(n)
	}
	return int(best), true
}

func (t *indexedRoundRobin) credit(i int32) float64 { return t.base[i] + t.share[i]*t.requests }

// refresh evaluates those subtrees again whose winner may have changed.
func (t *indexedRoundRobin) refresh(node int) {
	if t.until[node] > t.requests {
		return
	}
	t.refresh(2 * node)
	t.refresh(2*node + 1)
	t.play(node)
}

// play finds the winner of two subtrees, and the r at which it may change. Of two equal credits the one with the lower index
// wins, unless the other grows faster.
func (t *indexedRoundRobin) play(node int) {
	a, b := t.winner[2*node], t.winner[2*node+1]
	if t.credit(b) > t.credit(a) {
		a, b = b, a
	}
	t.winner[node] = a
	t.until[node] = min(t.until[2*node], t.until[2*node+1])
	if gain := t.share[b] - t.share[a]; gain > 0 {
		meet := t.requests + (t.credit(a)-t.credit(b))/gain
		t.until[node] = min(t.until[node], max(meet, t.requests+1))
	}
}
