package loadgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell"
)

// InstanceHeader is the response header in which a balancer names the instance that answered.
const InstanceHeader = "X-Quell-Instance"

// ErrShed marks an arrival that was dropped because too many requests, or visits, were open.
var ErrShed = errors.New("shed by the generator: too many are open")

// A request sent more than lateAfter after its intended time is late. If more than lateShare are late, the load
// generator may be the bottleneck instead of the service.
const (
	lateAfter = 5 * time.Millisecond
	lateShare = 0.01
)

const bodyBuffer = 16 << 10

// Schedule gives the times, since the start, at which arrivals are to be sent, in order; false after the last.
type Schedule interface {
	Next() (at time.Duration, ok bool)
}

// Request is one request of a visit.
type Request struct {
	At    time.Duration // when to send it, since the start
	Path  string        // what to get, with its query
	Class string        // its class; empty: there are no classes
	Bytes int64         // bytes of the answer; a shorter answer is a failure. 0: any number
	Range bool          // request only the first Bytes with a Range header, if the file may be longer
}

// Visit is what one arrival requests: a sequence of requests. Each is sent when its time has come and the previous one has ended.
// So two requests of one visit are never open at once.
type Visit interface {
	// Next returns the visit's first request and, after each request that has ended, successfully or not, the next one; ended is when
	// that was. It returns false after the last request.
	Next(ended time.Duration) (Request, bool)
}

// Visits returns, at each call, the visit of the next arrival.
type Visits func(at time.Duration) Visit

// once is a visit of one request.
type once struct {
	request Request
	left    bool
}

func (o *once) Next(time.Duration) (Request, bool) {
	left := o.left
	o.left = false
	return o.request, left
}

// Options of a Runner. URL and Arrivals have no default.
type Options struct {
	URL         string               // http://host:port, with a path that is put in front of all others
	Arrivals    Schedule             // when to send
	Path        string               // what to get; default /
	PathOf      func(n int64) string // if set, the path of the n-th request (from 0), instead of Path
	Visit       Visits               // if set, the requests of each arrival, instead of one request for Path
	Until       time.Duration        // requests due at or after it are not sent; 0: no end
	Start       time.Time            // when the schedule begins; default: when Run is called
	Timeout     time.Duration        // limit of one request, from its sending to its last byte; default 30 s
	Fresh       bool                 // make a new connection for each request
	MaxInFlight int                  // limit of open requests or visits; arrivals beyond it are dropped; default 20,000
	Report      func(Sample)         // called once per request, never concurrently; must be quick
	Logger      *slog.Logger
}

// Sample is the result of one request. Times are since the start.
type Sample struct {
	Intended time.Duration // scheduled send time
	Sent     time.Duration // actual send time; for a dropped request, when it was dropped
	Finished time.Duration // last byte, or failure
	Class    string        // class of the request, if there are classes
	Connect  time.Duration // time in which a new connection was made for it; 0: none was
	Instance string        // instance that answered, if the balancer names it
	Status   int           // 0 without an answer
	Bytes    int64         // bytes of the body
	Err      error         // why there is no complete answer
}

// Latency is the time from the intended send time to the last byte, so waiting for a stalled service counts in full.
func (s Sample) Latency() time.Duration { return s.Finished - s.Intended }

// Failed returns whether the request got no complete answer or a status that is not a success.
func (s Sample) Failed() bool { return s.Err != nil || s.Status < 200 || s.Status >= 400 }

// Summary is the result of one run.
type Summary struct {
	Visits    int64         // visits started: not dropped
	Requests  int64         // requests reported: answered, failed or dropped
	Errors    int64         // requests that failed or were dropped
	Shed      int64         // arrivals that were dropped; each counts as one request
	Abandoned int64         // requests that were open when the run was cancelled; not reported
	Late      int64         // sent more than 5 ms after their time
	WorstLate time.Duration // largest delay of a late request
	Bytes     int64         // bytes of bodies received
	Elapsed   time.Duration // since the start
	Warnings  []string      // doubts about the results
}

// Runner sends arrivals as an open loop: each at its intended time, however slow the answers are. An arrival is one
// request, or a visit of several.
type Runner struct {
	opts      Options
	base      string
	transport http.RoundTripper
	buffers   sync.Pool
	log       *slog.Logger

	start    time.Time
	sending  sync.WaitGroup
	mu       sync.Mutex // guards inFlight and summary
	inFlight int
	summary  Summary
	report   sync.Mutex // keeps Report to one call at a time
}

// New checks the options. Errors are *quell.InvalidError.
func New(o Options) (*Runner, error) {
	base, err := url.Parse(o.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, &quell.InvalidError{Path: "url", Problem: fmt.Sprintf("%q is not of the form http://host:port", o.URL)}
	}
	if o.Arrivals == nil {
		return nil, &quell.InvalidError{Path: "arrivals", Problem: "needs a schedule"}
	}
	if o.Timeout < 0 || o.MaxInFlight < 0 || o.Until < 0 {
		return nil, &quell.InvalidError{Path: "timeout, max_in_flight, until", Problem: "must not be negative"}
	}
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 20_000)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Runner{
		opts: o, base: strings.TrimSuffix(o.URL, "/"), transport: newTransport(o.MaxInFlight, o.Fresh), log: o.Logger,
		buffers: sync.Pool{New: func() any { return new([bodyBuffer]byte) }},
	}, nil
}

// newTransport keeps every connection that it opened, unless each request is to have a fresh one. It never lets a request wait for a
// connection, because opening one and waiting for one would slow the open loop.
func newTransport(maxInFlight int, fresh bool) *http.Transport {
	return &http.Transport{
		DisableKeepAlives:   fresh,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		MaxIdleConns:        maxInFlight,
		MaxIdleConnsPerHost: maxInFlight,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	}
}

// Run follows the schedule to its end, waits for the open visits and returns the summary. If ctx ends first, it stops
// sending and abandons open requests. A Runner runs once.
func (r *Runner) Run(ctx context.Context) Summary {
	if t, ok := r.transport.(*http.Transport); ok {
		defer t.CloseIdleConnections()
	}
	r.start = r.opts.Start
	if r.start.IsZero() {
		r.start = time.Now()
	}
	var alarm alarm
	defer alarm.stop()
	for n := int64(0); ; n++ {
		at, ok := r.opts.Arrivals.Next()
		if !ok || !r.waitUntil(ctx, &alarm, at) {
			break
		}
		r.dispatch(ctx, n, at)
	}
	r.sending.Wait()
	return r.finish()
}

// waitUntil sleeps until the given time; not at all if it is past. Timers are late by about a millisecond; requests that became due
// meanwhile are then sent at once. It returns false if the time is after the end, or ctx has ended.
func (r *Runner) waitUntil(ctx context.Context, alarm *alarm, at time.Duration) bool {
	if r.opts.Until > 0 && at >= r.opts.Until {
		return false
	}
	if left := at - r.since(); left > 0 {
		select {
		case <-alarm.after(left):
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// alarm is a timer that is made when it is first needed.
type alarm struct{ timer *time.Timer }

func (a *alarm) after(d time.Duration) <-chan time.Time {
	if a.timer == nil {
		a.timer = time.NewTimer(d)
	} else {
		a.timer.Reset(d)
	}
	return a.timer.C
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

func (r *Runner) since() time.Duration { return time.Since(r.start) }

func (r *Runner) dispatch(ctx context.Context, n int64, at time.Duration) {
	visit := r.visit(n, at)
	admitted := r.admit()
	r.sending.Go(func() {
		if !admitted {
			now := r.since()
			r.account(Sample{Intended: at, Sent: now, Finished: now, Err: ErrShed})
			return
		}
		defer r.release()
		r.follow(ctx, visit, at)
	})
}

func (r *Runner) visit(n int64, at time.Duration) Visit {
	if r.opts.Visit != nil {
		return r.opts.Visit(at)
	}
	path := r.opts.Path
	if r.opts.PathOf != nil {
		path = r.opts.PathOf(n)
	}
	return &once{Request{At: at, Path: path}, true}
}

// follow sends a visit's requests, each when it is due and the request before it has ended.
func (r *Runner) follow(ctx context.Context, visit Visit, ended time.Duration) {
	var alarm alarm
	defer alarm.stop()
	for {
		q, ok := visit.Next(ended)
		if !ok || !r.waitUntil(ctx, &alarm, q.At) {
			return
		}
		s := Sample{Intended: q.At, Sent: r.since(), Class: q.Class}
		r.get(ctx, q, &s)
		s.Finished = r.since()
		if s.Err != nil && ctx.Err() != nil {
			r.abandon()
			return
		}
		r.account(s)
		ended = s.Finished
	}
}

func (r *Runner) admit() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inFlight < r.opts.MaxInFlight {
		r.inFlight++
		r.summary.Visits++
		return true
	}
	if r.summary.Shed == 0 {
		r.log.Warn("the generator turns arrivals away: too many are open", "max_in_flight", r.opts.MaxInFlight)
	}
	r.summary.Shed++
	return false
}

func (r *Runner) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight--
}

// get sends one request and reads the answer to its last byte.
func (r *Runner) get(ctx context.Context, q Request, s *Sample) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	var connect atomic.Int64 // a connection may still be made when the request has timed out
	if r.opts.Fresh {
		ctx = httptrace.WithClientTrace(ctx, connecting(&connect))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+"/"+strings.TrimPrefix(q.Path, "/"), nil)
	if err != nil {
		s.Err = fmt.Errorf("making the request: %w", err)
		return
	}
	if q.Range && q.Bytes > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=0-%d", q.Bytes-1))
	}
	resp, err := r.transport.RoundTrip(req)
	if err != nil {
		s.Err = fmt.Errorf("sending the request: %w", err)
		return
	}
	defer resp.Body.Close()
	s.Status, s.Instance = resp.StatusCode, resp.Header.Get(InstanceHeader)
	s.Connect = time.Duration(connect.Load())
	s.Bytes, err = r.discard(resp.Body)
	switch {
	case err != nil:
		s.Err = fmt.Errorf("reading the answer: %w", err)
	case resp.ContentLength >= 0 && s.Bytes != resp.ContentLength:
		s.Err = fmt.Errorf("reading the answer: %d bytes of %d: %w", s.Bytes, resp.ContentLength, io.ErrUnexpectedEOF)
	case s.Bytes < q.Bytes && !s.Failed():
		s.Err = fmt.Errorf("the answer has %d bytes where %d were asked for: what the server holds is too small", s.Bytes, q.Bytes)
	}
}

// connecting measures in which time, in nanoseconds, a connection is made for a request.
func connecting(took *atomic.Int64) *httptrace.ClientTrace {
	var began time.Time
	return &httptrace.ClientTrace{
		ConnectStart: func(string, string) { began = time.Now() },
		ConnectDone: func(_, _ string, err error) {
			if err == nil {
				took.Store(int64(time.Since(began)))
			}
		},
	}
}

// discard reads a body to its end into a reused buffer, which is so large that the transport does not use its own buffer.
func (r *Runner) discard(body io.Reader) (total int64, err error) {
	buf := r.buffers.Get().(*[bodyBuffer]byte)
	defer r.buffers.Put(buf)
	for {
		n, err := body.Read(buf[:])
		total += int64(n)
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

func (r *Runner) account(s Sample) {
	r.mu.Lock()
	sum := &r.summary
	sum.Requests++
	sum.Bytes += s.Bytes
	if s.Failed() {
		sum.Errors++
	}
	if late := s.Sent - s.Intended; late > lateAfter {
		sum.Late++
		sum.WorstLate = max(sum.WorstLate, late)
	}
	r.mu.Unlock()
	if r.opts.Report != nil {
		r.report.Lock()
		defer r.report.Unlock()
		r.opts.Report(s)
	}
}

func (r *Runner) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.summary.Abandoned++
}

func (r *Runner) finish() Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.summary
	s.Elapsed = r.since()
	if s.FallingBehind() {
		s.Warnings = append(s.Warnings, fmt.Sprintf(
			"the generator fell behind: %d of %d requests were sent more than %v late, the latest by %v; use a lower rate or a faster machine",
			s.Late, s.Requests, lateAfter, s.WorstLate.Round(time.Millisecond)))
	}
	if s.Shed > 0 && r.opts.Visit == nil {
		s.Warnings = append(s.Warnings, fmt.Sprintf(
			"%d of %d requests were shed by the generator and count as failed: more than %d were open", s.Shed, s.Requests, r.opts.MaxInFlight))
	} else if s.Shed > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf(
			"%d of %d visits were turned away by the generator, and each counts as one failed request: more than %d were open; the load is "+
				"lower than asked for",
			s.Shed, s.Shed+s.Visits, r.opts.MaxInFlight))
	}
	return s
}

// FallingBehind returns whether more than 1% of the requests were sent more than 5 ms late.
func (s Summary) FallingBehind() bool { return float64(s.Late) > lateShare*float64(s.Requests) }
