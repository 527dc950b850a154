// Package switchback compares a policy with the weights of before by handing control back in short random turns, and estimates what acting
// saves. It is pure.
package switchback

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quellhq/quell"
)

// Schedule says in which turns control is handed back. Turns come in blocks of two, in one of which control is handed back; a coin for each
// block says in which. So what changes slowly, such as the load of the day, is the same for both.
type Schedule struct {
	Seed  uint64        `json:"seed"`
	Turn  time.Duration `json:"turn_ns"`
	Turns int           `json:"turns"` // an even number
}

// Least is the smallest number of turns of a comparison.
const Least = 2 * leastBlocks

// New returns the schedule of whole blocks that fits into a time.
func New(seed uint64, turn, total time.Duration) Schedule {
	return Schedule{Seed: seed, Turn: turn, Turns: 2 * int(total/(2*turn))}
}

// Length is how long the schedule takes.
func (s Schedule) Length() time.Duration { return time.Duration(s.Turns) * s.Turn }

// At returns the turn at a time after the beginning, false after the end.
func (s Schedule) At(began time.Time, elapsed time.Duration) (*quell.Turn, bool) {
	if elapsed < 0 || elapsed >= s.Length() {
		return nil, false
	}
	number := int(elapsed / s.Turn)
	return &quell.Turn{Began: began, Number: number, Back: s.back(number), AgeS: (elapsed % s.Turn).Seconds()}, true
}

func (s Schedule) back(number int) bool {
	second := rand.New(rand.NewPCG(s.Seed, uint64(number/2))).IntN(2) == 1
	return second == (number%2 == 1)
}

// HandBack replaces a plan's shares by those of before Quell: the base weights that people gave, equal ones where nobody gave any. Shares
// that a person set with an override stay, and the size of the group stays the policy's.
func HandBack(plan *quell.Plan, s *quell.Snapshot) {
	base, sum, free := map[string]float64{}, 0.0, 1.0
	for i := range s.Instances {
		in := &s.Instances[i]
		share, planned := plan.Weights[in.ID]
		switch {
		case planned && in.Override != nil:
			free -= share
		case planned && in.State == quell.Ready:
			base[in.ID] = in.BaseWeight()
			sum += base[in.ID]
		}
	}
	if sum <= 0 || free <= 0 {
		return
	}
	shares := make(map[string]float64, len(plan.Weights))
	for i := range s.Instances {
		in := &s.Instances[i]
		share, planned := plan.Weights[in.ID]
		switch {
		case planned && in.Override != nil:
			shares[in.ID] = share
		case planned:
			shares[in.ID] = free * base[in.ID] / sum
		}
	}
	plan.Weights, plan.Factor = shares, nil
	plan.Reasons = append(plan.Reasons, quell.Reason{Code: "handed_back",
		Text: fmt.Sprintf("the shares are those of before Quell in turn %d of a comparison", s.Turn.Number+1)})
}
