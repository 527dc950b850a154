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

// outbound is a connection to an instance. Before a request goes out on one that was kept, it is looked at: a request
// that meets the instance's closing is lost, and one that may not be sent twice fails.
type outbound struct {
	net.Conn
	of *connections

	stale  atomic.Bool  // closed, or about to be: nothing may be sent any more
	sent   atomic.Int64 // bytes of the present request
	reused atomic.Bool
	turns  atomic.Int64 // requests so far
	use    atomic.Int64 // the number of the present request, negative; or since when there is none, in ns since epoch

	// freed is how long it carried no request before the present one.
	freed atomic.Int64
}

// errStale is what a request gets that must not go out on a kept connection.
var errStale = errors.New("the kept connection is no longer good")

// lookAfter is how long a connection was free before it is looked at. On a busier one there was no time to close it.
const lookAfter = 20 * time.Millisecond

// begin readies the connection for a request, whose first bytes follow, and numbers it.
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

// end says that the request is over, unless the connection has the next one already. Until then the instance may
// close it at any time.
func (c *outbound) end(turn int64, now time.Time) {
	c.use.CompareAndSwap(-turn, int64(now.Sub(epoch)))
}

// unused says whether a request was given a kept connection that had gone, so that nothing of it was sent.
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

// learnFromLoss takes it that a kept connection which broke under a request was closed for want of one.
func (c *outbound) learnFromLoss() { c.of.closedAfter(time.Now(), time.Duration(c.freed.Load())) }

// Close implements net.Conn.
func (c *outbound) Close() error {
	c.of.closed(c)
	return c.Conn.Close()
}

// learnFrom takes an instance at its word on how long it keeps connections.
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

// learned is how long an instance keeps connections, as it says or was seen to do.
type learned struct {
	keeps time.Duration
	until time.Time
}

const (
	// learnedFor is how long what was learned holds: a restarted instance may be another.
	learnedFor = 10 * time.Minute
	// leastLearned leaves out closes at once, which are not for want of requests.
	leastLearned = 50 * time.Millisecond
	// safeShare of an instance's time is used: requests and closings take a while on their way.
	safeShare = 0.8
)

// learn keeps the shortest time of the last ten minutes.
func (c *connections) learn(now time.Time, keeps time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.After(c.learned.until) || keeps <= c.learned.keeps {
		c.learned = learned{keeps, now.Add(learnedFor)}
	}
}

// closedAfter takes in that the instance closed a connection which had been without a request for so long.
func (c *connections) closedAfter(now time.Time, after time.Duration) {
	if after >= leastLearned {
		c.learn(now, after)
	}
}

// keepAlive is how long a kept connection may be free and still be used.
func (c *connections) keepAlive(now time.Time) time.Duration {
	idle := time.Duration(c.idle.Load())
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.learned.until) {
		idle = min(idle, time.Duration(safeShare*float64(c.learned.keeps)))
	}
	return idle
}
