package builtin

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/route"
)

// backend is an instance at one address, which never changes.
type backend struct {
	id, address string

	// Guarded by the pool's lock.
	spec      quell.Backend // as asked for
	candidate route.Candidate
	health    healthState
	checked   string      // what the last failing check asked and got; empty once one has passed
	byHand    *quell.Held // taken out here by hand: no Apply puts it back
	leaving   bool        // no longer asked for: gone as soon as its last request is done
	drainEnd  *time.Timer // of one on its way out: when open requests are cut
	unwatch   context.CancelFunc

	failing   outage.Flood // requests that this instance let fail
	meter     *meter
	conns     *connections
	transport atomic.Pointer[http.Transport]
}

func newBackend(spec quell.Backend, m *meter, o *Options, places *places) *backend {
	b := &backend{
		id: spec.ID, address: spec.Address, spec: spec, unwatch: func() {}, meter: m,
		failing: outage.Flood{Logger: o.Logger, What: "requests fail", Level: slog.LevelWarn},
		conns:   &connections{meter: m, places: places, open: map[*outbound]struct{}{}},
	}
	b.configure(o)
	return b
}

// configure makes new requests follow the options' time-outs. Open ones keep those that they began with.
func (b *backend) configure(o *Options) {
	b.conns.connect.Store(int64(o.Timeouts.Connect))
	b.conns.idle.Store(int64(o.Timeouts.UpstreamIdle))
	old := b.transport.Swap(&http.Transport{
		DialContext: b.conns.dial, ResponseHeaderTimeout: o.Timeouts.ResponseHeader, IdleConnTimeout: o.Timeouts.UpstreamIdle,
		MaxIdleConnsPerHost: math.MaxInt, DisableCompression: true, ExpectContinueTimeout: time.Second,
		MaxResponseHeaderBytes: 1 << 20,
	})
	if old != nil {
		old.CloseIdleConnections()
	}
}

// draining says that no new requests may arrive.
func (b *backend) draining() bool { return b.spec.Draining || b.leaving || b.byHand != nil }

// timed says that open requests are cut when Options.Drain is over: the backend is on its way out.
func (b *backend) timed() bool { return b.leaving || b.spec.Draining && !b.spec.Held }

// send makes one attempt. An error that is a *dialError means that nothing was sent. A request that finds its kept
// connection closed before a byte of it was sent goes out again on another one, whatever its method.
func (b *backend) send(req *http.Request, x *exchange) (*http.Response, error) {
	attempt := *req
	target := *req.URL
	target.Scheme, target.Host = "http", b.address
	attempt.URL = &target
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

// follow makes the exchange know the connection that its request goes out on, by the trace that ReverseProxy set.
func (x *exchange) follow(ctx context.Context) context.Context {
	trace := httptrace.ContextClientTrace(ctx)
	if trace == nil {
		trace = &httptrace.ClientTrace{}
		ctx = httptrace.WithClientTrace(ctx, trace)
	}
	trace.GotConn = func(info httptrace.GotConnInfo) {
		if c, ok := info.Conn.(*outbound); ok {
			x.outbound = c
			x.turn = c.begin(info.Reused)
			if x.upload != nil && !info.Reused {
				x.upload.forget() // a new connection is not found closed
			}
		}
	}
	return ctx
}

// dialError says that no connection could be opened.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// errDrained is why a request that was given to a backend just before the end of its drain cannot connect.
var errDrained = errors.New("the instance is drained")

func isDialError(err error) bool {
	var d *dialError
	return errors.As(err, &d)
}

// places bounds the connections to all instances.
type places struct {
	most     atomic.Int64 // 0: no limit
	taken    atomic.Int64
	makeRoom func() // closes kept connections that carry no request
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

// connections opens a backend's connections, times that, and can cut them all. It also keeps how long the instance
// leaves a connection open on which nothing is asked.
type connections struct {
	connect atomic.Int64 // time-out, as time.Duration
	idle    atomic.Int64 // as configured
	meter   *meter
	places  *places

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

// closed forgets a connection.
func (c *connections) closed(conn *outbound) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.open[conn]; open {
		delete(c.open, conn)
		c.places.leave()
	}
}

// cut closes every connection, whatever it carries, and refuses new ones until restored.
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
