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

// gate limits the connections of all clients together, and of each client. If one client has reached its limit, its further connections
// are closed.
type gate struct {
	log    *slog.Logger
	rules  atomic.Pointer[clientRules]
	all    *connlimit.Limiter
	secure *tls.Config // nil: without TLS

	mu      sync.Mutex
	each    int // 0: no limit
	clients map[netip.Addr]*visitor
	refused int64 // connections closed because their client had too many
}

// visitor is a client with open connections.
type visitor struct {
	open    int
	refused int // connections refused since it reached its limit
}

func newGate(most, each int, rules *clientRules, log *slog.Logger) *gate {
	g := &gate{log: log, all: connlimit.New(most, log), each: each, clients: map[netip.Addr]*visitor{}}
	g.rules.Store(rules)
	return g
}

// resize changes the limits. Open connections above a new limit stay.
func (g *gate) resize(most, each int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.each = each
	g.all.Resize(most)
}

// admit counts a connection of its client. If the client has too many, admit refuses the connection.
func (g *gate) admit(conn *connlimit.Conn) *inbound {
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
		v = &visitor{}
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
	return g.all.Open(), g.refused
}

// gatedListener is a listener behind a gate. Its connections are of type *inbound.
type gatedListener struct {
	*connlimit.Listener
	gate *gate
}

func newGatedListener(ln net.Listener, g *gate) *gatedListener {
	return &gatedListener{&connlimit.Listener{Listener: ln, Limiter: g.all}, g}
}

// tooMany is the answer to a client whose connection is refused.
const tooMany = "HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"

// Accept implements net.Listener.
func (l *gatedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.gate.admit(conn.(*connlimit.Conn)); c != nil {
			return c, nil
		}
		if l.gate.secure == nil { // a handshake would cost more than the connection
			_, _ = io.WriteString(conn, tooMany) // it is short enough for the socket's buffer
		}
		conn.Close()
	}
}
