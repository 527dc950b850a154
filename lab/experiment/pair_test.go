package experiment

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/need"
)

// pair is a real HAProxy in front of two instances, with the configuration of a controller that does not run yet.
type pair struct {
	config, traffic string
	served          [2]atomic.Int64
}

// newPair starts HAProxy. The backend has these lines, and the servers these parameters.
func newPair(t *testing.T, backend string, parameters [2]string, answer func(w http.ResponseWriter, instance int, request int64)) *pair {
	t.Helper()
	program, p := need.Program(t, "haproxy"), &pair{}
	var addresses []any
	for i := range p.served {
		in := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, i, p.served[i].Add(1)) }))
		t.Cleanup(in.Close)
		addresses = append(addresses, in.Listener.Addr().String())
	}
	places, err := freePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "qr") // the length of a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	socket, logs := filepath.Join(dir, "s"), places[0]
	p.traffic = places[1]
	cmd := exec.Command(program, "-db", "-f", write("haproxy.cfg", fmt.Sprintf(`global
  stats socket %s level admin
  log %s local0
defaults
  mode http
  log global
  option httplog
  timeout connect 1s
  timeout client 10s
  timeout server 10s
frontend web
  bind %s
  default_backend app
backend app
  %s
  server web-1 %s check %s
  server web-2 %s check %s
`, socket, logs, p.traffic, backend, addresses[0], parameters[0], addresses[1], parameters[1])))
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p.config = write("quell.yaml", fmt.Sprintf(`service: shop
slo: {metric: p95, threshold: 500ms}
sampling: 500ms
policy: {name: static}
data: %s
listen: off
bus: {listen: %q}
balancer: {kind: haproxy, haproxy: {sockets: [%s], backend: app, log: %q}}
scaler: {kind: fixed, instances: [{id: web-1, address: %q}, {id: web-2, address: %q}]}
`, append([]any{filepath.Join(dir, "data"), places[2], socket, logs}, addresses...)...))
	return p
}

// drive runs the controller until the result is called.
func (p *pair) drive(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- daemon.Controller(ctx, p.config, nil, slog.New(slog.DiscardHandler)) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestRefusalsBehindHAProxy checks that an instance that refuses half of its requests at once gets no more of them than before, behind a
// real HAProxy whose leastconn prefers it because it is fast.
func TestRefusalsBehindHAProxy(t *testing.T) {
	var refusing atomic.Bool
	p := newPair(t, "balance leastconn", [2]string{}, func(w http.ResponseWriter, instance int, request int64) {
		if instance == 0 && refusing.Load() && request%2 == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		time.Sleep(15 * time.Millisecond)
	})
	share := p.clients(t, func(int) string { return "" })
	if before := share(2 * time.Second); before > 0.55 {
		t.Fatalf("before, web-1 got %.2f", before)
	}
	refusing.Store(true)
	if alone := share(2 * time.Second); alone < 0.55 {
		t.Skipf("leastconn alone gave an instance that refuses half %.2f: there is nothing to mend on this machine", alone)
	}
	stop := p.drive(t)
	got := 1.0
	for range 8 {
		if got = share(2 * time.Second); got <= 0.52 {
			break
		}
	}
	stop()
	if got > 0.55 {
		t.Errorf("an instance that refuses half gets %.2f of all requests, and had 0.5", got)
	}
}

// TestStickyClientsBehindHAProxy checks that it is said once that requests do not follow the weights, if a cookie ties half of the clients
// to a server with a fifth of the weight.
func TestStickyClientsBehindHAProxy(t *testing.T) {
	p := newPair(t, "balance roundrobin\n  cookie SRV insert indirect nocache", [2]string{"cookie web-1 weight 20", "cookie web-2 weight 80"},
		func(http.ResponseWriter, int, int64) { time.Sleep(15 * time.Millisecond) })
	p.clients(t, func(client int) string { return fmt.Sprintf("SRV=web-%d", 1+client%2) })
	defer p.drive(t)()
	file, err := daemon.Drivers().Load(p.config)
	if err != nil {
		t.Fatal(err)
	}
	var conn *bus.Conn
	for range 100 { // the controller makes its keys first
		if conn, err = daemon.Connect(file); err == nil {
			break
		}
		_ = pause(t.Context(), 100*time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var said []string
	plans := 0
	for range 60 { // at most half a minute
		said, plans = nil, 0
		_ = conn.History("shop").Read(t.Context(), time.Now().Add(-time.Hour), func(e bus.Entry) error { // the controller may not listen yet
			if e.Plan == nil {
				return nil
			}
			plans++
			for _, r := range e.Plan.Reasons {
				if r.Code == "unfollowed" {
					said = append(said, r.Text)
				}
			}
			return nil
		})
		if len(said) > 0 && plans > 12 {
			break
		}
		_ = pause(t.Context(), 500*time.Millisecond)
	}
	if len(said) != 1 || !strings.Contains(said[0], "requests do not follow the weights") || !strings.Contains(said[0], "it has weight ") {
		t.Errorf("%d plans said %q", plans, said)
	}
}

// clients keep 16 requests open until the test ends, each with its cookie. The result measures which share the first instance gets in a
// time.
func (p *pair) clients(t *testing.T, cookie func(client int) string) func(time.Duration) float64 {
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, DialContext: (&net.Dialer{}).DialContext}}
	for n := range 16 {
		clients.Go(func() {
			for ctx.Err() == nil {
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.traffic+"/", nil)
				req.Header.Set("Cookie", cookie(n))
				answer, err := client.Do(req)
				if err != nil {
					_ = pause(ctx, 20*time.Millisecond)
					continue
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		})
	}
	t.Cleanup(func() { stop(); clients.Wait(); client.CloseIdleConnections() })
	return func(d time.Duration) float64 {
		first, second := p.served[0].Load(), p.served[1].Load()
		_ = pause(ctx, d)
		first, second = p.served[0].Load()-first, p.served[1].Load()-second
		return float64(first) / float64(max(1, first+second))
	}
}
