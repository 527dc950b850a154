package route

import "math"

// RoundRobin is smooth weighted round robin as in nginx: in every round each candidate earns its share of one request, and
// the one with the highest credit is picked and pays one. Weights 5, 1, 1 give A A B A C A A, not A A A A A B C.
//
// Credits are in requests, not in weights, so that they stay valid when weights are rescaled. As long as the group stays
// the same they sum to zero and each stays above -1, so integer weights are exact over each cycle of their sum, whatever
// ties and rounding do. Serving the largest credit first keeps them within the logarithm of the group's size when weights
// change. A candidate that is left out neither gains nor loses.
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
