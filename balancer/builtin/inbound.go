package builtin

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// clientRules are the limits for clients. They may change while connections are open.
type clientRules struct {
	body, write, upgrade time.Duration // 0: no limit
	trusted              []netip.Prefix
}

func clientRulesOf(o *Options) *clientRules {
	return &clientRules{body: o.Timeouts.Body, write: o.Timeouts.Write, upgrade: o.Timeouts.Upgrade, trusted: o.TrustedProxies}
}

// trusts returns whether an address is that of a trusted proxy.
func (r *clientRules) trusts(peer netip.Addr) bool {
	return slices.ContainsFunc(r.trusted, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// inbound is a client's connection. It closes the connection when a request body stalls or when the client stops
// reading a response, and it refuses requests of ambiguous length.
type inbound struct {
	net.Conn
	peer     netip.Addr
	rules    *atomic.Pointer[clientRules]
	leave    func()
	once     sync.Once
	upgraded atomic.Bool // the connection was upgraded: what follows is not HTTP

	// The fields below are used only by Read, which is not called concurrently.
	framing framing
	insert  []byte // bytes that the server reads next, before the client's bytes

	wrote atomic.Int64 // when the client last read something, in ns since epoch; 0: never
	armed atomic.Int64 // deadline of the present write, in ns since epoch; 0: none
}

// epoch is the zero of this file's times, so that they are small numbers of the monotonic clock.
var epoch = time.Now()

// malformed is a header line that no server accepts: net/http answers it with 400 and closes the connection.
const malformed = "\r\nambiguous length\r\n\r\n"

// Read implements net.Conn.
func (c *inbound) Read(b []byte) (int, error) {
	if len(c.insert) > 0 {
		n := copy(b, c.insert)
		c.insert = c.insert[n:]
		return n, nil
	}
	n, err := c.readWithin(b, c.patience())
	if n == 0 || c.upgraded.Load() {
		return n, err
	}
	if end := c.framing.scan(b[:n]); end >= 0 {
		put := copy(b[end:], malformed)
		c.insert = []byte(malformed[put:])
		return end + put, nil
	}
	return n, err
}

// patience returns how long the client may send nothing; 0: any time. While a header is awaited, http.Server enforces its own limit.
func (c *inbound) patience() time.Duration {
	switch {
	case c.upgraded.Load():
		return c.rules.Load().upgrade
	case c.framing.inBody():
		return c.rules.Load().body
	}
	return 0
}

// readWithin sets the deadline of reading from the client. While the client is still reading a response, the connection does not count as
// idle.
func (c *inbound) readWithin(b []byte, limit time.Duration) (int, error) {
	if limit <= 0 {
		return c.Conn.Read(b)
	}
	until := time.Now().Add(limit)
	for {
		if err := c.Conn.SetReadDeadline(until); err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().Before(until) {
			return n, err
		}
		wrote := time.Duration(c.wrote.Load())
		later := epoch.Add(wrote + limit)
		if wrote == 0 || !later.After(until) {
			return 0, err
		}
		until = later
	}
}

// Write implements net.Conn. It fails if the client reads nothing within the allowed time.
func (c *inbound) Write(b []byte) (n int, err error) {
	for {
		if err := c.arm(); err != nil {
			return n, err
		}
		taken, err := c.Conn.Write(b[n:])
		n += taken
		if taken > 0 {
			c.wrote.Store(int64(time.Since(epoch)))
		}
		if taken == 0 || n == len(b) || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		c.armed.Store(0)
	}
}

// arm sets the deadline of the next write. Between many short writes it leaves the deadline unchanged, because
// setting it is expensive.
func (c *inbound) arm() error {
	limit := c.rules.Load().write
	now, armed := time.Since(epoch), time.Duration(c.armed.Load())
	switch {
	case limit <= 0 && armed == 0, limit > 0 && armed-now > limit-limit/8 && armed-now <= limit:
		return nil
	case limit <= 0:
		c.armed.Store(0)
		return c.Conn.SetWriteDeadline(time.Time{})
	}
	c.armed.Store(int64(now + limit))
	return c.Conn.SetWriteDeadline(epoch.Add(now + limit))
}

// SetDeadline implements net.Conn.
func (c *inbound) SetDeadline(t time.Time) error {
	c.armed.Store(0)
	return c.Conn.SetDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *inbound) SetWriteDeadline(t time.Time) error {
	c.armed.Store(0)
	return c.Conn.SetWriteDeadline(t)
}

// Close implements net.Conn.
func (c *inbound) Close() error {
	defer c.once.Do(c.leave)
	return c.Conn.Close()
}

// peerOf returns the remote address, the zero Addr if the connection is not TCP.
func peerOf(conn net.Conn) netip.Addr {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// clientOf returns what counts as one client: an IPv4 address, or the /64 network of an IPv6 address.
func clientOf(peer netip.Addr) netip.Addr {
	if !peer.Is6() {
		return peer
	}
	prefix, _ := peer.Prefix(64) // cannot fail for 64 bits of an IPv6 address
	return prefix.Addr()
}
