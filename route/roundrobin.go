package route

import "math"

// RoundRobin is smooth weighted round robin as in nginx: in every round each candidate earns its share of one request, and
// the one with the highest credit is picked and pays one. Weights 5, 1, 1 give A A B A C A A, not A A A A A B C.
//
// Credits are in requests, not in weights, so that they stay valid when weights are rescaled. As long as the group stays
// the same, the credits sum to zero and each stays above -1. So if weights are integers, each candidate gets exactly its
// weight in requests per cycle of as many requests as the weights sum to, in spite of ties and rounding. If weights change,
// picking the highest credit first keeps credits within the logarithm of the group's size. The credit of a candidate that is
// not among those to pick from stays the same.
type RoundRobin struct{}

// newRoundRobin returns a smooth weighted round robin. Its state is in the candidates.
func newRoundRobin() *RoundRobin { return &RoundRobin{} }

// Pick implements Picker.
func (*RoundRobin) Pick(candidates []*Candidate) (int, bool) {
	total := totalWeight(candidates)
	best, highest := -1, math.Inf(-1)
	for i, c := range candidates {
		if !c.pickable() {
			continue
		}
		c.credit += c.Weight / total
		if c.credit > highest {
			best, highest = i, c.credit
		}
	}
	if best < 0 {
		return 0, false
	}
	candidates[best].credit--
	return best, true
}
