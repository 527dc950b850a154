package route

import "math/rand/v2"

// Random2 draws two candidates with replacement, each with a probability proportional to its weight, and picks the one
// with the smaller (inflight + 1) / weight: nearly as even as least connections, without every balancer in front of a
// service rushing to the same idle instance.
type Random2 struct {
	rng *rand.Rand
}

// NewRandom2 returns weighted power of two choices over the given source.
func NewRandom2(rng *rand.Rand) *Random2 { return &Random2{rng: rng} }

// Pick implements Picker.
func (r *Random2) Pick(candidates []*Candidate) (int, bool) {
	total := totalWeight(candidates)
	if total == 0 {
		return 0, false
	}
	first, second := draw(r.rng, candidates, total, -1), draw(r.rng, candidates, total, -1)
	if candidates[second].load() < candidates[first].load() {
		return second, true
	}
	return first, true
}

// draw returns a candidate by weight, but never the excepted one; -1 if there is no other. The weights of those that
// may be drawn sum to total.
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
	return last // rounding may leave a crumb after the last one
}
