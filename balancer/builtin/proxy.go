package builtin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/measure"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/route"
)

// errNoBackend says that no backend may get requests.
var errNoBackend = errors.New("no instance is available")

// proxy passes requests on to backends and records how each request ended.
type proxy struct {
	pool     *pool
	limiter  *connLimiter
	classes  balancer.Classes
	first    bool // the objective is about the time to the first byte
	reverse  *httputil.ReverseProxy
	unrouted outage.Flood // requests for which there is no instance
	load     loadReport
	active   sync.WaitGroup // requests in progress, including upgraded connections
	open     atomic.Int64   // their number
	ending   atomic.Bool    // shutting down: connections are closed after their request
}

func newProxy(p *pool, g *connLimiter, o *Options) *proxy {
	x := &proxy{pool: p, limiter: g, classes: o.Classes, first: o.FirstByte}
	x.unrouted = outage.Flood{Logger: o.Logger, What: "requests find no instance", Level: slog.LevelWarn}
	x.reverse = &httputil.ReverseProxy{
		Rewrite:        x.forward,
		Transport:      x,
		ModifyResponse: x.complete,
		ErrorHandler:   x.refuse,
		BufferPool:     &bufferPool{},
		FlushInterval:  -1, // pass data on as soon as it arrives
		ErrorLog:       outage.ErrorLog(o.Logger),
	}
	return x
}

// exchange is the state of one request. The request's context contains it, for all code that handles the request.
type exchange struct {
	arrived   time.Time
	request   *http.Request // the request as the server read it; trailers are added to it
	class     string        // of the request; "" if classes are not measured
	aside     bool          // its class is not part of the objective
	header    http.Header   // of the response
	client    *inbound      // nil if the connection was not accepted by the balancer
	backend   *backend      // the last backend tried
	sent      time.Time
	begun     time.Time // of the response
	moved     bool      // another backend was tried before
	stream    bool      // the response is a stream
	firstByte bool      // the objective is about the time to the first byte
	endless   bool      // it is a stream or an upgraded connection, which no longer counts as an open request
	met       int64     // requests that were open at the backend when this one was sent
	patience  time.Duration
	outbound  *outbound // the last connection tried, and the number of the request on it
	turn      int64
	upload    *upload
	download  *download
	status    int
	refused   bool // the balancer answered because no backend did
	own       bool // the balancer answered because of an error of its own
	whole     bool // the response was complete
	headOnly  bool // the response has no body
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange { return r.Context().Value(exchangeKey{}).(*exchange) }

// inboundKey is the context key of a request's *inbound.
type inboundKey struct{}

func withInbound(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*inbound); ok {
		return context.WithValue(ctx, inboundKey{}, c)
	}
	return ctx
}

// followInbound tells the limit of connections which of them have got all their answers.
func followInbound(conn net.Conn, state http.ConnState) {
	if c, ok := conn.(*inbound); ok && c.place != nil {
		c.place.Follow(state)
	}
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.active.Add(1)
	p.open.Add(1)
	defer p.active.Done()
	defer p.open.Add(-1)
	client, _ := r.Context().Value(inboundKey{}).(*inbound)
	if client != nil {
		client.begin()
		defer client.end()
		r.TLS = client.secrecy() // the server itself sees only what was decrypted
	}
	if p.isUnsupported(w, r) {
		return
	}
	x := &exchange{arrived: time.Now(), request: r, header: w.Header(), class: p.classes.Of(r.RequestURI), client: client}
	x.firstByte, x.aside = p.first, p.classes.Aside(x.class)
	if r.ContentLength != 0 {
		x.upload = &upload{body: r.Body}
		if r.ProtoMajor == 2 {
			body := &streamBody{ReadCloser: r.Body, control: http.NewResponseController(w), rules: p.limiter.rules.Load()}
			x.upload.body = body
			defer body.end()
		}
		if x.client != nil && r.ProtoMajor == 1 {
			defer x.upload.settle(x.client)
		}
		// Without full duplex the server would read and discard the rest of an upload as soon as an instance begins to answer.
		_ = http.NewResponseController(w).EnableFullDuplex() // always supported for HTTP/1
	}
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	if r.Header.Get("Upgrade") != "" {
		w = upgrading{w, client}
	}
	if r.ProtoMajor == 2 {
		answer := &stream{ResponseWriter: w, of: x, control: http.NewResponseController(w), rules: p.limiter.rules.Load()}
		defer answer.arm()
		w = answer
	}
	defer p.finish(x, r.Context()) // deferred, because a broken copy ends the handler with a panic
	p.reverse.ServeHTTP(w, r)
	x.whole = true
}

// RoundTrip sends the request to a backend. If that backend cannot be reached, it tries the next one, which is safe because nothing was
// sent. A request that was sent is repeated only if http.Transport does so itself: when a kept connection turns out to be closed, the
// method is safe and there is no body.
func (p *proxy) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req)
	if ctx := x.follow(req.Context()); ctx != req.Context() {
		req = req.WithContext(ctx)
	}
	x.sent, x.patience = time.Now(), time.Duration(p.pool.patience.Load())
	if x.backend, x.met = p.pool.acquire(x.sent, x.class, nil); x.backend == nil {
		p.pool.unrouted.Add(1)
		return nil, errNoBackend
	}
	var tried []*backend
	for {
		resp, err := x.backend.send(req, x)
		if err == nil {
			x.accept(req.Context(), resp)
			return resp, nil
		}
		if !isDialError(err) {
			return nil, err
		}
		x.own = ownFault(err)
		if !errors.Is(err, errDrained) && req.Context().Err() == nil {
			p.pool.suspect(x.backend, err)
		}
		tried = append(tried, x.backend)
		if !p.move(req.Context(), x, tried) {
			return nil, err
		}
	}
}

// move gives the request to a backend that was not tried yet, if there is one.
func (p *proxy) move(ctx context.Context, x *exchange, tried []*backend) bool {
	if ctx.Err() != nil || !x.canRepeat() {
		return false
	}
	now := time.Now()
	next, met := p.pool.acquire(now, x.class, tried)
	if next == nil {
		return false
	}
	x.backend.meter.requestMoved(now, x.class)
	var e *ending
	if !x.own {
		e = x.ending(now, true)
	}
	p.pool.release(x.backend, e)
	x.backend, x.sent, x.met, x.own, x.moved = next, now, met, false, true
	return true
}

func (x *exchange) accept(ctx context.Context, resp *http.Response) {
	x.begun = time.Now()
	x.settle(resp)
	x.status = resp.StatusCode
	x.headOnly = resp.ContentLength == 0
	if x.upload != nil {
		if body, ok := x.upload.body.(*streamBody); ok {
			body.begin()
		}
	}
	x.header["Content-Type"] = nil                        // otherwise the server guesses one if the instance sends none
	if resp.StatusCode != http.StatusSwitchingProtocols { // otherwise the body is the upgraded connection itself
		x.download = &download{body: resp.Body, client: ctx}
		resp.Body = x.download
		return
	}
	x.header.Del("Connection") // the instance's own header says Upgrade
	if both, ok := resp.Body.(io.ReadWriteCloser); ok && x.client != nil && x.outbound != nil {
		resp.Body = &tunnel{both, x.outbound, x.client.rules.Load().halfClosed}
	}
}

// complete adds to a response what the balancer itself says to the client.
func (p *proxy) complete(resp *http.Response) error {
	x := exchangeOf(resp.Request)
	if p.limiter.rules.Load().named {
		resp.Header.Set(InstanceHeader, x.backend.id)
	}
	p.report(resp.Header, resp.StatusCode)
	early := x.upload != nil && !x.upload.ended.Load() && resp.StatusCode >= http.StatusBadRequest
	if (early || p.ending.Load()) && x.request.ProtoMajor == 1 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Header.Set("Connection", "close")
	}
	return nil
}

// report counts a response and, if responses have load reports, adds the present one. An instance's own report is meant for the balancer.
func (p *proxy) report(h http.Header, status int) {
	p.load.count(status)
	if !p.limiter.rules.Load().reports {
		return
	}
	if text := p.load.header(time.Now()); text != "" {
		h.Set(LoadHeader, text)
	} else {
		h.Del(LoadHeader)
	}
}

// isUnsupported answers requests that no instance gets.
func (p *proxy) isUnsupported(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.Method == http.MethodConnect:
		http.Error(w, "this is not a forward proxy", http.StatusMethodNotAllowed)
	case r.Method == "PRI": // reserved for the beginning of HTTP/2 (RFC 9113, section 11.6)
		w.Header().Set("Connection", "close")
		http.Error(w, "HTTP/2 is switched off", http.StatusHTTPVersionNotSupported)
	case strings.Contains(r.RequestURI, "#"): // has no place in a request (RFC 9112, section 3.2); net/url would escape it
		w.Header().Set("Connection", "close")
		http.Error(w, "the request's target has a fragment", http.StatusBadRequest)
	case r.ProtoMajor == 2 && isMalformed(r):
		http.Error(w, "the request is malformed", http.StatusBadRequest)
	default:
		return false
	}
	return true
}

// refuse answers the client if no backend does.
func (p *proxy) refuse(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r)
	x.refused = true
	var text string
	x.status, text = x.explain(r.Context(), err)
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if p.limiter.rules.Load().named && x.backend != nil {
		h.Set(InstanceHeader, x.backend.id)
	}
	p.report(h, x.status)
	p.tell(x, r.Context(), err)
	if x.status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	if x.request.ProtoMajor == 1 && (p.ending.Load() || x.upload != nil && !x.upload.ended.Load()) {
		h.Set("Connection", "close") // without the body's end it is unknown where the next request begins
	}
	w.WriteHeader(x.status)
	io.WriteString(w, text+"\n")
}

// tell logs when requests begin to fail and when they succeed again. If a client leaves or sends a broken request, that is not a failure.
func (p *proxy) tell(x *exchange, client context.Context, err error) {
	switch {
	case client.Err() != nil || x.status < 500:
	case x.backend == nil:
		p.unrouted.Note("error", err)
	default:
		x.backend.failing.Note("instance", x.backend.id, "address", x.backend.address, "error", err)
	}
}

func (x *exchange) explain(ctx context.Context, err error) (status int, text string) {
	var timeout net.Error
	switch {
	case errors.Is(err, errNoBackend):
		return http.StatusServiceUnavailable, "no instance is available"
	case x.own:
		return http.StatusServiceUnavailable, "the balancer cannot open more connections"
	case isDialError(err):
		return http.StatusServiceUnavailable, "no instance can be reached"
	case x.upload != nil && x.upload.late.Load():
		return http.StatusRequestTimeout, "the request's body did not arrive in time"
	case x.backend == nil, x.upload != nil && x.upload.broken.Load():
		return http.StatusBadRequest, "the request is broken"
	case ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout():
		return http.StatusGatewayTimeout, "the instance did not answer in time"
	default:
		return http.StatusBadGateway, "the instance broke the connection"
	}
}

// finish records how the exchange ended, for the last backend tried.
func (p *proxy) finish(x *exchange, client context.Context) {
	if x.backend == nil {
		return
	}
	now := time.Now()
	if x.outbound != nil {
		x.outbound.end(x.turn, now)
	}
	r := x.result(now, client)
	x.backend.meter.requestDone(now, r)
	var e *ending
	if r.verdict == measure.Response || r.bad() {
		e = x.ending(now, r.bad())
	}
	p.pool.release(x.backend, e)
}

func (x *exchange) ending(now time.Time, failed bool) *ending {
	return &ending{route.Answer{Took: now.Sub(x.sent), InFlight: x.met, Failed: failed}, now}
}

// waited returns for how long the client waited for the backend, until now or until it left.
func (x *exchange) waited(now time.Time) time.Duration {
	if x.client != nil {
		if left := x.client.left.Load(); left != 0 {
			now = epoch.Add(time.Duration(left))
		}
	}
	return now.Sub(x.sent)
}

// download is a response body. It records whether it was the backend that broke off, not the client.
type download struct {
	body   io.ReadCloser
	client context.Context
	broken atomic.Bool
}

func (d *download) Read(b []byte) (int, error) {
	n, err := d.body.Read(b)
	if err != nil && !errors.Is(err, io.EOF) && d.client.Err() == nil {
		d.broken.Store(true)
	}
	return n, err
}

func (d *download) Close() error { return d.body.Close() }

// bufferPool provides the buffers for copying.
type bufferPool struct{ free sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.free.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 32<<10)
}

func (p *bufferPool) Put(b []byte) { p.free.Put(&b) }
