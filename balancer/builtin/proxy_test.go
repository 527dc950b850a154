package builtin

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/measure"
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
		for { // the first request may go to either instance
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

// rude reads a request header and closes the connection without an answer. It answers health checks.
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
	for _, method := range []string{http.MethodPost, http.MethodGet} { // if the GET uses a new connection, it may be the request that is lost
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
		{"an answer", exchange{status: 200, whole: true}, here, result{code: "2xx"}},
		{"the client's mistake is an answer", exchange{status: 404, whole: true}, here, result{code: "4xx"}},
		{"the instance's own failure", exchange{status: 500, whole: true}, here, result{code: "5xx", verdict: measure.Failure}},
		{"too many requests", exchange{status: 429, whole: true}, here, result{code: "4xx", verdict: measure.Limited}},
		{"the instance is overloaded", exchange{status: 503, whole: true}, here, result{code: "5xx", verdict: measure.Shed}},
		{"no instance can be reached", exchange{status: 503, refused: true, whole: true}, here, result{code: "5xx", verdict: measure.Failure}},
		{"an upgraded connection has no response time", exchange{status: 101, whole: true, endless: true}, here,
			result{code: "1xx", verdict: measure.Demand, endless: true}},
		{"a stream has none", exchange{status: 200, whole: true, stream: true}, here, result{code: "2xx", verdict: measure.Demand}},
		{"its time to the first byte counts", exchange{status: 200, whole: true, stream: true, firstByte: true, sent: sent,
			begun: sent.Add(time.Millisecond)}, here, result{code: "2xx", took: time.Millisecond, answered: true}},
		{"that of an answer that the client broke off, too", exchange{status: 200, download: at(false), firstByte: true, sent: sent,
			begun: sent.Add(time.Millisecond)}, gone, result{code: "aborted", took: time.Millisecond, answered: true}},
		{"a class outside the objective", exchange{status: 200, whole: true, aside: true}, here, result{code: "2xx", verdict: measure.Demand}},
		{"it was moved", exchange{status: 200, whole: true, moved: true}, here, result{code: "2xx", verdict: measure.Demand}},
		{"it was moved in vain", exchange{status: 500, whole: true, moved: true}, here, result{code: "5xx", verdict: measure.Failure}},
		{"a connection that broke", exchange{status: 502, refused: true, whole: true}, here, result{code: "5xx", verdict: measure.Failure}},
		{"a broken request", exchange{status: 400, refused: true, whole: true}, here, result{code: "4xx", verdict: measure.Demand}},
		{"an error of the balancer's own", exchange{status: 503, refused: true, own: true, whole: true}, here,
			result{code: "5xx", verdict: measure.Nothing}},
		{"the client waited and left without an answer", exchange{status: 502, refused: true, sent: sent, patience: time.Second, whole: true},
			gone, result{code: "aborted", verdict: measure.Failure, took: time.Second}},
		{"the client left soon", exchange{status: 502, refused: true, sent: sent, patience: time.Second + 1, whole: true}, gone,
			result{code: "aborted", verdict: measure.Demand, took: time.Second}},
		{"the client left amid its upload", exchange{status: 400, refused: true, upload: cut}, gone,
			result{code: "aborted", verdict: measure.Demand}},
		{"the client left amid the answer", exchange{status: 200, download: at(false)}, gone, result{code: "aborted", verdict: measure.Demand}},
		{"the instance broke off amid the answer", exchange{status: 200, download: at(true)}, here,
			result{code: "aborted", verdict: measure.Failure}},
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
