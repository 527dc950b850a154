package emulated

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/quellhq/quell"
)

const defaultPiece = 2 << 10

// beat is how often a link is advanced if it has neighbours but no writer waits, so that a later call does not have much to compute.
const beat = time.Second

// LinkOptions describes a link. BitsPerSecond has no default.
type LinkOptions struct {
	BitsPerSecond int64            // at least 8000
	Piece         int64            // bytes that cross at a time; default 2 KiB, at most 1 MiB
	Now           func() time.Time // default time.Now
}

// lot is the time in which the link carries the bytes that are given to a real connection at once. Small enough for clients to see a
// response come steadily; handing on every piece by itself would cost most of a host's processor time.
const lot = 10 * time.Millisecond

// Link is the network card of a physical machine: a sender of fixed bandwidth. The instance's open responses, those of its probe server
// and the neighbours' flows share it equally, piece by piece. Only what leaves the machine crosses it.
//
// Timers wake up about a millisecond late. The link is exact all the same: the time at which a piece has crossed is computed from the
// bytes before it, and a late look grants all pieces that are due. If no writer waits and no neighbours are set, the link uses no
// processor time.
type Link struct {
	clock func() time.Time
	start time.Time
	done  chan struct{}

	mu     sync.Mutex
	sched  scheduler
	timer  *time.Timer
	armed  time.Duration // the time to which the timer is set; -1: not set
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

// Counters are the bytes that have crossed a link since it was made, by owner, including HTTP headers.
type Counters struct {
	Instance   uint64
	Probe      uint64
	Neighbours uint64
	Dropped    uint64 // neighbours' bytes that were never sent, because the backlog was full
}

// Counters returns the bytes that have crossed up to now.
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

// fire is what the timer calls.
func (l *Link) fire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = -1
	now := l.now()
	l.advance(now)
	l.arm(now)
}

// advance plays the link up to now and wakes the writers whose pieces have crossed. It never waits for them.
func (l *Link) advance(now time.Duration) {
	for _, g := range l.sched.advance(now) {
		if g.flow.waiter != nil {
			g.flow.waiter.grant(g.n)
		}
	}
}

// arm sets the timer to the next time at which the link has something to do, if there is one.
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

// send queues n bytes of a flow, which may begin to cross now.
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

// taken returns how many bytes of a flow have crossed since they were last taken, if those are a lot or all of the left bytes; else 0,
// and the flow's writer gets a signal when they are.
func (l *Link) taken(f *flow, left int) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := f.waiter
	if w.wants = min(int64(left), l.sched.carried(lot)); w.missing() > 0 {
		l.arm(l.now())
		return 0
	}
	n := w.granted
	w.granted = 0
	return n
}

// cancel removes the bytes of a flow that have not begun to cross. A piece that is crossing cannot be removed.
func (l *Link) cancel(f *flow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.advance(now)
	l.sched.cancel(f)
	f.waiter.granted = 0
	l.arm(now)
}

// waiter is where a connection's writer waits until pieces have crossed. The link's mutex guards the numbers of bytes.
type waiter struct {
	granted int64 // have crossed
	wants   int64 // have to cross before the writer goes on
	signal  chan struct{}
}

func newWaiter() *waiter { return &waiter{signal: make(chan struct{}, 1)} }

func (w *waiter) grant(n int64) {
	if w.granted += n; w.missing() > 0 {
		return
	}
	select {
	case w.signal <- struct{}{}:
	default: // it has a signal already
	}
}

func (w *waiter) missing() int64 { return w.wants - w.granted }
