package builtin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/health"
)

func TestOptionsThatCannotBe(t *testing.T) {
	for want, o := range map[string]Options{
		"no address":               {},
		"unknown scheduling":       {Listen: "127.0.0.1:0", Scheduling: "fastest"},
		"begin with a slash":       {Listen: "127.0.0.1:0", Health: health.Options{Path: "health"}},
		"sampling period":          {Listen: "127.0.0.1:0", Period: -1},
		"cannot be negative":       {Listen: "127.0.0.1:0", MaxConns: -1},
		"response header timeout ": {Listen: "127.0.0.1:0", Timeouts: Timeouts{ResponseHeader: -1}},
		"upstream idle timeout ":   {Listen: "127.0.0.1:0", Timeouts: Timeouts{UpstreamIdle: -1}},
		"request body timeout ":    {Listen: "127.0.0.1:0", Timeouts: Timeouts{Body: -1}},
		"write timeout ":           {Listen: "127.0.0.1:0", Timeouts: Timeouts{Write: -1}},
		"upgrade timeout ":         {Listen: "127.0.0.1:0", Timeouts: Timeouts{Upgrade: -1}},
	} {
		var mistake *quell.UserError
		if _, err := New(o); !errors.As(err, &mistake) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want a *quell.UserError with %q", err, want)
		}
	}
}

func TestPortInUse(t *testing.T) {
	taken := start(t, Options{}).Addr()
	for what, o := range map[string]Options{
		"traffic": {Listen: taken},
		"metrics": {Listen: "127.0.0.1:0", Metrics: taken},
	} {
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), what+" address "+taken+" is in use") {
			t.Errorf("%v", err)
		}
		stop(t, s) // this must be harmless
	}
}

func TestShutdownLetsRequestsFinish(t *testing.T) {
	s := start(t, Options{})
	in, release := held(t, "i1")
	applyHealthy(t, s, in.backend(1))
	answer := openRequest(t, s, "i1")
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(context.Background()) }()
	waitFor(t, "the door to close", func() bool {
		conn, err := net.Dial("tcp", s.Addr())
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	release()
	if r := <-answer; r.status != http.StatusOK || r.body != "done" {
		t.Errorf("the open request ended with %+v", r)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

func TestShutdownIsBounded(t *testing.T) {
	s := start(t, Options{})
	in, _ := held(t, "i1")
	applyHealthy(t, s, in.backend(1))
	answer := openRequest(t, s, "i1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	if r := <-answer; r.status == http.StatusOK {
		t.Errorf("the request that was cut off ended with %+v", r)
	}
}

func TestShutdownCutsUpgradedConnectionsInTheEnd(t *testing.T) {
	s := start(t, Options{})
	in := newInstance(t, "i1", func(w http.ResponseWriter, _ *http.Request) { echoUpgraded(t, w) })
	applyHealthy(t, s, in.backend(1))
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want context.DeadlineExceeded", err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the upgraded connection: %v", err)
	}
}

// TestNothingIsCutOff checks that a balancer without open requests reports none as cut off when it must end at once.
func TestNothingIsCutOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if err := start(t, Options{}).Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	s := start(t, Options{MaxConns: 1})
	proceed := make(chan struct{}, 1)
	in := newInstance(t, "i1", func(http.ResponseWriter, *http.Request) { <-proceed })
	applyHealthy(t, s, in.backend(1))
	ask := func() (net.Conn, *bufio.Reader) {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		return conn, bufio.NewReader(conn)
	}
	_, fromFirst := ask()
	waitFor(t, "the first request", func() bool { return in.served.Load() == 1 })
	second, fromSecond := ask()
	second.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := fromSecond.Peek(1); err == nil {
		t.Error("the second connection was served beside the first")
	}
	proceed <- struct{}{}
	if _, err := http.ReadResponse(fromFirst, nil); err != nil {
		t.Fatal(err)
	}
	proceed <- struct{}{} // the first connection is idle now: it is closed for the second
	second.SetReadDeadline(time.Time{})
	if resp, err := http.ReadResponse(fromSecond, nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the second connection after the first: %v, %v", resp, err)
	}
}

func TestClientsThatDawdleOrTalkTooMuch(t *testing.T) {
	s := start(t, Options{Timeouts: Timeouts{ReadHeader: 20 * time.Millisecond}})
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nX-Slow")
	if rest, err := io.ReadAll(conn); err != nil {
		t.Errorf("a header that never ends: %q, %v; want the connection closed", rest, err)
	}
	s = start(t, Options{MaxHeaderBytes: 1 << 10})
	req, _ := http.NewRequest(http.MethodGet, "http://"+s.Addr(), nil)
	req.Header.Set("X-Large", strings.Repeat("x", 16<<10))
	resp, err := client(t).Do(req)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("16 KiB of header: %v, %v", resp, err)
	}
}

func TestBackendsChangeWhileTrafficFlows(t *testing.T) {
	for _, scheduling := range quell.Schedulings {
		s := start(t, Options{Scheduling: scheduling, Period: time.Millisecond})
		a, b := newInstance(t, "a", nil), newInstance(t, "b", nil)
		applyHealthy(t, s, a.backend(1), b.backend(1))
		l := startLoad(t, s, 4)
		for i := range 20 {
			apply(t, s, a.backend(1), b.backend(float64(i%3)))
			if err := s.SetScheduling(scheduling); err != nil {
				t.Fatal(err)
			}
			l.more(t, 5)
		}
		l.finish(t)
	}
}

// A list that arrives while the balancer ends does not erase what the next process is to begin with.
func TestAListDuringTheShutdown(t *testing.T) {
	s := start(t, Options{Admin: socketPath(t), Health: checkedOnce()})
	one := quell.Backend{ID: "i1", Address: "127.0.0.1:9", Weight: 1}
	apply(t, s, one)
	s.pool.close()
	apply(t, s, one)
	if last, err := s.memory.load(); err != nil || len(last) != 1 || last[0].Backend != one {
		t.Errorf("stored are %+v, %v", last, err)
	}
}

func TestReconfigured(t *testing.T) {
	o := Options{Health: health.Options{Path: "/health", Interval: 5 * time.Millisecond}, MaxConnsPerClient: new(1)}
	s := start(t, o)
	release := make(chan struct{})
	defer close(release)
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-release
		}
		io.WriteString(w, r.Header.Get("X-Forwarded-For"))
	})
	in.sick.Store(true)
	apply(t, s, in.backend(1))

	bad := o
	bad.Listen, bad.Health.Path = "127.0.0.1:0", "health"
	var mistake *quell.UserError
	if err := s.Reconfigure(bad); !errors.As(err, &mistake) {
		t.Errorf("%v, want a *quell.UserError", err)
	}
	o.Listen, o.Health.Path, o.Health.Interval = "127.0.0.1:0", "/well", time.Millisecond
	o.MaxConnsPerClient, o.TrustedProxies = new(5), []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	o.Scheduling, o.Timeouts.ResponseHeader = quell.RoundRobin, 20*time.Millisecond
	if err := s.Reconfigure(o); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a check of the other path", func() bool { return stateOf(t, s, "i1").Healthy })
	c := client(t)
	req, _ := http.NewRequest(http.MethodGet, "http://"+s.Addr()+"/", nil)
	req.Header.Set("X-Forwarded-For", "192.0.2.7")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(resp.Body); string(text) != "192.0.2.7, 127.0.0.1" {
		t.Errorf("X-Forwarded-For of what is a trusted proxy now: %q", text)
	}
	resp.Body.Close()
	if r, err := do(c, http.MethodGet, "http://"+s.Addr()+"/slow", nil); err != nil || r.status != http.StatusGatewayTimeout {
		t.Errorf("a slow answer: %+v, %v", r, err)
	}
	if got := s.Status().Scheduling; got != quell.RoundRobin {
		t.Errorf("scheduling %s", got)
	}
	if err := s.SetScheduling(quell.EWMA); err != nil { // through the admin socket
		t.Fatal(err)
	}
	if err := s.Reconfigure(o); err != nil {
		t.Fatal(err)
	}
	if got := s.Status().Scheduling; got != quell.EWMA {
		t.Errorf("scheduling %s after a reload that does not change it", got)
	}
}
