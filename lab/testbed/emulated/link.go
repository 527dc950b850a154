package emulated

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/quellhq/quell"
)

const defaultPiece = 2 << 10

// beat is how often a link with neighbours but without anybody who waits is played forward, so that no later call has
// much to catch up with.
const beat = time.Second

// LinkOptions describes a link. BitsPerSecond has no default.
type LinkOptions struct {
	BitsPerSecond int64            // at least 8000
	Piece         int64            // bytes that cross at a time; default 2 KiB, at most 1 MiB
	Now           func() time.Time // default time.Now
}

// Link is the network card of a physical machine: a sender of fixed bandwidth that the open responses of an instance,
// those of its probe and the neighbours' flows share equally, piece by piece. Only what leaves the machine crosses it.
//
// Timers wake up about a millisecond late. The link stays exact all the same: pieces have their times by the bytes
// before them, and a late look grants all that are due. It uses no processor time while nothing waits and no
// neighbours are set.
type Link struct {
	clock func() time.Time
	start time.Time
	done  chan struct{}

	mu     sync.Mutex
	sched  scheduler
	timer  *time.Timer
	armed  time.Duration // what the timer is set to; -1: not set
	closed bool
}

// NewLink checks the options. Errors are *quell.InvalidError.
func NewLink(o LinkOptions) (*Link, error) {
	if o.Piece == 0 {
		o.Piece = defaultPiece
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.BitsPerSecond < 8000 {
		return nil, &quell.InvalidError{Path: "bandwidth", Problem: fmt.Sprintf("%d bit/s: must be at least 8000", o.BitsPerSecond)}
	}
	if o.Piece < 1 || o.Piece > 1<<20 {
		return nil, &quell.InvalidError{Path: "piece", Problem: fmt.Sprintf("%d bytes: must be from 1 to 1048576", o.Piece)}
	}
	l := &Link{
		clock: o.Now, start: o.Now(), done: make(chan struct{}), armed: -1,
		sched: scheduler{bitsPerSecond: o.BitsPerSecond, piece: o.Piece},
	}
	l.timer = time.AfterFunc(time.Hour, l.fire)
	l.timer.Stop()
	return l, nil
}

// BitsPerSecond is the link's bandwidth.
func (l *Link) BitsPerSecond() int64 { return l.sched.bitsPerSecond }

// Counters are the bytes that have crossed a link since its beginning, by owner, HTTP headers included.
type Counters struct {
	Instance   uint64
	Probe      uint64
	Neighbours uint64
	Dropped    uint64 // neighbours' bytes that were never sent for want of room in the backlog
}

// Counters returns the counters up to now.
func (l *Link) Counters() Counters {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.advance(now)
	l.arm(now)
	c := l.sched.crossed
	return Counters{Instance: c[OwnInstance], Probe: c[OwnProbe], Neighbours: c[OwnNeighbours], Dropped: l.sched.dropped}
}

// Close ends the link: writes that wait for it fail with net.ErrClosed. It closes no connection.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	l.timer.Stop()
	close(l.done)
}

func (l *Link) now() time.Duration { return l.clock().Sub(l.start) }

// fire is the timer's call.
func (l *Link) fire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = -1
	now := l.now()
	l.advance(now)
	l.arm(now)
}

// advance plays the link up to now and tells those who wait. It never waits for them.
func (l *Link) advance(now time.Duration) {
	for _, g := range l.sched.advance(now) {
		if g.flow.waiter != nil {
			g.flow.waiter.grant(g.n)
		}
	}
}

// arm sets the timer to the next time that something has to be done, if there is one.
func (l *Link) arm(now time.Duration) {
	at, ok := l.sched.wake()
	if !ok && l.sched.active() {
		at, ok = now+beat, true
	}
	switch {
	case !ok || l.closed:
		l.timer.Stop()
		l.armed = -1
	case at != l.armed:
		l.timer.Reset(at - now)
		l.armed = at
	}
}

// send queues n bytes of a flow, to start crossing now.
func (l *Link) send(f *flow, n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	now := l.now()
	l.advance(now)
	l.sched.add(now, f, int64(n))
	l.arm(now)
	return nil
}

// taken returns the bytes of a flow that have crossed since the last call.
func (l *Link) taken(f *flow) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := f.waiter.granted
	f.waiter.granted = 0
	return n
}

// cancel takes back what a flow has not sent yet. A piece that is crossing cannot be called back.
func (l *Link) cancel(f *flow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.advance(now)
	l.sched.cancel(f)
	f.waiter.granted = 0
	l.arm(now)
}

// waiter is where a connection's writer waits for grants. The link's mutex guards granted.
type waiter struct {
	granted int64
	signal  chan struct{}
}

func newWaiter() *waiter { return &waiter{signal: make(chan struct{}, 1)} }

func (w *waiter) grant(n int64) {
	w.granted += n
	select {
	case w.signal <- struct{}{}:
	default: // it has been told already
	}
}
