package builtin

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/health"
)

// instance is a backend on a real socket that can fail its health checks, be killed and be restarted.
type instance struct {
	id      string
	address string
	handler http.HandlerFunc
	sick    atomic.Bool
	served  atomic.Int64 // requests without health checks

	mu     sync.Mutex
	server *http.Server
}

func newInstance(t *testing.T, id string, handler http.HandlerFunc) *instance {
	t.Helper()
	if handler == nil {
		handler = func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, id) }
	}
	in := &instance{id: id, address: "127.0.0.1:0", handler: handler}
	in.start(t)
	t.Cleanup(in.kill)
	return in
}

func (in *instance) start(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", in.address)
	if err != nil {
		t.Fatal(err)
	}
	in.address = ln.Addr().String()
	server := &http.Server{Handler: in}
	in.mu.Lock()
	in.server = server
	in.mu.Unlock()
	go server.Serve(ln)
}

func (in *instance) kill() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.server.Close()
}

func (in *instance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		if in.sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return
	}
	in.served.Add(1)
	in.handler(w, r)
}

func (in *instance) backend(weight float64) quell.Backend {
	return quell.Backend{ID: in.id, Address: in.address, Weight: weight}
}

// start runs a balancer with frequent health checks until the test ends.
func start(t testing.TB, o Options) *Server {
	t.Helper()
	o.Listen, o.NameInstance, o.Upgrades = "127.0.0.1:0", true, []string{"websocket", "echo"}
	if o.Health.Equal(&health.Options{}) {
		o.Health = health.Options{Path: "/health", Interval: 5 * time.Millisecond}
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t testing.TB, s *Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// checkedOnce returns settings with a long interval between health checks, so that only the first check happens during a test.
func checkedOnce() health.Options { return health.Options{Path: "/health", Interval: time.Hour} }

func apply(t testing.TB, s *Server, backends ...quell.Backend) {
	t.Helper()
	if err := s.Apply(context.Background(), backends); err != nil {
		t.Fatal(err)
	}
}

// applyHealthy applies backends and waits until all of them are healthy.
func applyHealthy(t testing.TB, s *Server, backends ...quell.Backend) {
	t.Helper()
	apply(t, s, backends...)
	waitFor(t, "healthy backends", func() bool {
		for _, b := range s.Backends() {
			if !b.Healthy {
				return false
			}
		}
		return true
	})
}

func waitFor(t testing.TB, what string, ready func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 10 s for %s", what)
		}
	}
}

func stateOf(t testing.TB, s *Server, id string) quell.BackendState {
	t.Helper()
	for _, b := range s.Backends() {
		if b.ID == id {
			return b
		}
	}
	t.Fatalf("no backend %s", id)
	return quell.BackendState{}
}

func listed(s *Server, id string) bool {
	for _, b := range s.Backends() {
		if b.ID == id {
			return true
		}
	}
	return false
}

// client keeps its connections until the test ends.
func client(t testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

type answered struct {
	status   int
	instance string
	header   http.Header
	body     string
}

func do(c *http.Client, method, url string, body io.Reader) (answered, error) {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return answered{}, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return answered{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answered{resp.StatusCode, resp.Header.Get(InstanceHeader), resp.Header, string(text)}, err
}

func get(t testing.TB, c *http.Client, s *Server) answered {
	t.Helper()
	r, err := do(c, http.MethodGet, "http://"+s.Addr()+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// socketPath returns a path that is short enough for a socket on every machine that runs tests.
func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "quell")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "admin.sock")
}

// load sends GETs on several connections until stopped, and reports what failed.
type load struct {
	stop   context.CancelFunc
	done   sync.WaitGroup
	sent   atomic.Int64
	mu     sync.Mutex
	faults []string
}

func startLoad(t testing.TB, s *Server, connections int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l, c := &load{stop: cancel}, client(t)
	for range connections {
		l.done.Go(func() {
			for ctx.Err() == nil {
				r, err := do(c, http.MethodGet, "http://"+s.Addr()+"/", nil)
				l.sent.Add(1)
				if err != nil || r.status != http.StatusOK {
					l.mu.Lock()
					l.faults = append(l.faults, fmt.Sprintf("%d %s %s %v", r.status, r.instance, r.body, err))
					l.mu.Unlock()
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); l.done.Wait() })
	return l
}

// more waits until that many further requests were answered.
func (l *load) more(t testing.TB, n int64) {
	t.Helper()
	until := l.sent.Load() + n
	waitFor(t, "answers", func() bool { return l.sent.Load() >= until })
}

func (l *load) finish(t testing.TB) {
	t.Helper()
	l.stop()
	l.done.Wait()
	if len(l.faults) > 0 {
		t.Errorf("%d of %d requests failed, the first: %s", len(l.faults), l.sent.Load(), l.faults[0])
	}
}
