package builtin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/quellhq/quell"
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
	leaving   bool        // no longer asked for: gone as soon as its last request is done
	drainEnd  *time.Timer // while draining: when open requests are cut
	unwatch   context.CancelFunc

	meter     *meter
	conns     *connections
	transport *http.Transport
}

func newBackend(spec quell.Backend, m *meter, o *Options) *backend {
	conns := &connections{
		dialer: net.Dialer{Timeout: o.Timeouts.Connect}, meter: m, open: map[*trackedConn]struct{}{},
	}
	return &backend{
		id: spec.ID, address: spec.Address, spec: spec, unwatch: func() {}, meter: m, conns: conns,
		transport: &http.Transport{
			DialContext: conns.dial, ResponseHeaderTimeout: o.Timeouts.ResponseHeader, IdleConnTimeout: o.Timeouts.Idle,
			MaxIdleConnsPerHost: o.MaxConns, DisableCompression: true, ExpectContinueTimeout: time.Second,
			MaxResponseHeaderBytes: 1 << 20,
		},
	}
}

func (b *backend) draining() bool { return b.spec.Draining || b.leaving }

// send makes one attempt. An error that is a *dialError means that nothing was sent.
func (b *backend) send(req *http.Request) (*http.Response, error) {
	attempt := req.WithContext(req.Context())
	target := *req.URL
	target.Scheme, target.Host = "http", b.address
	attempt.URL = &target
	return b.transport.RoundTrip(attempt)
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

// connections opens a backend's connections, times that, and can cut them all.
type connections struct {
	dialer net.Dialer
	meter  *meter

	mu    sync.Mutex
	open  map[*trackedConn]struct{}
	isCut bool
}

type trackedConn struct {
	net.Conn
	of *connections
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	start := time.Now()
	raw, err := c.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, &dialError{err}
	}
	c.meter.connected(time.Since(start))
	conn := &trackedConn{Conn: raw, of: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		raw.Close()
		return nil, &dialError{errDrained}
	}
	c.open[conn] = struct{}{}
	return conn, nil
}

func (t *trackedConn) Close() error {
	t.of.mu.Lock()
	delete(t.of.open, t)
	t.of.mu.Unlock()
	return t.Conn.Close()
}

// cut closes every connection, whatever it carries, and refuses new ones until restored.
func (c *connections) cut() {
	c.mu.Lock()
	c.isCut = true
	var open []*trackedConn
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
