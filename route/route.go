// Package route decides which instance gets the next request. It is pure; the live balancer and the simulator use the same
// code. A Picker is not safe for concurrent use: its caller holds a lock, and updates Candidate.InFlight under the same lock.
package route

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/quellhq/quell"
)

// Candidate is an instance as a Picker sees it. The caller must keep the same Candidate as long as the instance exists,
// because pickers store data in it.
type Candidate struct {
	Weight   float64 // relative to the others'; candidates with 0 (or anything that is not a positive finite number) are never picked
	InFlight int64   // requests sent and not yet answered

	credit  float64  // round robin: requests owed to it (positive) or sent ahead (negative)
	peak    peak     // ewma: peak average of the times of answers
	times   *times   // leasttime: times of the newest answers; nil if there are none yet
	answers *answers // prequal: the newest answers; nil if there are none yet
}

// Picker chooses the index of the candidate for the next request. ok is false if no candidate has a weight above 0. The
// caller passes only candidates that may be picked now: they are healthy and do not drain. Candidates and weights may change
// between calls. Every implementation takes at most linear time in the number of candidates (3 to 5 µs for 1000) and
// allocates nothing. For groups of thousands use Indexed. Some Pickers are also Learners.
type Picker interface {
	Pick(candidates []*Candidate) (index int, ok bool)
}

// New returns the picker of a scheduling. Schedulings that draw at random use the seed.
func New(s quell.Scheduling, seed uint64) (Picker, error) {
	table := map[quell.Scheduling]func() Picker{
		quell.RoundRobin: func() Picker { return newRoundRobin() },
		quell.LeastConn:  func() Picker { return newLeastConn() },
		quell.Random2:    func() Picker { return newRandom2(source(seed)) },
		quell.EWMA:       func() Picker { return newEWMA(source(seed)) },
		quell.LeastTime:  func() Picker { return newLeastTime() },
		quell.Prequal:    func() Picker { return newPrequal(source(seed)) },
	}
	construct, known := table[s]
	if !known {
		return nil, fmt.Errorf("unknown scheduling %q (known: %v)", s, quell.Schedulings)
	}
	return construct(), nil
}

// stream makes the pickers' random numbers independent of those of arrivals, neighbours and probes with the same seed.
const stream = 4 << 32

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

func (c *Candidate) pickable() bool { return c.Weight > 0 && c.Weight <= math.MaxFloat64 }

// load is the candidate's load with one more request: (inflight + 1) / weight.
func (c *Candidate) load() float64 { return float64(c.InFlight+1) / c.Weight }

func totalWeight(candidates []*Candidate) float64 {
	total := 0.0
	for _, c := range candidates {
		if c.pickable() {
			total += c.Weight
		}
	}
	return total
}
