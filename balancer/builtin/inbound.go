package builtin

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell/internal/connlimit"
)

// clientRules say what clients may do, and what is passed on. They may change while connections are open.
type clientRules struct {
	body, write, upgrade time.Duration // 0: no limit
	halfClosed           time.Duration // how long a request may go on when its client sends no more
	trusted              []netip.Prefix
	named                bool     // responses name their instance
	reports              bool     // responses have load reports
	host                 string   // Host of requests that have none
	upgrades             []string // protocols other than HTTP to which a client may change
}

func clientRulesOf(o *Options) *clientRules {
	t := o.Timeouts
	return &clientRules{
		body: t.Body, write: t.Write, upgrade: t.Upgrade, halfClosed: t.HalfClosed,
		trusted: o.TrustedProxies, named: o.NameInstance, reports: o.LoadReports, host: o.DefaultHost, upgrades: o.Upgrades,
	}
}

// trusts returns whether an address is that of a trusted proxy.
func (r *clientRules) trusts(peer netip.Addr) bool {
	return slices.ContainsFunc(r.trusted, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// inbound is a client's connection. It closes the connection when a request body stalls or when the client stops
// reading a response, and it refuses requests of ambiguous length.
type inbound struct {
	net.Conn // with TLS a *secured, otherwise pace
	pace     *paced
	state    atomic.Pointer[tls.ConnectionState] // after the handshake
	peer     netip.Addr
	rules    *atomic.Pointer[clientRules]
	place    *connlimit.Conn // counts in the limit of connections; nil: it does not count
	once     sync.Once
	upgraded atomic.Bool // the connection was upgraded: what follows is not HTTP

	answered atomic.Int64  // requests that were answered
	left     atomic.Int64  // when the client closed its side, in ns since epoch; 0: it has not
	sealed   atomic.Bool   // the rest of the present request is not read
	begun    atomic.Int64  // requests of which something has arrived
	told     atomic.Bool   // something was sent to the client after it last sent something
	readBy   atomic.Int64  // deadline of reading, in ns since epoch; 0: none
	poked    chan struct{} // a changed deadline, or the close, wakes a Read that waits without reading

	// The fields below are used only by Read, which is not called concurrently.
	framing framing
	insert  []byte // bytes that the server reads next, before the client's bytes
}

// newInbound makes a client's connection, with TLS if there is a configuration of it.
func newInbound(conn net.Conn, rules *atomic.Pointer[clientRules], secure *tls.Config) *inbound {
	pace := &paced{Conn: conn, rules: rules}
	c := &inbound{Conn: pace, pace: pace, peer: peerOf(conn), rules: rules, poked: make(chan struct{}, 1)}
	if secure != nil {
		c.Conn = &secured{tls.Server(pace, secure), pace}
	}
	return c
}

// secrecy returns the state of TLS, nil without TLS.
func (c *inbound) secrecy() *tls.ConnectionState {
	s, ok := c.Conn.(*secured)
	if !ok {
		return nil
	}
	if c.state.Load() == nil {
		state := s.ConnectionState()
		c.state.Store(&state)
	}
	return c.state.Load()
}

// begin and end enclose a request, for the limit of connections.
func (c *inbound) begin() {
	if c.place != nil {
		c.place.Begin()
	}
}

func (c *inbound) end() {
	c.answered.Add(1)
	if c.place != nil {
		c.place.End()
	}
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
	n, err := c.readUnsealed(b)
	for n > 0 && !c.upgraded.Load() && c.framing.awaitsRequest() {
		rest := skipEmptyLines(b[:n])
		if n = copy(b, rest); n > 0 || err != nil {
			break
		}
		n, err = c.readUnsealed(b)
	}
	if n == 0 && errors.Is(err, io.EOF) {
		return 0, c.awaitAnswer()
	}
	if n == 0 || c.upgraded.Load() {
		return n, err
	}
	end := c.framing.scan(b[:n])
	c.begun.Store(c.framing.begun())
	c.told.Store(false)
	if end >= 0 {
		put := copy(b[end:], malformed)
		c.insert = []byte(malformed[put:])
		return end + put, nil
	}
	return n, err
}

// skipEmptyLines returns what follows empty lines in front of a request, which a server ignores (RFC 9112, section 2.2). net/http does so
// only behind a POST.
func skipEmptyLines(b []byte) []byte {
	for {
		rest, found := bytes.CutPrefix(b, []byte("\r\n"))
		if !found {
			if rest, found = bytes.CutPrefix(b, []byte("\n")); !found {
				return b
			}
		}
		b = rest
	}
}

// awaitAnswer is called when the client has closed its side of the connection. If the server still owes it an answer,
// awaitAnswer waits, because net/http cancels a request at the end of its connection. A client that has only closed its
// sending side gets its answer; whether it has gone altogether cannot be seen until something is sent to it.
func (c *inbound) awaitAnswer() error {
	c.left.CompareAndSwap(0, int64(time.Since(epoch)))
	grace := c.rules.Load().halfClosed
	if grace <= 0 || c.upgraded.Load() || !c.framing.bodyArrived() || c.framing.complete == c.answered.Load() {
		return io.EOF
	}
	over := time.NewTimer(time.Duration(c.left.Load()) + grace - time.Since(epoch))
	defer over.Stop()
	for {
		if c.isLate() {
			return os.ErrDeadlineExceeded
		}
		select {
		case <-over.C:
			return io.EOF
		case <-c.poked:
		}
	}
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

// readUnsealed reads unless the rest of the request is not wanted. Sealing a connection may wake a read that waits for the
// next request; that read goes on.
func (c *inbound) readUnsealed(b []byte) (int, error) {
	for {
		if c.sealed.Load() && !c.framing.bodyArrived() {
			return 0, errSealed
		}
		n, err := c.readWithin(b, c.patience())
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || c.upgraded.Load() || !c.framing.bodyArrived() || c.isLate() {
			return n, err
		}
		c.renewDeadline()
	}
}

// isLate returns whether the server's own deadline of reading is over.
func (c *inbound) isLate() bool {
	by := c.readBy.Load()
	return by != 0 && by <= int64(time.Since(epoch))
}

// renewDeadline sets the server's own deadline of reading again, which may change meanwhile.
func (c *inbound) renewDeadline() {
	for {
		by, until := c.readBy.Load(), time.Time{}
		if by != 0 {
			until = epoch.Add(time.Duration(by))
		}
		_ = c.Conn.SetReadDeadline(until) // fails only on a closed connection
		if c.readBy.Load() == by {
			return
		}
	}
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
		if c.sealed.Load() {
			return 0, errSealed
		}
		n, err := c.Conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().Before(until) {
			return n, err
		}
		wrote := time.Duration(c.pace.wrote.Load())
		later := epoch.Add(wrote + limit)
		if wrote == 0 || !later.After(until) {
			return 0, err
		}
		until = later
	}
}

// errSealed is the error of reading from a sealed connection.
var errSealed = errors.New("the rest of the request is not read")

// seal ends the reading of a request's body, also a Read that is in progress.
func (c *inbound) seal() {
	c.sealed.Store(true)
	_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed connection
}

// unseal allows reading again.
func (c *inbound) unseal() {
	c.sealed.Store(false)
	c.renewDeadline()
}

// Write implements net.Conn.
func (c *inbound) Write(b []byte) (int, error) {
	c.told.Store(true)
	return c.Conn.Write(b)
}

// SetDeadline implements net.Conn.
func (c *inbound) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *inbound) SetReadDeadline(t time.Time) error {
	by := int64(0)
	if !t.IsZero() {
		by = int64(max(1, t.Sub(epoch)))
	}
	c.readBy.Store(by)
	err := c.Conn.SetReadDeadline(t)
	c.poke()
	return err
}

func (c *inbound) poke() {
	select {
	case c.poked <- struct{}{}:
	default:
	}
}

// lingering is how long a client that still sends its request may take to read the answer to it.
const lingering = 5 * time.Second

// CloseWrite closes the sending side. net/http calls it before it closes the connection of a client that still sends.
func (c *inbound) CloseWrite() error { return connlimit.CloseWrite(c.Conn) }

// wasRefused returns whether net/http has answered a request that no handler saw, because it was malformed.
func (c *inbound) wasRefused() bool {
	return c.told.Load() && c.begun.Load() > c.answered.Load() && !c.upgraded.Load()
}

// Close implements net.Conn. If the client still sends, what it sends is thrown away for a while: an immediate close would
// reset the connection, and the client would lose an answer that it has not read yet.
func (c *inbound) Close() error {
	_ = c.SetReadDeadline(time.Unix(1, 0))
	if (c.sealed.Load() || c.wasRefused()) && c.CloseWrite() == nil {
		go c.once.Do(func() {
			_ = c.Conn.SetReadDeadline(time.Now().Add(lingering)) // without a deadline the copy ends with the client
			_, _ = io.Copy(io.Discard, c.Conn)
			c.Conn.Close()
		})
		return nil
	}
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
