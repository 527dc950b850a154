package builtin

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/route"
)

// backend is an instance at one address. The address never changes.
type backend struct {
	id, address string

	// Guarded by the pool's lock.
	spec      quell.Backend // as requested
	candidate route.Candidate
	withheld  int64 // places of candidate.InFlight that no request has; see pool.withhold
	health    health.State
	checked   string      // the last health check's request and answer if it failed; empty if it passed
	byHand    *quell.Held // taken out of rotation at this balancer by a person: Apply does not put it back
	leaving   bool        // no longer listed: removed when its last request has ended
	drainEnd  *time.Timer // cuts the open requests of a backend that is being removed
	drains    int         // how often drainEnd was started
	unwatch   context.CancelFunc

	failing   outage.Flood // requests that failed at this instance
	meter     *meter
	conns     *connections
	transport atomic.Pointer[http.Transport]
}

func newBackend(spec quell.Backend, m *meter, o *Options, places *places) *backend {
	b := &backend{
		id: spec.ID, address: spec.Address, spec: spec, unwatch: func() {}, meter: m,
		failing: outage.Flood{Logger: o.Logger, What: "requests fail", Level: slog.LevelWarn},
		conns:   &connections{meter: m, places: places, frames: o.Upstream == H2C, open: map[*outbound]struct{}{}},
	}
	b.configure(o)
	return b
}

// configure applies the options' time-outs to new requests. Open requests keep their time-outs.
func (b *backend) configure(o *Options) {
	b.conns.connect.Store(int64(o.Timeouts.Connect))
	b.conns.idle.Store(int64(o.Timeouts.UpstreamIdle))
	old := b.transport.Swap(&http.Transport{
		DialContext: b.conns.dial, ResponseHeaderTimeout: o.Timeouts.ResponseHeader, IdleConnTimeout: o.Timeouts.UpstreamIdle,
		MaxIdleConnsPerHost: math.MaxInt, DisableCompression: true, ExpectContinueTimeout: time.Second,
		MaxResponseHeaderBytes: 1 << 20, Protocols: o.Upstream.protocols(),
	})
	if old != nil {
		old.CloseIdleConnections()
	}
}

// open returns the number of open requests.
func (b *backend) open() int64 { return b.candidate.InFlight - b.withheld }

// draining returns whether the backend may get no new requests.
func (b *backend) draining() bool { return b.spec.Draining || b.leaving || b.byHand != nil }

// timed returns whether open requests are cut after Options.Drain, because the backend is being removed.
func (b *backend) timed() bool { return b.leaving || b.spec.Draining && !b.spec.Held }

// send makes one attempt to send a request. A *dialError means that nothing was sent. If a kept connection turns out to be closed before a
// byte was sent on it, the request is sent again on another connection, whatever its method.
func (b *backend) send(req *http.Request, x *exchange) (*http.Response, error) {
	attempt := *req
	target := *req.URL
	target.Scheme, target.Host = "http", b.address
	attempt.URL = &target
	if b.conns.frames && attempt.Host == noHost { // HTTP/2 has no empty one
		attempt.Host = b.address
	}
	for {
		x.prepare(&attempt)
		resp, err := b.transport.Load().RoundTrip(&attempt)
		if err == nil {
			x.outbound.learnFrom(resp.Header)
			return resp, nil
		}
		if isDialError(err) || x.outbound == nil || req.Context().Err() != nil {
			return nil, err
		}
		if !x.outbound.unused() || !x.canRepeat() {
			x.outbound.learnFromLoss()
			return nil, err
		}
		x.outbound = nil
	}
}

// follow notes in the exchange which connection its request uses. It learns that from the trace that ReverseProxy set.
func (x *exchange) follow(ctx context.Context) context.Context {
	trace := httptrace.ContextClientTrace(ctx)
	if trace == nil {
		trace = &httptrace.ClientTrace{}
		ctx = httptrace.WithClientTrace(ctx, trace)
	}
	trace.Got1xxResponse = x.interim(trace.Got1xxResponse)
	trace.GotConn = func(info httptrace.GotConnInfo) {
		if c, ok := info.Conn.(*outbound); ok && !c.of.frames { // the transport checks HTTP/2 connections itself
			x.outbound = c
			x.turn = c.begin(info.Reused)
			if x.upload != nil && !info.Reused {
				x.upload.forget() // a new connection cannot turn out to be closed
			}
		}
	}
	return ctx
}

// interim wraps the function that passes interim responses (1xx) to the client. HTTP/1.0 has none of them (RFC 9110, section 15.2), and
// fields that belong to the connection to the instance are removed (section 7.6.1).
func (x *exchange) interim(pass func(int, textproto.MIMEHeader) error) func(int, textproto.MIMEHeader) error {
	if pass == nil || !x.request.ProtoAtLeast(1, 1) {
		return nil
	}
	return func(code int, h textproto.MIMEHeader) error {
		for _, v := range h["Connection"] {
			for name := range strings.SplitSeq(v, ",") {
				h.Del(textproto.TrimString(name))
			}
		}
		for _, name := range hopByHop {
			h.Del(name)
		}
		return pass(code, h)
	}
}

// hopByHop are the fields that belong to one connection, whether or not its Connection header lists them.
var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade"}

// dialError says that no connection could be opened.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// errDrained is the error of a request that was given to a backend just before the backend's drain ended.
var errDrained = errors.New("the instance is drained")

func isDialError(err error) bool {
	return errors.As(err, new(*dialError))
}

// places limits the connections to all instances.
type places struct {
	most     atomic.Int64 // 0: no limit
	taken    atomic.Int64
	makeRoom func() // closes kept connections that are idle
}

func (p *places) take() bool {
	if p.takeFree() {
		return true
	}
	p.makeRoom()
	return p.takeFree()
}

func (p *places) takeFree() bool {
	n, most := p.taken.Add(1), p.most.Load()
	if most > 0 && n > most {
		p.taken.Add(-1)
		return false
	}
	return true
}

func (p *places) leave() { p.taken.Add(-1) }

// connections opens a backend's connections, measures how long that takes, and can cut all of them. It also records how long the instance
// keeps an idle connection open.
type connections struct {
	connect atomic.Int64 // time-out of opening, as time.Duration
	idle    atomic.Int64 // time-out of idle connections, as configured
	meter   *meter
	places  *places
	frames  bool // they carry HTTP/2

	mu      sync.Mutex
	open    map[*outbound]struct{}
	isCut   bool
	learned learned
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if !c.places.take() {
		return nil, &dialError{errNoDescriptors}
	}
	start := time.Now()
	raw, err := (&net.Dialer{Timeout: time.Duration(c.connect.Load())}).DialContext(ctx, network, address)
	if err != nil {
		c.places.leave()
		return nil, &dialError{err}
	}
	c.meter.connected(time.Since(start))
	conn := &outbound{Conn: raw, of: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		raw.Close()
		c.places.leave()
		return nil, &dialError{errDrained}
	}
	c.open[conn] = struct{}{}
	return conn, nil
}

// closed forgets a closed connection.
func (c *connections) closed(conn *outbound) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.open[conn]; open {
		delete(c.open, conn)
		c.places.leave()
	}
}

// cut closes all connections, busy or not, and refuses new ones until they are allowed again.
func (c *connections) cut() {
	c.mu.Lock()
	c.isCut = true
	var open []*outbound
	for conn := range c.open {
		open = append(open, conn)
	}
	c.mu.Unlock()
	for _, conn := range open {
		conn.Close()
	}
}

func (c *connections) restore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = false
}
