package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/health"
)

// shortTempered is a server with a short idle time-out. If a request arrives after that time, the server resets the connection, like a
// server that closes the connection at that moment.
type shortTempered struct {
	address string
	served  atomic.Int64
	reset   atomic.Int64
}

func newShortTempered(t *testing.T, keeps time.Duration) *shortTempered {
	s := &shortTempered{}
	server := &http.Server{ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, lastKey{}, &last{conn: c.(*net.TCPConn)})
	}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l := r.Context().Value(lastKey{}).(*last)
		if !l.at.IsZero() && time.Since(l.at) > keeps {
			s.reset.Add(1)
			l.conn.SetLinger(0)
			l.conn.Close()
			return
		}
		s.served.Add(1)
		io.Copy(w, r.Body)
		l.at = time.Now()
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = ln.Addr().String()
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	return s
}

type lastKey struct{}

type last struct {
	conn *net.TCPConn
	at   time.Time
}

func post(t *testing.T, c *http.Client, s *Server) answered {
	t.Helper()
	r, err := do(c, http.MethodPost, "http://"+s.Addr()+"/", strings.NewReader("pay 10"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rest leaves the connection to i1 idle for at least the given time.
func rest(t *testing.T, s *Server, pause time.Duration) {
	t.Helper()
	waitFor(t, "the last request's end", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
	time.Sleep(pause)
}

func TestAKeptConnectionIsLeftBeforeTheInstanceClosesIt(t *testing.T) {
	s := start(t, Options{Health: health.Options{Interval: time.Hour}, Timeouts: Timeouts{UpstreamIdle: 20 * time.Millisecond}})
	in := newShortTempered(t, 40*time.Millisecond)
	applyHealthy(t, s, quell.Backend{ID: "i1", Address: in.address, Weight: 1})
	c := client(t)
	for range 5 {
		if r := post(t, c, s); r.status != http.StatusOK || r.body != "pay 10" {
			t.Errorf("%+v", r)
		}
		rest(t, s, 50*time.Millisecond)
	}
	if n := in.reset.Load(); n > 0 {
		t.Errorf("%d of 5 requests met a closing connection", n)
	}
}

// Of all requests only the first one is lost when the instance closes the connection.
func TestALostRequestTeaches(t *testing.T) {
	s := start(t, Options{Health: health.Options{Interval: time.Hour}, Timeouts: Timeouts{UpstreamIdle: time.Hour}})
	in := newShortTempered(t, 60*time.Millisecond)
	applyHealthy(t, s, quell.Backend{ID: "i1", Address: in.address, Weight: 1})
	c := client(t)
	statuses := map[int]int{}
	for range 5 {
		statuses[post(t, c, s).status]++
		pause := 100 * time.Millisecond
		if learned := s.pool.listed[0].conns.keepAlive(time.Now()); learned < time.Hour {
			pause = max(pause, learned)
		}
		rest(t, s, pause)
	}
	if statuses[http.StatusBadGateway] != 1 || statuses[http.StatusOK] != 4 || in.served.Load() != 4 {
		t.Errorf("answers %v, %d served; want one 502, and four requests sent once", statuses, in.served.Load())
	}
}

func TestWhatIsLearnedOfAnInstance(t *testing.T) {
	now := time.Now()
	newConnections := func() *connections {
		c := &connections{}
		c.idle.Store(int64(3 * time.Second))
		return c
	}
	header := func(v string) http.Header { return http.Header{"Keep-Alive": {v}} }
	for v, want := range map[string]time.Duration{
		"timeout=2":          1600 * time.Millisecond,
		"timeout=2, max=100": 1600 * time.Millisecond,
		"max=5, Timeout=1":   800 * time.Millisecond,
		"timeout=75":         3 * time.Second,
		"timeout=0":          3 * time.Second,
		"timeout=x":          3 * time.Second,
		"timeout":            3 * time.Second,
		"":                   3 * time.Second,
	} {
		c := newConnections()
		(&outbound{of: c}).learnFrom(header(v))
		if got := c.keepAlive(now); got != want {
			t.Errorf("%q: %v, want %v", v, got, want)
		}
	}
	c := newConnections()
	c.closedAfter(now, time.Millisecond) // immediate: not an idle time-out
	if got := c.keepAlive(now); got != 3*time.Second {
		t.Errorf("after a close at once: %v", got)
	}
	c.closedAfter(now, time.Second)
	c.closedAfter(now, 2*time.Second)
	if got := c.keepAlive(now); got != 800*time.Millisecond {
		t.Errorf("after closes at 1 s and 2 s: %v, want 800ms", got)
	}
	if got := c.keepAlive(now.Add(learnedFor + time.Second)); got != 3*time.Second {
		t.Errorf("after ten minutes: %v, want 3s", got)
	}
}

func TestAClosedConnectionTeaches(t *testing.T) {
	s := start(t, Options{Health: health.Options{Interval: time.Hour}, Timeouts: Timeouts{UpstreamIdle: time.Hour}})
	server := &http.Server{IdleTimeout: 100 * time.Millisecond, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(ln)
	defer server.Close()
	applyHealthy(t, s, quell.Backend{ID: "i1", Address: ln.Addr().String(), Weight: 1})
	get(t, client(t), s)
	conns := s.pool.listed[0].conns
	waitFor(t, "the connection's end", func() bool { return conns.keepAlive(time.Now()) < time.Hour })
	if got := conns.keepAlive(time.Now()); got < 40*time.Millisecond {
		t.Errorf("learned %v from a server that closes after 100ms", got)
	}
}

// If nothing of a request with a body was sent, it is sent again, once.
func TestARequestThatFindsItsConnectionClosedIsSentAgain(t *testing.T) {
	s := start(t, Options{Timeouts: Timeouts{UpstreamIdle: time.Hour}})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	})
	applyHealthy(t, s, in.backend(1))
	c := client(t)
	post(t, c, s)
	conns := s.pool.listed[0].conns
	for _, body := range []string{"", "pay 10", strings.Repeat("0123456789abcdef", 1<<14)} {
		conns.mu.Lock()
		for conn := range conns.open {
			conn.stale.Store(true)
		}
		conns.mu.Unlock()
		before := in.served.Load()
		r, err := do(c, http.MethodPost, "http://"+s.Addr()+"/", strings.NewReader(body))
		if err != nil || r.status != http.StatusOK || r.body != body || in.served.Load() != before+1 {
			t.Errorf("%d bytes: %d with %d bytes, %v, sent %d times", len(body), r.status, len(r.body), err, in.served.Load()-before)
		}
	}
}

func TestAConnectionIsLookedAt(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, tt := range []struct {
		why  string
		then func(net.Conn)
		want bool
	}{
		{"open", func(net.Conn) {}, false},
		{"closed", func(c net.Conn) { c.Close() }, true},
		{"something said unasked", func(c net.Conn) { io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\n\r\n") }, true},
	} {
		near, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		far, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if peerClosed(near.(syscall.Conn)) {
			t.Errorf("%s: a new connection is closed", tt.why)
		}
		tt.then(far)
		if tt.want {
			waitFor(t, tt.why, func() bool { return peerClosed(near.(syscall.Conn)) })
		} else if peerClosed(near.(syscall.Conn)) {
			t.Errorf("%s: seen as closed", tt.why)
		}
		near.Close()
		far.Close()
	}
}

func TestWhoseFaultAnErrorIs(t *testing.T) {
	dial := func(err error) error {
		return &url.Error{Op: "Get", URL: "/", Err: &dialError{&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", err)}}}
	}
	for _, tt := range []struct {
		err error
		own bool
	}{
		{dial(syscall.EMFILE), true}, {dial(syscall.ENFILE), true}, {dial(syscall.ENOMEM), true}, {dial(syscall.ENOBUFS), true},
		{dial(syscall.EADDRNOTAVAIL), true}, {&dialError{errNoDescriptors}, true}, {fmt.Errorf("asking: %w", context.Canceled), true},
		{&net.DNSError{Err: "dial udp 127.0.0.53:53: socket: too many open files", Name: "web-1"}, true},
		{dial(syscall.ECONNREFUSED), false}, {dial(syscall.EHOSTUNREACH), false}, {dial(syscall.ETIMEDOUT), false},
		{context.DeadlineExceeded, false}, {io.EOF, false}, {errors.New("GET /healthz answered 500"), false},
		{&net.DNSError{Err: "no such host", Name: "web-1", IsNotFound: true}, false},
	} {
		if got := ownFault(tt.err); got != tt.own {
			t.Errorf("%v: %v", tt.err, got)
		}
	}
}

func TestOwnFaultsDoNotCountAgainstInstances(t *testing.T) {
	s := start(t, Options{Health: health.Options{Path: "/health", Interval: time.Hour, Fall: 1}})
	release := make(chan struct{})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			<-release
		}
	})
	applyHealthy(t, s, in.backend(1))
	s.pool.places.most.Store(1)
	c, held := client(t), make(chan answered)
	go func() {
		r, err := do(c, http.MethodGet, "http://"+s.Addr()+"/held", nil)
		if err != nil {
			t.Error(err)
		}
		held <- r
	}()
	waitFor(t, "the request that holds the only connection", func() bool { return in.served.Load() == 1 })
	r := get(t, c, s)
	if r.status != http.StatusServiceUnavailable || r.body != "the balancer cannot open more connections\n" ||
		r.header.Get("Retry-After") == "" {
		t.Errorf("%+v", r)
	}
	for _, own := range []error{syscall.EMFILE, syscall.EADDRNOTAVAIL, context.Canceled} {
		s.pool.suspect(s.pool.listed[0], own)
	}
	if !stateOf(t, s, "i1").Healthy {
		t.Error("errors of the balancer's own made the instance unhealthy")
	}
	close(release)
	<-held
	waitFor(t, "the end of all requests", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
	if r := s.reporter.readings(time.Now())[0]; r.Errors != 0 || r.Requests != 1 {
		t.Errorf("%d errors in %d requests, want 0 in 1: the other one never reached the instance", r.Errors, r.Requests)
	}
	s.pool.suspect(s.pool.listed[0], syscall.ECONNREFUSED)
	if stateOf(t, s, "i1").Healthy {
		t.Error("a refused connection is the instance's fault")
	}
}

func TestKeptConnectionsGiveWay(t *testing.T) {
	s := start(t, Options{Scheduling: quell.RoundRobin, Health: checkedOnce(), Timeouts: Timeouts{UpstreamIdle: time.Hour}})
	a, b := newInstance(t, "a", nil), newInstance(t, "b", nil)
	applyHealthy(t, s, a.backend(1), b.backend(1))
	s.pool.places.most.Store(1)
	for range 6 { // each instance needs the only allowed connection, so the other instance's connection is closed
		if r := get(t, client(t), s); r.status != http.StatusOK {
			t.Errorf("%+v", r)
		}
	}
}

func TestOpenFilesAreSharedOut(t *testing.T) {
	for _, tt := range []struct{ limit, maxConns, clients, upstream, checks int }{
		{0, 500, 500, 0, 256},
		{300, 10000, 80, 81, 69},
		{300, 50, 50, 111, 69},
		{1024, 10000, 352, 352, 160},
		{1 << 20, 10000, 10000, 1<<20 - 8256 - 10000, 4128},
		{1 << 20, 0, 520160, 520160, 4128},
	} {
		d, err := shareOut(tt.limit, tt.maxConns)
		if err != nil || d.clients != tt.clients || d.upstream != tt.upstream || d.checks != tt.checks {
			t.Errorf("of %d for %d clients: %+v, %v", tt.limit, tt.maxConns, d, err)
		}
		if d.limit > 0 && (d.upstream < d.clients || d.clients+d.upstream >= d.limit) {
			t.Errorf("of %d for %d clients: %+v does not go round", tt.limit, tt.maxConns, d)
		}
	}
	var mistake *quell.UserError
	if _, err := shareOut(100, 0); !errors.As(err, &mistake) || !strings.Contains(err.Error(), "LimitNOFILE=") {
		t.Errorf("of 100: %v", err)
	}
	for _, maxConns := range []int{100, 10000, 100000} { // the advised limit is sufficient
		d, _ := shareOut(300, maxConns)
		var need int
		if _, err := fmt.Sscanf(d.shortfall(maxConns), "raise it to %d", &need); err != nil {
			t.Fatal(err)
		}
		if d, err := shareOut(need, maxConns); err != nil || d.shortfall(maxConns) != "" {
			t.Errorf("%d open files for %d: %+v, %v", need, maxConns, d, err)
		}
	}
}

// TestOnlyALimitThatSomebodySetIsWarnedOf checks that a default above the limit of open files is logged only at level
// info.
func TestOnlyALimitThatSomebodySetIsWarnedOf(t *testing.T) {
	for set, want := range map[bool]string{true: "level=WARN", false: "level=INFO"} {
		files, err := shareOut(1024, 10000)
		if err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		s := &Server{files: files}
		s.warnOfFiles(&Options{MaxConns: 10000, MaxConnsSet: set, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if !strings.Contains(log.String(), want) {
			t.Errorf("set %v: logged %q, want %s", set, log.String(), want)
		}
	}
}
