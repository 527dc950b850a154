package route

import "math/rand/v2"

// Random2 draws two different candidates, each with a probability proportional to its weight, and picks the one with the
// smaller (inflight + 1) / weight, or the first if these are equal. It is nearly as even as least connections, and several
// balancers of a service do not all choose the same idle instance. The two candidates are always different, as in EWMA,
// nginx and Finagle. HAProxy and Envoy may draw the same one twice; in a group of two, this sends a quarter of the requests
// to the busier one, whatever its load is.
type Random2 struct {
	rng *rand.Rand
}

// newRandom2 returns weighted power of two choices over the given source.
func newRandom2(rng *rand.Rand) *Random2 { return &Random2{rng: rng} }

// Pick implements Picker.
func (r *Random2) Pick(candidates []*Candidate) (int, bool) {
	total := totalWeight(candidates)
	if total == 0 {
		return 0, false
	}
	first := draw(r.rng, candidates, total, -1)
	second := draw(r.rng, candidates, total-candidates[first].Weight, first)
	if second >= 0 && candidates[second].load() < candidates[first].load() {
		return second, true
	}
	return first, true
}

// draw returns a random candidate with a probability proportional to its weight, but never the candidate except. If there is
// no other, it returns -1. total is the sum of the weights of the candidates that may be drawn.
func draw(rng *rand.Rand, candidates []*Candidate, total float64, except int) int {
	left, last := rng.Float64()*total, -1
	for i, c := range candidates {
		if !c.pickable() || i == except {
			continue
		}
		last = i
		if left -= c.Weight; left < 0 {
			break
		}
	}
	return last // rounding may leave a small rest after the last one
}
