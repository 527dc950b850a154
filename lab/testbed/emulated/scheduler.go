package emulated

import (
	"math"
	"time"
)

// Owner says on whose behalf bytes cross a link.
type Owner int

// The owners of the traffic of one physical machine.
const (
	OwnInstance   Owner = iota // responses of the service
	OwnProbe                   // responses of the probe server
	OwnNeighbours              // flows of the interferer
	owners
)

// maxCredit is the most time that a flow gets back if its writer lost time between two pieces because a timer woke it late.
const maxCredit = time.Millisecond

// lookAhead limits how many pieces are searched for those that a writer waits for.
const lookAhead = 64

// flow is one sender on the link. Flows of neighbours have no waiter, because no writer waits for their pieces.
type flow struct {
	owner   Owner
	waiter  *waiter
	pending int64         // bytes that have not begun to cross
	listed  bool          // it is in the queue or a piece of it is crossing
	crossed time.Duration // when its last piece had crossed; -1: none yet
}

// grant reports that n more bytes of a flow have crossed.
type grant struct {
	flow *flow
	n    int64
}

// arrivals is a source of flows. next is when the next flow is due; take returns the flow's bytes and goes on to the one after it.
type arrivals interface {
	next() (at time.Duration, ok bool)
	take() int64
}

// scheduler shares a link among flows, piece by piece in turns (round robin), which is processor sharing in small steps. It reads no
// clock: times are arguments, since the link's beginning and in order. Finish times are computed from the bytes alone, so a caller that
// looks late still finds the right finish time of every piece.
type scheduler struct {
	bitsPerSecond int64
	piece         int64
	source        arrivals // nil if there is none
	maxWaiting    int64    // bytes of the source's flows that may wait; a flow beyond that is dropped

	queue    fifo
	current  *flow // flow whose piece is crossing; nil: the link is idle
	bytes    int64 // of that piece
	finish   time.Duration
	fraction int64         // part of a nanosecond owed to the next piece, in units of 1/bitsPerSecond
	idle     time.Duration // if the link is idle: since when

	crossed [owners]uint64
	waiting [owners]int64 // bytes that have not crossed yet, including the piece that is crossing
	dropped uint64
	waiters int // number of listed flows with a waiter
	grants  []grant
}

// advance plays the link up to now, including the source's arrivals, and returns what crossed, in order. The slice is valid until the
// next call.
func (s *scheduler) advance(now time.Duration) []grant {
	s.grants = s.grants[:0]
	for at, ok := s.nextArrival(); ok && at <= now; at, ok = s.nextArrival() {
		s.cross(at)
		s.arrive(at)
	}
	s.cross(now)
	return s.grants
}

func (s *scheduler) nextArrival() (time.Duration, bool) {
	if s.source == nil {
		return 0, false
	}
	return s.source.next()
}

// arrive adds the source's flow that is due, unless too many bytes wait already.
func (s *scheduler) arrive(at time.Duration) {
	bytes := s.source.take()
	if s.waiting[OwnNeighbours]+bytes > s.maxWaiting {
		s.dropped += uint64(bytes)
		return
	}
	s.add(at, &flow{owner: OwnNeighbours, crossed: -1}, bytes)
}

// cross finishes every piece that is due.
func (s *scheduler) cross(now time.Duration) {
	for s.current != nil && s.finish <= now {
		f := s.current
		s.crossed[f.owner] += uint64(s.bytes)
		s.waiting[f.owner] -= s.bytes
		f.crossed = s.finish
		s.grants = append(s.grants, grant{f, s.bytes})
		if f.pending > 0 {
			s.queue.push(f)
		} else {
			s.unlist(f)
		}
		s.begin(s.finish)
	}
}

// begin starts the next piece at the given time; without one the link is idle.
func (s *scheduler) begin(at time.Duration) {
	for s.current = nil; s.current == nil; {
		f := s.queue.pop()
		if f == nil {
			s.idle, s.fraction = at, 0
			return
		}
		if f.pending == 0 { // cancelled while it was queued
			s.unlist(f)
			continue
		}
		s.current = f
	}
	s.bytes = min(s.piece, s.current.pending)
	s.current.pending -= s.bytes
	bitNanos := s.bytes*8*int64(time.Second) + s.fraction
	s.finish = at + time.Duration(bitNanos/s.bitsPerSecond)
	s.fraction = bitNanos % s.bitsPerSecond
}

// add gives a flow n more bytes to send. The caller must have advanced the link to now.
func (s *scheduler) add(now time.Duration, f *flow, n int64) {
	f.pending += n
	s.waiting[f.owner] += n
	if f.listed || n == 0 {
		return
	}
	f.listed = true
	if f.waiter != nil {
		s.waiters++
	}
	s.queue.push(f)
	if s.current == nil {
		s.begin(s.startOf(now, f))
	}
}

// startOf is when a flow that finds the link idle begins to cross. Normally that is now. If the link fell idle only because this flow's
// writer learned late that its last piece had crossed, the flow begins up to maxCredit earlier.
func (s *scheduler) startOf(now time.Duration, f *flow) time.Duration {
	if f.crossed != s.idle {
		return now
	}
	return max(s.idle, now-maxCredit)
}

// cancel removes the bytes of a flow that have not begun to cross.
func (s *scheduler) cancel(f *flow) {
	s.waiting[f.owner] -= f.pending
	f.pending = 0
}

func (s *scheduler) unlist(f *flow) {
	f.listed = false
	if f.waiter != nil {
		s.waiters--
	}
}

// wake returns a time at or before the one at which the first writer has what it waits for; false if no writer waits. Later arrivals queue
// behind the present flows, so they can only delay it.
func (s *scheduler) wake() (time.Duration, bool) {
	if s.waiters == 0 || s.current == nil {
		return 0, false
	}
	at, f, bytes, first := s.finish, s.current, s.bytes, time.Duration(math.MaxInt64)
	for i := 0; ; i++ {
		if f.waiter != nil {
			first = min(first, at+s.takes(max(0, f.waiter.missing()-bytes)))
		}
		if i == s.queue.len() {
			return first, true
		}
		if i == lookAhead {
			return min(first, at), true
		}
		f = s.queue.peek(i)
		bytes = min(s.piece, f.pending)
		at += s.takes(bytes)
	}
}

// takes is how long bytes take to cross, and carried how many bytes cross in a time.
func (s *scheduler) takes(bytes int64) time.Duration {
	return time.Duration(bytes * 8 * int64(time.Second) / s.bitsPerSecond)
}

func (s *scheduler) carried(in time.Duration) int64 {
	return int64(in.Seconds() * float64(s.bitsPerSecond) / 8)
}

// active says whether time changes anything: a piece crosses, or the source can add flows.
func (s *scheduler) active() bool {
	_, ok := s.nextArrival()
	return ok || s.current != nil
}

// fifo is a queue of flows on a slice. The memory of flows that were taken from its front is freed from time to time.
type fifo struct {
	flows []*flow
	head  int
}

func (q *fifo) len() int         { return len(q.flows) - q.head }
func (q *fifo) peek(i int) *flow { return q.flows[q.head+i] }
func (q *fifo) push(f *flow)     { q.flows = append(q.flows, f) }

func (q *fifo) pop() *flow {
	if q.len() == 0 {
		return nil
	}
	f := q.flows[q.head]
	q.flows[q.head] = nil
	q.head++
	if q.head > 64 && q.head > len(q.flows)/2 {
		n := copy(q.flows, q.flows[q.head:])
		clear(q.flows[n:])
		q.flows, q.head = q.flows[:n], 0
	}
	return f
}
