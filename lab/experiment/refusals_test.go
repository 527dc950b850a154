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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/need"
)

// TestRefusalsBehindHAProxy checks that an instance that refuses half of its requests at once gets no more of them than before, behind a
// real HAProxy whose leastconn prefers it because it is fast.
func TestRefusalsBehindHAProxy(t *testing.T) {
	program := need.Program(t, "haproxy")
	var refusing atomic.Bool
	var served [2]atomic.Int64
	var addresses []string
	for i := range served {
		in := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n := served[i].Add(1); i == 0 && refusing.Load() && n%2 == 0 {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			time.Sleep(15 * time.Millisecond)
		}))
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
	socket, traffic, logs, bus := filepath.Join(dir, "s"), places[0], places[1], places[2]
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
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
  balance leastconn
  server web-1 %s check
  server web-2 %s check
`, socket, logs, traffic, addresses[0], addresses[1])))
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	config := write("quell.yaml", fmt.Sprintf(`service: shop
slo: {metric: p95, threshold: 500ms}
sampling: 500ms
policy: {name: static}
data: %s
listen: off
bus: {listen: %q}
balancer: {kind: haproxy, haproxy: {sockets: [%s], backend: app, log: %q}}
scaler: {kind: fixed, instances: [{id: web-1, address: %q}, {id: web-2, address: %q}]}
`, filepath.Join(dir, "data"), bus, socket, logs, addresses[0], addresses[1]))

	share := clientsOf(t, traffic, &served)
	if before := share(2 * time.Second); before > 0.55 {
		t.Fatalf("before, web-1 got %.2f", before)
	}
	refusing.Store(true)
	if alone := share(2 * time.Second); alone < 0.55 {
		t.Skipf("leastconn alone gave an instance that refuses half %.2f: there is nothing to mend on this machine", alone)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- daemon.Controller(ctx, config, nil, slog.New(slog.DiscardHandler)) }()
	got := 1.0
	for range 8 {
		if got = share(2 * time.Second); got <= 0.52 {
			break
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got > 0.55 {
		t.Errorf("an instance that refuses half gets %.2f of all requests, and had 0.5", got)
	}
}

// clientsOf keeps 16 requests open until the test ends. The result measures which share the first instance gets in a time.
func clientsOf(t *testing.T, traffic string, served *[2]atomic.Int64) func(time.Duration) float64 {
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, DialContext: (&net.Dialer{}).DialContext}}
	for range 16 {
		clients.Go(func() {
			for ctx.Err() == nil {
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+traffic+"/", nil)
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
		first, second := served[0].Load(), served[1].Load()
		_ = pause(ctx, d)
		first, second = served[0].Load()-first, served[1].Load()-second
		return float64(first) / float64(max(1, first+second))
	}
}
