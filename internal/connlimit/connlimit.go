// Package connlimit limits the connections of a listener. So clients that open connections and hold them cannot use up the files that the
// rest of the process needs, and cannot keep others out.
package connlimit

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limiter limits the open connections of a listener. If a connection arrives when there are as many as allowed, the one that has been
// without a request for longest is closed for it. If all have a request in progress, further connections wait.
type Limiter struct {
	log *slog.Logger

	mu       sync.Mutex
	freed    sync.Cond
	most     int // 0: no limit
	open     int
	idle     list.List // of *Conn without a request, the longest idle first
	closed   bool
	fullFrom time.Time // when the limit was last reached; zero: never
}

// New returns a limiter. most is the largest number of open connections, 0 for no limit.
func New(most int, log *slog.Logger) *Limiter {
	l := &Limiter{most: most, log: log}
	l.freed.L = &l.mu
	return l
}

// Resize changes the limit. Open connections above a new limit stay.
func (l *Limiter) Resize(most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = most
	l.freed.Broadcast()
}

// Open returns the number of open connections.
func (l *Limiter) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// Close ends the waiting of connections for which there is no room.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.freed.Broadcast()
}

// await waits until a connection could be admitted, so that others wait in the kernel's queue, where another process may accept them. It
// returns false if the limiter was closed.
func (l *Limiter) await() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.full() && l.longestIdle() == nil {
		l.noteFull()
		l.freed.Wait()
	}
	return !l.closed
}

// admit makes room for an accepted connection. After Close it is admitted in any case: its client may have sent a request.
func (l *Limiter) admit(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.full() {
		l.noteFull()
		if !l.closeLongestIdle() {
			l.freed.Wait()
		}
	}
	l.open++
	c.place = l.idle.PushBack(c)
}

// full returns whether a connection must wait.
func (l *Limiter) full() bool { return l.most > 0 && l.open >= l.most && !l.closed }

// longestIdle returns the connection that has been without a request for longest, among those whose clients have all their answers; nil if
// there is none.
func (l *Limiter) longestIdle() *Conn {
	for e := l.idle.Front(); e != nil; e = e.Next() { // the last answers of few are on their way
		if c := e.Value.(*Conn); c.sent {
			return c
		}
	}
	return nil
}

// closeLongestIdle unlocks l.mu while it closes the connection.
func (l *Limiter) closeLongestIdle() bool {
	c := l.longestIdle()
	if c == nil {
		return false
	}
	c.unlist()
	l.mu.Unlock()
	defer l.mu.Lock()
	c.Close()
	return true
}

// fullSpell is how long there must have been room before a reached limit is logged again.
const fullSpell = time.Minute

func (l *Limiter) noteFull() {
	now := time.Now()
	if l.fullFrom.IsZero() || now.Sub(l.fullFrom) > fullSpell {
		l.log.Warn("all connections are in use: idle ones are closed, and if there are none, further clients wait", "connections", l.open)
	}
	l.fullFrom = now
}

// Conn is a connection that counts.
type Conn struct {
	net.Conn
	of    *Limiter
	leave sync.Once

	// OnClose is called once, before there is room for another connection. nil: nothing is called.
	OnClose func()

	// Guarded by of.mu.
	requests int           // whose handlers run
	sent     bool          // all answers were sent, or there was no request yet
	place    *list.Element // in of.idle; nil: a request is in progress, or the connection is closed
	gone     bool
}

// Begin notes that a request begins. Until it ends, the connection is not closed for others.
func (c *Conn) Begin() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.requests++
	c.unlist()
}

// End notes that a request's handler has ended. Its answer may not have been sent yet: Follow notes that.
func (c *Conn) End() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.requests--; c.requests == 0 && !c.gone {
		c.place = c.of.idle.PushBack(c)
		c.of.freed.Signal()
	}
}

// Follow notes a change of the connection's state at its server (http.Server.ConnState). Without it, a connection that has had a request
// is not closed for others.
func (c *Conn) Follow(state http.ConnState) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.sent = state == http.StateNew || state == http.StateIdle
	c.of.freed.Signal()
}

func (c *Conn) unlist() {
	if c.place != nil {
		c.of.idle.Remove(c.place)
		c.place = nil
	}
}

// CloseWrite closes the sending side, if the connection has one.
func (c *Conn) CloseWrite() error { return CloseWrite(c.Conn) }

// CloseWrite closes the sending side of a connection, if it has one.
func CloseWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.leave.Do(func() {
		if c.OnClose != nil {
			c.OnClose()
		}
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.gone = true
		c.unlist()
		c.of.open--
		c.of.freed.Signal()
	})
	return err
}

// Listener accepts connections, each a *Conn, within a limit.
type Listener struct {
	net.Listener
	Limiter *Limiter
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	if !l.Limiter.await() {
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: conn, of: l.Limiter, sent: true}
	l.Limiter.admit(c)
	return c, nil
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.Limiter.Close()
	return l.Listener.Close()
}

type connKey struct{}

// Guard prepares a server whose listener is a Listener: the limiter learns which connections have a request in progress. A ConnContext
// that the server has already gets the connection that the inner listener accepted; the server must have no ConnState. Time limits that the
// server lacks are set, for clients that are idle or slow.
func Guard(s *http.Server) *http.Server {
	handler, inner := s.Handler, s.ConnContext
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		c, ok := below(conn)
		if !ok {
			return ctx
		}
		if inner != nil {
			ctx = inner(ctx, c.Conn)
		}
		return context.WithValue(ctx, connKey{}, c)
	}
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		if c, ok := below(conn); ok {
			c.Follow(state)
		}
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
			c.Begin()
			defer c.End()
		}
		handler.ServeHTTP(w, r)
	})
	s.ReadHeaderTimeout = cmp.Or(s.ReadHeaderTimeout, 5*time.Second)
	s.ReadTimeout = cmp.Or(s.ReadTimeout, 10*time.Second)
	s.WriteTimeout = cmp.Or(s.WriteTimeout, 30*time.Second)
	s.IdleTimeout = cmp.Or(s.IdleTimeout, 15*time.Second)
	s.MaxHeaderBytes = cmp.Or(s.MaxHeaderBytes, 16<<10)
	return s
}

// below returns the limited connection, also below TLS.
func below(conn net.Conn) (*Conn, bool) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, ok := conn.(*Conn)
	return c, ok
}

// Serve serves a guarded server on a listener with the limit of Beside.
func Serve(s *http.Server, ln net.Listener, log *slog.Logger) error {
	return s.Serve(Limit(ln, log))
}

// Limit gives a listener the limit of Beside.
func Limit(ln net.Listener, log *slog.Logger) *Listener {
	return &Listener{Listener: ln, Limiter: New(Beside(Files()), log)}
}

const (
	fewestBeside = 4
	mostBeside   = 256
)

// Beside returns the limit of connections for a listener that is not the process's main work, such as its metrics: a sixteenth of the
// process's limit of open files, from 4 to 256. files is 0 if there is no limit.
func Beside(files int) int {
	if files == 0 {
		return mostBeside
	}
	return max(fewestBeside, min(files/16, mostBeside))
}
