package builtin

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// outbound is a connection to an instance. A kept connection is checked before a request is sent on it. Without the check, a request could
// be sent while the instance closes the connection. Such a request is lost, and fails if it may not be sent twice.
type outbound struct {
	net.Conn
	of *connections

	stale  atomic.Bool  // closed or about to be closed: nothing more may be sent
	sent   atomic.Int64 // bytes of the present request so far
	reused atomic.Bool
	turns  atomic.Int64 // requests so far
	use    atomic.Int64 // if busy: minus the number of the present request; if idle: since when, in ns since epoch

	// freed is how long the connection was idle before the present request.
	freed atomic.Int64
}

// errStale is the error for a request on a kept connection that must not be used.
var errStale = errors.New("the kept connection is no longer good")

// lookAfter is how long a connection must have been idle to be checked before use. It is shorter than any instance's time-out for idle
// connections.
const lookAfter = 20 * time.Millisecond

// begin prepares the connection for a new request and numbers it.
func (c *outbound) begin(reused bool) (turn int64) {
	turn = c.turns.Add(1)
	since := c.use.Swap(-turn)
	c.sent.Store(0)
	c.freed.Store(0)
	c.reused.Store(reused)
	if !reused || since <= 0 {
		return turn
	}
	now := time.Now()
	idle := now.Sub(epoch) - time.Duration(since)
	c.freed.Store(int64(idle))
	raw, known := c.Conn.(syscall.Conn)
	if idle >= c.of.keepAlive(now) || idle >= lookAfter && known && peerClosed(raw) {
		c.stale.Store(true)
	}
	return turn
}

// end marks a request as finished, unless the connection has already begun the next one. After that the instance may close the connection
// at any time.
func (c *outbound) end(turn int64, now time.Time) {
	c.use.CompareAndSwap(-turn, int64(now.Sub(epoch)))
}

// unused returns whether nothing was sent because the kept connection turned out to be closed already.
func (c *outbound) unused() bool { return c.reused.Load() && c.sent.Load() == 0 }

// Write implements net.Conn.
func (c *outbound) Write(b []byte) (int, error) {
	if c.stale.Load() {
		return 0, errStale
	}
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// Read implements net.Conn.
func (c *outbound) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if since := c.use.Load(); err != nil && since > 0 && !errors.Is(err, net.ErrClosed) {
		now := time.Now()
		c.of.closedAfter(now, now.Sub(epoch)-time.Duration(since))
	}
	return n, err
}

// learnFromLoss is called when a kept connection broke under a request. It assumes that the instance closed the connection because it had
// been idle.
func (c *outbound) learnFromLoss() { c.of.closedAfter(time.Now(), time.Duration(c.freed.Load())) }

// Close implements net.Conn.
func (c *outbound) Close() error {
	c.of.closed(c)
	return c.Conn.Close()
}

// learnFrom uses the time-out of idle connections that an instance announces in a response's header.
func (c *outbound) learnFrom(h http.Header) {
	if c == nil {
		return
	}
	for _, v := range h["Keep-Alive"] {
		for part := range strings.SplitSeq(v, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			if s, err := strconv.Atoi(strings.Trim(value, `"`)); err == nil && s > 0 && s < 1e6 && strings.EqualFold(name, "timeout") {
				c.of.learn(time.Now(), time.Duration(s)*time.Second)
			}
		}
	}
}

// learned is how long an instance keeps idle connections, as it announces or as was observed.
type learned struct {
	keeps time.Duration
	until time.Time
}

const (
	// learnedFor is how long a learned time is used. A restarted instance may behave differently.
	learnedFor = 10 * time.Minute
	// leastLearned excludes connections that are closed at once, because no idle time-out caused that.
	leastLearned = 50 * time.Millisecond
	// safeShare is the share of an instance's time-out for which a connection is used, because requests and closes take time to arrive.
	safeShare = 0.8
)

// learn keeps the shortest time that was learned within learnedFor.
func (c *connections) learn(now time.Time, keeps time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.After(c.learned.until) || keeps <= c.learned.keeps {
		c.learned = learned{keeps, now.Add(learnedFor)}
	}
}

// closedAfter records that the instance closed a connection that had been idle for that long.
func (c *connections) closedAfter(now time.Time, after time.Duration) {
	if after >= leastLearned {
		c.learn(now, after)
	}
}

// keepAlive returns how long an idle connection may still be used.
func (c *connections) keepAlive(now time.Time) time.Duration {
	idle := time.Duration(c.idle.Load())
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.learned.until) {
		idle = min(idle, time.Duration(safeShare*float64(c.learned.keeps)))
	}
	return idle
}
