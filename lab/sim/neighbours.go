package sim

import (
	"math"
	"math/rand/v2"
)

// neighbours are the work of other tenants at a station, or the work of the instance itself that is not for requests. Pieces of equal size
// arrive at random (Poisson), whatever the state of the station. As in the emulated testbed, a piece is dropped if too much of this work
// waits already.
type neighbours struct {
	rng       *rand.Rand // nil until the first neighbours come
	next      float64    // when the next piece arrives
	perSecond float64
	work      float64 // of one piece
	dropped   float64 // work
}

// backlogSeconds is how much of the neighbours' work may wait, in seconds of the whole resource.
const backlogSeconds = 5

// setNeighbours sets the share of the resource that neighbours ask for; see neighbours.set.
func (s *station) setNeighbours(now, use, work float64, seed, stream uint64) {
	s.neighbours.set(s, now, use, work, seed, stream)
}

// setChores sets the share of the resource that the instance's own work asks for, beside its requests.
func (s *station) setChores(now, use, work float64, seed, stream uint64) {
	s.chores.set(s, now, use, work, seed, stream)
}

// set sets the share of the resource that is asked for. If the share changes, the time since the last piece still counts
// towards the next one. seed and stream matter only in the first call.
func (n *neighbours) set(s *station, now, use, work float64, seed, stream uint64) {
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

func (s *station) arrive(n *neighbours, who owner) {
	s.advance(n.next)
	if s.arrived[who]-s.carried(who)+n.work > backlogSeconds*s.servers {
		n.dropped += n.work
	} else {
		s.add(n.next, n.work, who, nobody)
	}
	n.next += n.rng.ExpFloat64() / n.perSecond
}
