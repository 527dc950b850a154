package builtin

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// gate limits accepted connections. If there are as many connections as allowed, further ones wait in the kernel's queue. If one client has
// reached the limit for a single client, further connections of that client are closed.
type gate struct {
	log   *slog.Logger
	rules atomic.Pointer[clientRules]

	mu       sync.Mutex
	freed    sync.Cond
	most     int // 0: no limit
	each     int // 0: no limit
	open     int
	clients  map[netip.Addr]*visitor
	refused  int64 // connections closed because their client had too many
	isClosed bool
	fullFrom time.Time // when it became full; zero: there is room
}

// visitor is a client with open connections.
type visitor struct {
	open    int
	refused int // connections refused since it reached its limit
}

func newGate(most, each int, rules *clientRules, log *slog.Logger) *gate {
	g := &gate{log: log, most: most, each: each, clients: map[netip.Addr]*visitor{}}
	g.freed.L = &g.mu
	g.rules.Store(rules)
	return g
}

// resize changes the limits. Open connections above a new limit stay.
func (g *gate) resize(most, each int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most, g.each = most, each
	g.freed.Broadcast()
}

// enter waits until there is room for one more connection. It returns false if the gate was closed.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.most > 0 && g.open >= g.most && !g.isClosed {
		g.noteFull()
		g.freed.Wait()
	}
	if g.isClosed {
		return false
	}
	g.open++
	return true
}

// fullSpell is how long there must have been room before a full gate is logged again.
const fullSpell = time.Minute

func (g *gate) noteFull() {
	now := time.Now()
	if g.fullFrom.IsZero() || now.Sub(g.fullFrom) > fullSpell {
		g.log.Warn("all connections are in use: further clients wait", "connections", g.open)
	}
	g.fullFrom = now
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open--
	g.freed.Signal()
}

// admit counts a connection of its client. If the client has too many, admit refuses the connection.
func (g *gate) admit(conn net.Conn) *inbound {
	c := &inbound{Conn: conn, peer: peerOf(conn), rules: &g.rules, leave: g.leave, poked: make(chan struct{}, 1)}
	if !c.peer.IsValid() || g.rules.Load().trusts(c.peer) {
		return c
	}
	client := clientOf(c.peer)
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.clients[client]
	if v == nil {
		v = &visitor{}
		g.clients[client] = v
	}
	if g.each > 0 && v.open >= g.each {
		g.refuse(client, v)
		return nil
	}
	v.open++
	c.leave = func() { g.leave(); g.goodbye(client, v) }
	return c
}

func (g *gate) refuse(client netip.Addr, v *visitor) {
	if v.refused++; v.refused == 1 {
		g.log.Warn("a client has too many connections: further ones are closed", "client", client, "connections", v.open)
	}
	g.refused++
}

// goodbye forgets a client when its last connection is closed.
func (g *gate) goodbye(client netip.Addr, v *visitor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v.open--
	if v.refused > 0 && v.open < g.each/2 {
		g.log.Info("a client had too many connections", "client", client, "closed", v.refused)
		v.refused = 0
	}
	if v.open == 0 {
		delete(g.clients, client)
	}
}

// counts returns the open connections, and how many were refused so far.
func (g *gate) counts() (open int, refused int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open, g.refused
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isClosed = true
	g.freed.Broadcast()
}

// gatedListener is a listener behind a gate.
type gatedListener struct {
	net.Listener
	gate *gate
}

// tooMany is the answer to a client whose connection is refused.
const tooMany = "HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"

// Accept implements net.Listener.
func (l *gatedListener) Accept() (net.Conn, error) {
	for {
		if !l.gate.enter() {
			return nil, net.ErrClosed
		}
		conn, err := l.Listener.Accept()
		if err != nil {
			l.gate.leave()
			return nil, err
		}
		if c := l.gate.admit(conn); c != nil {
			return c, nil
		}
		_, _ = io.WriteString(conn, tooMany) // it is short enough for the socket's buffer
		conn.Close()
		l.gate.leave()
	}
}

// Close implements net.Listener.
func (l *gatedListener) Close() error {
	l.gate.close()
	return l.Listener.Close()
}
