package builtin

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/quellhq/quell/internal/connlimit"
)

// connLimiter limits the connections of all clients together, and of each client. If one client has reached its limit, its further
// connections are closed.
type connLimiter struct {
	log    *slog.Logger
	rules  atomic.Pointer[clientRules]
	all    *connlimit.Limiter
	secure *tls.Config // nil: without TLS

	mu      sync.Mutex
	each    int // 0: no limit
	clients map[netip.Addr]*caller
	refused int64 // connections closed because their client had too many
}

// caller is a client with open connections.
type caller struct {
	open    int
	refused int // connections refused since it reached its limit
}

func newConnLimiter(most, each int, rules *clientRules, log *slog.Logger) *connLimiter {
	g := &connLimiter{log: log, all: connlimit.New(most, log), each: each, clients: map[netip.Addr]*caller{}}
	g.rules.Store(rules)
	return g
}

// resize changes the limits. Open connections above a new limit stay.
func (g *connLimiter) resize(most, each int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.each = each
	g.all.Resize(most)
}

// admit counts a connection of its client. If the client has too many, admit refuses the connection.
func (g *connLimiter) admit(conn *connlimit.Conn) *inbound {
	c := newInbound(conn, &g.rules, g.secure)
	c.place = conn
	if !c.peer.IsValid() || g.rules.Load().trusts(c.peer) {
		return c
	}
	client := clientOf(c.peer)
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.clients[client]
	if v == nil {
		v = &caller{}
		g.clients[client] = v
	}
	if g.each > 0 && v.open >= g.each {
		g.refuse(client, v)
		return nil
	}
	v.open++
	conn.OnClose = func() { g.goodbye(client, v) }
	return c
}

func (g *connLimiter) refuse(client netip.Addr, v *caller) {
	if v.refused++; v.refused == 1 {
		g.log.Warn("a client has too many connections: further ones are closed", "client", client, "connections", v.open)
	}
	g.refused++
}

// goodbye forgets a client when its last connection is closed.
func (g *connLimiter) goodbye(client netip.Addr, v *caller) {
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
func (g *connLimiter) counts() (open int, refused int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all.Open(), g.refused
}

// limitedListener is a listener behind a limiter. Its connections are of type *inbound.
type limitedListener struct {
	*connlimit.Listener
	limiter *connLimiter
}

func newLimitedListener(ln net.Listener, g *connLimiter) *limitedListener {
	return &limitedListener{&connlimit.Listener{Listener: ln, Limiter: g.all}, g}
}

// tooMany is the answer to a client whose connection is refused.
const tooMany = "HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.limiter.admit(conn.(*connlimit.Conn)); c != nil {
			return c, nil
		}
		if l.limiter.secure == nil { // a handshake would cost more than the connection
			_, _ = io.WriteString(conn, tooMany) // it is short enough for the socket's buffer
		}
		conn.Close()
	}
}
