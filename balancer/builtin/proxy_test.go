package builtin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

func TestWeightsAreRespected(t *testing.T) {
	s := start(t, Options{Scheduling: quell.RoundRobin})
	a, b, c, out := newInstance(t, "a", nil), newInstance(t, "b", nil), newInstance(t, "c", nil), newInstance(t, "out", nil)
	applyHealthy(t, s, a.backend(0.5), b.backend(0.3), c.backend(0.2), out.backend(0))
	got := map[string]int{}
	for range 100 {
		r := get(t, client(t), s)
		if r.body != r.instance {
			t.Fatalf("%s answered, the header says %s", r.body, r.instance)
		}
		got[r.instance]++
	}
	if got["a"] != 50 || got["b"] != 30 || got["c"] != 20 || got["out"] != 0 {
		t.Errorf("of 100 requests: %v, want 50, 30, 20 and none", got)
	}
}

func TestLeastConnAvoidsTheBusyInstance(t *testing.T) {
	s := start(t, Options{Scheduling: quell.LeastConn})
	free := make(chan struct{})
	busy := newInstance(t, "busy", func(w http.ResponseWriter, r *http.Request) { <-free })
	quick := newInstance(t, "quick", nil)
	applyHealthy(t, s, busy.backend(1), quick.backend(1))
	held := make(chan error, 1)
	go func() {
		for { // the first may go to either
			if r, err := do(client(t), http.MethodGet, "http://"+s.Addr()+"/", nil); err != nil || r.instance == "busy" {
				held <- err
				return
			}
		}
	}()
	waitFor(t, "a request at busy", func() bool { return stateOf(t, s, "busy").InFlight == 1 })
	for range 10 {
		waitFor(t, "the last answer's end", func() bool { return stateOf(t, s, "quick").InFlight == 0 })
		if r := get(t, client(t), s); r.instance != "quick" {
			t.Fatalf("%s got a request while it had one open", r.instance)
		}
	}
	close(free)
	if err := <-held; err != nil {
		t.Error(err)
	}
}

func TestWhatTheInstanceSees(t *testing.T) {
	s := start(t, Options{})
	seen := make(chan *http.Request, 1)
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set(InstanceHeader, "forged")
		seen <- r
	})
	applyHealthy(t, s, in.backend(1))
	req, _ := http.NewRequest(http.MethodGet, "http://"+s.Addr()+"/a%2Fb//c?x=1;y=2", nil)
	req.Host = "service.example"
	for k, v := range map[string]string{
		"Connection": "X-Private", "X-Private": "1", "Keep-Alive": "1", "Proxy-Authorization": "secret",
		"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Host": "forged", "X-Forwarded-Proto": "https", "Forwarded": "for=192.0.2.7",
		"X-Kept": "yes",
	} {
		req.Header.Set(k, v)
	}
	resp, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	r := <-seen
	for k, want := range map[string]string{
		"X-Private": "", "Keep-Alive": "", "Proxy-Authorization": "", "X-Kept": "yes",
		"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "service.example", "X-Forwarded-Proto": "http", "Forwarded": "",
	} {
		if got := strings.Join(r.Header[k], "|"); got != want {
			t.Errorf("the instance got %s: %q, want %q", k, got, want)
		}
	}
	if r.RequestURI != "/a%2Fb//c?x=1;y=2" || r.Host != "service.example" {
		t.Errorf("the instance was asked for %s at %s", r.RequestURI, r.Host)
	}
	if resp.Header.Get("Keep-Alive") != "" || resp.Header.Get(InstanceHeader) != "i1" {
		t.Errorf("the client got %v", resp.Header)
	}
}

func TestATrustedProxySpeaksForItsClients(t *testing.T) {
	s := start(t, Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32")}})
	seen := make(chan http.Header, 1)
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) { seen <- r.Header })
	applyHealthy(t, s, in.backend(1))
	for _, tt := range []struct{ given, want map[string]string }{
		{map[string]string{
			"X-Forwarded-For": "192.0.2.7, 10.0.0.1", "X-Forwarded-Host": "shop.example", "X-Forwarded-Proto": "https",
			"X-Forwarded-Port": "443", "Forwarded": "for=192.0.2.7;proto=https",
		}, map[string]string{
			"X-Forwarded-For": "192.0.2.7, 10.0.0.1, 127.0.0.1", "X-Forwarded-Host": "shop.example", "X-Forwarded-Proto": "https",
			"X-Forwarded-Port": "443", "Forwarded": `for=192.0.2.7;proto=https, for=127.0.0.1;proto=http;host="inner"`,
		}},
		{nil, map[string]string{
			"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "inner", "X-Forwarded-Proto": "http", "X-Forwarded-Port": "", "Forwarded": "",
		}},
	} {
		req, _ := http.NewRequest(http.MethodGet, "http://"+s.Addr()+"/", nil)
		req.Host = "inner"
		for k, v := range tt.given {
			req.Header.Set(k, v)
		}
		resp, err := client(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		got := <-seen
		for k, want := range tt.want {
			if v := strings.Join(got[k], "|"); v != want {
				t.Errorf("%s is %q, want %q", k, v, want)
			}
		}
	}
}

func TestRequestTrailersArePassed(t *testing.T) {
	s := start(t, Options{})
	seen := make(chan http.Header, 1)
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		seen <- r.Trailer
	})
	applyHealthy(t, s, in.backend(1))
	const head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
	const body = "\r\n5\r\nhello\r\n0\r\nX-Checksum: 42\r\nX-Forwarded-For: 192.0.2.7\r\nAuthorization: forged\r\nX-Late: yes\r\n\r\n"
	for why, request := range map[string]string{
		"announced": head + "Trailer: X-Checksum, Authorization\r\n" + body,
		"sudden":    head + body,
	} {
		if got := rawly(t, s, request); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Fatalf("%s: %q", why, got)
		}
		got := <-seen
		for k, want := range map[string]string{"X-Checksum": "42", "X-Late": "yes", "X-Forwarded-For": "", "Authorization": ""} {
			if got.Get(k) != want {
				t.Errorf("%s: the trailer's %s is %q, want %q", why, k, got.Get(k), want)
			}
		}
	}
}

func TestNoInstance(t *testing.T) {
	s := start(t, Options{})
	in := newInstance(t, "i1", nil)
	for why, backends := range map[string][]quell.Backend{
		"none":     nil,
		"weight 0": {in.backend(0)},
		"draining": {{ID: "i1", Address: in.address, Weight: 1, Draining: true}},
	} {
		apply(t, s, backends...)
		before := s.Status().Unrouted
		r := get(t, client(t), s)
		if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" || r.body != "no instance is available\n" {
			t.Errorf("%s: %+v", why, r)
		}
		if got := s.Status().Unrouted - before; got != 1 {
			t.Errorf("%s: %d requests counted as unrouted, want 1", why, got)
		}
	}
}

func TestKilledInstanceLosesNoGET(t *testing.T) {
	s := start(t, Options{Scheduling: quell.RoundRobin, Health: checkedOnce()})
	killed, alive := newInstance(t, "killed", nil), newInstance(t, "alive", nil)
	applyHealthy(t, s, killed.backend(1), alive.backend(1))
	c := client(t)
	for range 10 { // both have kept connections now
		get(t, c, s)
	}
	killed.kill()
	for range 20 {
		if r := get(t, c, s); r.status != http.StatusOK || r.instance != "alive" {
			t.Fatalf("after the kill: %+v", r)
		}
	}
	if stateOf(t, s, "killed").Healthy {
		t.Error("failed connections did not make the instance unhealthy")
	}
	for _, id := range []string{"killed", "alive"} {
		waitFor(t, "the end of all requests", func() bool { return stateOf(t, s, id).InFlight == 0 })
	}
}

func TestUnsentPOSTIsMovedWhole(t *testing.T) {
	s := start(t, Options{Scheduling: quell.RoundRobin, Health: checkedOnce()})
	killed := newInstance(t, "killed", nil)
	echo := newInstance(t, "echo", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	applyHealthy(t, s, killed.backend(1), echo.backend(1))
	killed.kill()
	for range 4 {
		r, err := do(client(t), http.MethodPost, "http://"+s.Addr()+"/", strings.NewReader("the whole body"))
		if err != nil || r.status != http.StatusOK || r.body != "the whole body" {
			t.Fatalf("%+v, %v", r, err)
		}
	}
}

// rude reads a request's header and closes the connection without an answer, but is polite to health checks.
func rude(t *testing.T, id string) *instance {
	return newInstance(t, id, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	})
}

func TestSentRequestIsNotRepeated(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodGet} { // the GET on a new connection: it may be what kills
		t.Run(method, func(t *testing.T) {
			s := start(t, Options{})
			one, two := rude(t, "one"), rude(t, "two")
			applyHealthy(t, s, one.backend(1), two.backend(1))
			var body io.Reader
			if method == http.MethodPost {
				body = strings.NewReader("pay 10")
			}
			r, err := do(client(t), method, "http://"+s.Addr()+"/", body)
			if err != nil || r.status != http.StatusBadGateway || r.instance == "" {
				t.Errorf("%+v, %v; want a 502 that names the instance", r, err)
			}
			if n := one.served.Load() + two.served.Load(); n != 1 {
				t.Errorf("the request was sent %d times", n)
			}
		})
	}
}

func TestNoInstanceReachable(t *testing.T) {
	s := start(t, Options{Health: checkedOnce()})
	a, b := newInstance(t, "a", nil), newInstance(t, "b", nil)
	applyHealthy(t, s, a.backend(1), b.backend(1))
	a.kill()
	b.kill()
	r := get(t, client(t), s)
	if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" || r.body != "no instance can be reached\n" {
		t.Errorf("%+v", r)
	}
	if got := s.Status().Unrouted; got != 0 {
		t.Errorf("%d unrouted: there were instances", got)
	}
	readings := s.reporter.readings(time.Now())
	requests, attempts := int64(0), 0.0
	for _, reading := range readings {
		requests += reading.Requests
		attempts += *reading.Observation.ErrorRate
	}
	if requests != 1 || attempts != 2 {
		t.Errorf("%d requests counted, error rates sum to %v; want the one request once, and both instances failing", requests, attempts)
	}
}

func TestSlowInstanceIsATimeout(t *testing.T) {
	s := start(t, Options{Timeouts: Timeouts{ResponseHeader: 20 * time.Millisecond}})
	release := make(chan struct{})
	in := newInstance(t, "slow", func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	applyHealthy(t, s, in.backend(1))
	if r := get(t, client(t), s); r.status != http.StatusGatewayTimeout || r.instance != "slow" {
		t.Errorf("%+v, want a 504", r)
	}
}

func TestResponsesStream(t *testing.T) {
	for _, length := range []string{"", "10"} {
		t.Run("length "+length, func(t *testing.T) {
			s := start(t, Options{})
			proceed := make(chan struct{})
			in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				io.WriteString(w, "first")
				w.(http.Flusher).Flush()
				<-proceed
				io.WriteString(w, "-last")
			})
			applyHealthy(t, s, in.backend(1))
			resp, err := client(t).Get("http://" + s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			first := make([]byte, 5)
			if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
				t.Fatalf("%q, %v", first, err)
			}
			close(proceed) // only now: the first chunk came while the instance still held the rest
			if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "-last" {
				t.Errorf("%q, %v", rest, err)
			}
		})
	}
}

func TestUploadsStream(t *testing.T) {
	s := start(t, Options{})
	arrived := make(chan string)
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		first := make([]byte, 5)
		io.ReadFull(r.Body, first)
		arrived <- string(first)
		io.Copy(w, r.Body)
	})
	applyHealthy(t, s, in.backend(1))
	body, send := io.Pipe()
	got := make(chan string, 1)
	go func() {
		r, err := do(client(t), http.MethodPost, "http://"+s.Addr()+"/", body)
		got <- fmt.Sprint(r.body, err)
	}()
	io.WriteString(send, "first")
	if first := <-arrived; first != "first" {
		t.Errorf("the instance got %q before the upload's end", first)
	}
	io.WriteString(send, "-last")
	send.Close()
	if r := <-got; r != "-last<nil>" {
		t.Errorf("got %q", r)
	}
}

func TestBothDirectionsAtOnce(t *testing.T) {
	s := start(t, Options{})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		control.EnableFullDuplex()
		for line := bufio.NewReader(r.Body); ; {
			text, err := line.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(w, "echo "+text)
			control.Flush()
		}
	})
	applyHealthy(t, s, in.backend(1))
	body, send := io.Pipe()
	go io.WriteString(send, "0\n")
	resp, err := client(t).Post("http://"+s.Addr(), "text/plain", body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answers := bufio.NewReader(resp.Body)
	for i := range 5 { // each line is sent after the answer to the one before
		if line, err := answers.ReadString('\n'); err != nil || line != fmt.Sprintf("echo %d\n", i) {
			t.Fatalf("answer %d: %q, %v", i, line, err)
		}
		fmt.Fprintf(send, "%d\n", i+1)
	}
	send.Close()
}

func TestHowExchangesAreJudged(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	here := t.Context()
	now := time.Now()
	sent := now.Add(-time.Second)
	at := func(broken bool) *download {
		d := &download{}
		d.broken.Store(broken)
		return d
	}
	cut := &upload{}
	cut.broken.Store(true)
	for _, tt := range []struct {
		why    string
		x      exchange
		client context.Context
		want   result
	}{
		{"an answer", exchange{status: 200, complete: true}, here, result{code: "2xx", counted: true}},
		{"the client's mistake is an answer", exchange{status: 404, complete: true}, here, result{code: "4xx", counted: true}},
		{"the instance's own failure", exchange{status: 500, complete: true}, here, result{code: "5xx", failed: true}},
		{"an upgraded connection has no response time", exchange{status: 101, complete: true}, here, result{code: "1xx"}},
		{"a connection that broke", exchange{status: 502, refused: true, complete: true}, here, result{code: "5xx", failed: true}},
		{"a broken request", exchange{status: 400, refused: true, complete: true}, here, result{code: "4xx"}},
		{"an error of the balancer's own", exchange{status: 503, refused: true, own: true, complete: true}, here, result{code: "5xx"}},
		{"the client waited and left without an answer", exchange{status: 502, refused: true, sent: sent, patience: time.Second, complete: true}, gone,
			result{code: "aborted", failed: true, took: time.Second}},
		{"the client left soon", exchange{status: 502, refused: true, sent: sent, patience: time.Second + 1, complete: true}, gone,
			result{code: "aborted", took: time.Second}},
		{"the client left amid its upload", exchange{status: 400, refused: true, upload: cut}, gone, result{code: "aborted"}},
		{"the client left amid the answer", exchange{status: 200, download: at(false)}, gone, result{code: "aborted"}},
		{"the instance broke off amid the answer", exchange{status: 200, download: at(true)}, here, result{code: "aborted", failed: true}},
	} {
		tt.x.arrived = tt.x.sent
		if tt.x.sent.IsZero() {
			tt.x.arrived = now
		}
		if got := tt.x.result(now, tt.client); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.why, got, tt.want)
		}
	}
}

func TestUpgradedConnection(t *testing.T) {
	s := start(t, Options{})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		io.WriteString(conn, "echo "+line)
	})
	applyHealthy(t, s, in.backend(1))
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get(InstanceHeader) != "i1" {
		t.Fatalf("%+v, %v", resp, err)
	}
	io.WriteString(conn, "hello\n")
	if line, err := r.ReadString('\n'); err != nil || line != "echo hello\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestBrokenOffResponseReachesTheClientAsBroken(t *testing.T) {
	s := start(t, Options{})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "short")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	applyHealthy(t, s, in.backend(1))
	if _, err := do(client(t), http.MethodGet, "http://"+s.Addr()+"/", nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the client saw %v", err)
	}
	waitFor(t, "the request's end", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
	if r := s.reporter.readings(time.Now())[0]; r.Errors != 1 || r.Observation.LatencyMS != nil {
		t.Errorf("%d errors, latency %v; want 1 and none", r.Errors, r.Observation.LatencyMS)
	}
}

func TestImpatientClients(t *testing.T) {
	s := start(t, Options{Health: Health{Path: "/health", Interval: 5 * time.Millisecond, Timeout: 50 * time.Millisecond, Fall: 1000}})
	var slowly atomic.Bool
	release := make(chan struct{})
	defer close(release)
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		if slowly.Load() {
			io.WriteString(w, "a frame")
			w.(http.Flusher).Flush()
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	applyHealthy(t, s, in.backend(1))
	for _, tt := range []struct {
		why    string
		slowly bool
		errors int64
	}{{"left without an answer", false, 1}, {"left amid a stream", true, 0}} {
		slowly.Store(tt.slowly)
		ctx, leave := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr()+"/", nil)
		if tt.slowly {
			resp, err := client(t).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			io.ReadFull(resp.Body, make([]byte, 7))
			leave()
			resp.Body.Close()
		} else {
			c, left := client(t), make(chan error)
			go func() {
				_, err := c.Do(req)
				left <- err
			}()
			waitFor(t, "the request's arrival", func() bool { return stateOf(t, s, "i1").InFlight == 1 })
			time.Sleep(60 * time.Millisecond) // longer than a healthy instance may take
			leave()
			if <-left == nil {
				t.Fatal("there was an answer")
			}
		}
		waitFor(t, "the request's end", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
		if r := s.reporter.readings(time.Now())[0]; r.Requests != 1 || r.Errors != tt.errors || r.LatencyHDR != nil {
			t.Errorf("%s: %d requests, %d errors, want 1 and %d, and no response time", tt.why, r.Requests, r.Errors, tt.errors)
		}
	}
}

func TestTheBalancerIsNoForwardProxy(t *testing.T) {
	s := start(t, Options{})
	in := newInstance(t, "i1", nil)
	applyHealthy(t, s, in.backend(1))
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("%+v, %v", resp, err)
	}
	r, err := do(&http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: s.Addr()})}},
		http.MethodGet, "http://elsewhere.example/", nil)
	if err != nil || r.instance != "i1" {
		t.Errorf("an absolute URL led to %+v, %v", r, err)
	}
}

func TestLargeBodiesArriveWhole(t *testing.T) {
	s := start(t, Options{})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, r.Body)
	})
	applyHealthy(t, s, in.backend(1))
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	r, err := do(client(t), http.MethodPut, "http://"+s.Addr()+"/", bytes.NewReader(body))
	if err != nil || r.body != string(body) {
		t.Errorf("%d of %d bytes, %v", len(r.body), len(body), err)
	}
}
