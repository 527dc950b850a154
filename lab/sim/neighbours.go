package sim

import (
	"math"
	"math/rand/v2"
)

// neighbours are other tenants' flows at a station: they come at random (Poisson), open loop, each with the same work.
// As the emulated testbed's, a flow that would have to wait behind too much of their own work is dropped.
type neighbours struct {
	rng       *rand.Rand // nil: there are none yet
	next      float64    // when the next one comes
	perSecond float64
	work      float64 // of one
	dropped   float64 // work
}

// backlogSeconds is how much work of their own neighbours let wait, in time of the whole resource.
const backlogSeconds = 5

// setNeighbours sets the share of the resource that neighbours ask for. A change keeps what has passed of the gap. Seed and
// stream matter to the first call.
func (s *station) setNeighbours(now, use, work float64, seed, stream uint64) {
	n := &s.neighbours
	gap := 0.0
	if n.rng == nil {
		n.rng = rand.New(rand.NewPCG(seed, stream))
		gap = n.rng.ExpFloat64()
	} else if n.perSecond > 0 {
		gap = (n.next - now) * n.perSecond
	} else {
		gap = n.rng.ExpFloat64()
	}
	n.work, n.perSecond = work, use*s.servers/work
	n.next = math.Inf(1)
	if n.perSecond > 0 {
		n.next = now + gap/n.perSecond
	}
}

func (s *station) arriveNeighbour() {
	n := &s.neighbours
	s.advance(n.next)
	if s.arrived[ownNeighbours]-s.carried(ownNeighbours)+n.work > backlogSeconds*s.servers {
		n.dropped += n.work
	} else {
		s.add(n.next, n.work, ownNeighbours, nobody)
	}
	n.next += n.rng.ExpFloat64() / n.perSecond
}
