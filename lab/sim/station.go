package sim

import (
	"math"

	"github.com/quellhq/quell/lab/scenario"
)

// Discipline is how a resource serves several pieces of work.
type Discipline = scenario.Discipline

// The disciplines that scenarios can name.
const (
	Sharing   = scenario.Sharing
	FirstCome = scenario.FirstCome
)

// owner is on whose behalf a station does a piece of work.
type owner uint8

const (
	ownService owner = iota
	ownProbe
	ownNeighbours
	ownChores // of the instance itself, not for requests
	owners
)

// nobody is the reference of work for which no request waits.
const nobody int32 = -1

// waitingWork is work at a first-come station that no server has begun.
type waitingWork struct {
	work  float64
	ref   int32
	owner owner
}

// station is one resource of one host. Times are in seconds. Work is in seconds of one server at full speed; with a single server that is
// the whole resource.
//
// With Sharing, one number suffices: the service that every open piece of work has attained since the station was last idle. A piece that
// arrives at attained service a with work w is done when a+w is attained, whatever arrives and ends meanwhile. So a heap of these sums is
// all that must be stored, and an event costs O(log n) (attained-service scheduling, like virtual time in fair queueing).
type station struct {
	firstCome bool
	servers   float64
	share     float64 // of its speed that the resource has: the smaller one of rest and limit; 1: all
	rest      float64 // what a fluid neighbour leaves
	limit     float64 // what the provider allows

	now      float64
	attained float64   // sharing: service for each piece since the station was last idle
	jobs     jobHeap   // sharing: by attained service at the end; first-come: in service, by the time at the end
	queue    workQueue // first-come: work that waits

	held float64 // number of the service's pieces, waiting or in service, integrated over time
	some float64 // how long the service had a piece here
	own  int     // the service's pieces that wait

	arrived [owners]float64 // work that has ever arrived
	ends    [owners]float64 // sum of the jobs' keys
	open    [owners]int     // jobs in the heap
	waiting [owners]float64 // first-come: work that no server has begun

	neighbours neighbours
	chores     neighbours
}

func newStation(servers float64, discipline Discipline) station {
	s := station{servers: servers, firstCome: discipline == FirstCome, share: 1, rest: 1, limit: 1}
	s.neighbours.next, s.chores.next = math.Inf(1), math.Inf(1)
	if s.firstCome {
		s.servers = max(1, math.Floor(servers))
	}
	return s
}

// speed is the rate at which each open piece of a sharing station advances.
func (s *station) speed() float64 {
	return min(1, s.servers/float64(len(s.jobs))) * s.share
}

// advance updates the attained service to the present time.
func (s *station) advance(now float64) {
	if len(s.jobs) > 0 && !s.firstCome {
		s.attained += (now - s.now) * s.speed()
	}
	if n := s.open[ownService] + s.own; n > 0 {
		s.held += (now - s.now) * float64(n)
		s.some += now - s.now
	}
	s.now = now
}

// add gives the station a piece of work.
func (s *station) add(now float64, work float64, who owner, ref int32) {
	s.advance(now)
	s.arrived[who] += work
	switch {
	case !s.firstCome:
		if len(s.jobs) == 0 {
			s.attained, s.ends = 0, [owners]float64{}
		}
		s.begin(job{s.attained + work, ref, who})
	case float64(len(s.jobs)) < s.servers:
		s.begin(job{now + work/s.share, ref, who})
	default:
		s.waiting[who] += work
		s.own += ofService(who)
		s.queue.push(waitingWork{work, ref, who})
	}
}

// ofService is 1 for the service's work, 0 for that of others.
func ofService(who owner) int {
	if who == ownService {
		return 1
	}
	return 0
}

// pieces is how many pieces of work wait or are in service.
func (s *station) pieces() int { return len(s.jobs) + len(s.queue.items) - s.queue.head }

func (s *station) begin(j job) {
	s.ends[j.owner] += j.end
	s.open[j.owner]++
	s.jobs.push(j)
}

// next is the time of the station's next event.
func (s *station) next() float64 {
	return min(s.completion(), s.neighbours.next, s.chores.next)
}

func (s *station) completion() float64 {
	switch {
	case len(s.jobs) == 0:
		return math.Inf(1)
	case s.firstCome:
		return s.jobs[0].end
	}
	return max(s.now, s.now+(s.jobs[0].end-s.attained)/s.speed())
}

// step plays the station's next event. It returns the reference of the work that is done; nobody if neighbours' work arrived or ended.
func (s *station) step() int32 {
	done := s.completion()
	switch {
	case s.neighbours.next < done && s.neighbours.next <= s.chores.next:
		s.arrive(&s.neighbours, ownNeighbours)
		return nobody
	case s.chores.next < done:
		s.arrive(&s.chores, ownChores)
		return nobody
	}
	s.advance(done)
	j := s.jobs.pop()
	if !s.firstCome {
		s.attained = max(s.attained, j.end) // removes a rounding error
	}
	s.forget(j)
	s.serveWaiting()
	return j.ref
}

func (s *station) forget(j job) {
	s.open[j.owner]--
	s.ends[j.owner] -= j.end
}

// serveWaiting lets free servers begin work that waits.
func (s *station) serveWaiting() {
	for s.firstCome && float64(len(s.jobs)) < s.servers {
		w, ok := s.queue.pop()
		if !ok {
			return
		}
		s.waiting[w.owner] -= w.work
		s.own -= ofService(w.owner)
		s.begin(job{s.now + w.work/s.share, w.ref, w.owner})
	}
}

// cancel removes the rest of the work with this reference. It looks through all open work.
func (s *station) cancel(now float64, ref int32) {
	s.advance(now)
	for i, j := range s.jobs {
		if j.ref != ref {
			continue
		}
		s.arrived[j.owner] -= s.left(j)
		s.jobs.remove(i)
		s.forget(j)
		s.serveWaiting()
		return
	}
	if w, ok := s.queue.remove(ref); ok {
		s.own -= ofService(w.owner)
		s.waiting[w.owner] -= w.work
		s.arrived[w.owner] -= w.work
	}
}

func (s *station) left(j job) float64 {
	if s.firstCome {
		return (j.end - s.now) * s.share
	}
	return j.end - s.attained
}

// carried is the work done for an owner so far. The caller must have called advance.
func (s *station) carried(who owner) float64 {
	base, speed := s.attained, 1.0
	if s.firstCome {
		base, speed = s.now, s.share
	}
	return s.arrived[who] - s.waiting[who] - (s.ends[who]-float64(s.open[who])*base)*speed
}

// setFluid makes neighbours take a fixed share of the resource, without single pieces of work.
func (s *station) setFluid(now, use float64) {
	s.rest = 1 - use
	s.slow(now)
}

// setLimit slows the resource down to a share of its speed, as a provider does. 1 ends it.
func (s *station) setLimit(now, share float64) {
	s.limit = share
	s.slow(now)
}

// slow changes the speed of the resource to what neighbours and provider leave.
func (s *station) slow(now float64) {
	s.advance(now)
	before := s.share
	s.share = max(min(s.rest, s.limit), leastShare)
	if !s.firstCome {
		return
	}
	for i := range s.jobs { // all ends change by one factor, so their order stays
		j := &s.jobs[i]
		s.ends[j.owner] -= j.end
		j.end = now + (j.end-now)*before/s.share
		s.ends[j.owner] += j.end
	}
}

// leastShare is the share of a resource that a fluid neighbour always leaves: if nothing were left, no request would ever end.
const leastShare = 0.01
