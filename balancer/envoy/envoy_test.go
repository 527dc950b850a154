package envoy

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/envoylog"
	"github.com/quellhq/quell/internal/need"
)

// Requests follow the shares, over each way in which an Envoy can ask for endpoints, and under each policy.
func TestWeightsShareTheTraffic(t *testing.T) {
	for _, c := range []struct{ name, eds, policy string }{
		{"state of the world", sotw, "ROUND_ROBIN"}, {"delta", delta, "LEAST_REQUEST"}, {"aggregated", ads, "ROUND_ROBIN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, b := newInstance(t, nil), newInstance(t, nil)
			l := newLab(t)
			l.start(c.eds, c.policy, "")
			control := l.control(nil)
			settle(t, control, backend("a", a, 0.8), backend("b", b, 0.2))
			l.serves()
			before := a.served.Load() + b.served.Load()
			if failed := l.get(200, "/"); failed > 0 {
				t.Errorf("%d requests failed", failed)
			}
			x, y := a.served.Load(), b.served.Load()
			if x+y-before != 200 || x < 130 || x > 185 {
				t.Errorf("shares of 0.8 and 0.2 served %d and %d", x, y)
			}
			if err := control.fleet.err(""); err != nil {
				t.Error(err)
			}
		})
	}
}

// A hundred changes of weights under load lose no request.
func TestChangesLoseNothing(t *testing.T) {
	t.Parallel()
	a, b := newInstance(t, nil), newInstance(t, nil)
	l := newLab(t)
	l.start(sotw, "LEAST_REQUEST", "")
	control := l.control(nil)
	settle(t, control, backend("a", a, 0.5), backend("b", b, 0.5))
	l.serves()
	var failed atomic.Int64
	var clients sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				failed.Add(int64(l.get(1, "/")))
			}
		})
	}
	for i := range 100 {
		w := 0.3 + 0.4*float64(i%2)
		settle(t, control, backend("a", a, w), backend("b", b, 1-w))
	}
	stop()
	clients.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d requests failed", failed.Load())
	}
}

// A drained instance gets nothing new and finishes what it has. Envoy reports what is in progress.
func TestDrain(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	a := newInstance(t, nil)
	b := newInstance(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			<-hold
		}
	})
	l := newLab(t)
	l.start(sotw, "ROUND_ROBIN", "")
	control := l.control(func(o *Options, _ *Settings) { o.Drain = time.Hour })
	settle(t, control, backend("a", a, 0.5), backend("b", b, 0.5))
	l.serves()
	held := make(chan int, 1)
	go func() { held <- l.get(2, "/hold") }() // one of them reaches b
	eventually(t, "b has an open request", func() bool { return stateOf(t, control.Driver, "b").InFlight == 1 })
	settle(t, control, backend("a", a, 1), quell.Backend{ID: "b", Address: b.address(), Draining: true})
	served := b.served.Load()
	if failed := l.get(10, "/"); failed > 0 || b.served.Load() != served {
		t.Errorf("while b drains: %d failed, b got %d more", failed, b.served.Load()-served)
	}
	close(hold)
	if failed := <-held; failed > 0 {
		t.Error("the drained request failed")
	}
	eventually(t, "b has no open request", func() bool { return stateOf(t, control.Driver, "b").InFlight == 0 })
	settle(t, control, backend("a", a, 1))
	if s := stateOf(t, control.Driver, "b"); s.ID != "" {
		t.Errorf("b left: %+v", s)
	}
}

// Endpoints that an Envoy refuses are said, and it goes on with the old ones.
func TestARefusal(t *testing.T) {
	t.Parallel()
	for name, eds := range map[string]string{"state of the world": sotw, "delta": delta} {
		t.Run(name, func(t *testing.T) {
			a := newInstance(t, nil)
			l := newLab(t)
			l.start(eds, "ROUND_ROBIN", "")
			control := l.control(nil)
			settle(t, control, backend("a", a, 1))
			l.serves()
			control.Driver.mu.Lock()
			bad := control.assignment("web")
			control.Driver.mu.Unlock()
			bad.Endpoints[0].LbEndpoints[0].GetEndpoint().Address.GetSocketAddress().Address = "nowhere"
			control.fleet.changed()
			if err := control.cache.UpdateResource("web", bad); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the refusal is said", func() bool { return contains(control.Err(), "the Envoy front-1 refused its endpoints") })
			if s := stateOf(t, control.Driver, "a"); s.Address != "" {
				t.Errorf("its state is %+v", s)
			}
			if failed := l.get(10, "/"); failed > 0 {
				t.Errorf("%d requests failed", failed)
			}
			settle(t, control, backend("a", a, 0.5), backend("b", a, 0))
			eventually(t, "all is well", func() bool { return control.Err() == nil })
		})
	}
}

// Envoys outlive their controller, and a new one gives them what the old one did.
func TestAnotherController(t *testing.T) {
	t.Parallel()
	a, b := newInstance(t, nil), newInstance(t, nil)
	l := newLab(t)
	l.start(sotw, "ROUND_ROBIN", "")
	first := l.control(nil)
	settle(t, first, backend("a", a, 0.9), backend("b", b, 0.1))
	l.serves()
	first.server.Stop()
	if failed := l.get(20, "/"); failed > 0 {
		t.Errorf("without a controller %d requests failed", failed)
	}
	second := l.control(nil)
	eventually(t, "Envoy comes back", func() bool { return second.fleet.accepted() && second.fleet.err("") == nil })
	if s := stateOf(t, second.Driver, "a"); s.Weight != 0.9 || s.Foreign || s.Address != a.address() {
		t.Errorf("the second controller has %+v", s)
	}
	settle(t, second, backend("a", a, 0.5), backend("b", b, 0.5))

	// An Envoy that is restarted gets the endpoints, too.
	l.stop()
	eventually(t, "it is missed", func() bool { return contains(second.fleet.err(""), "no Envoy is connected any more") })
	l.start(sotw, "ROUND_ROBIN", "")
	l.serves()
}

// With an aggregate cluster, as on the driver's page, an Envoy that starts without a controller serves the endpoints of its own
// configuration.
func TestAnEnvoyWithoutAController(t *testing.T) {
	t.Parallel()
	a, b := newInstance(t, nil), newInstance(t, nil)
	l := newLab(t)
	l.cluster = "app"
	l.more = strings.Replace(aggregate, "ADDRESS", socketOf(a.address()), 1)
	l.start("{initial_fetch_timeout: 0.2s, "+sotw[1:], "ROUND_ROBIN", "")
	l.serves()
	if b.served.Load() > 0 {
		t.Error("b is not in its configuration")
	}
	settle(t, l.control(nil), backend("b", b, 1))
	eventually(t, "it follows the controller", func() bool {
		before := b.served.Load()
		return l.get(3, "/") == 0 && b.served.Load() == before+3
	})
}

// In advise mode nothing is applied: a fixed group's instances are given all the same, with equal weights.
func TestBeforeTheFirstPlan(t *testing.T) {
	t.Parallel()
	a, b := newInstance(t, nil), newInstance(t, nil)
	l := newLab(t)
	members := []quell.Member{{ID: "a", Address: a.address()}, {ID: "b", Address: b.address()}}
	control := l.control(func(o *Options, _ *Settings) { o.Members = members })
	eventually(t, "nobody has asked", func() bool { return contains(control.Err(), "no Envoy has asked for endpoints at "+l.quell) })
	l.start(sotw, "ROUND_ROBIN", "")
	l.serves()
	if s := stateOf(t, control.Driver, "b"); !s.Foreign || s.Weight != 0.5 {
		t.Errorf("%+v", s)
	}
}

// An instance that fails the controller's checks gets no requests.
func TestHealth(t *testing.T) {
	t.Parallel()
	var sick atomic.Bool
	a := newInstance(t, nil)
	b := newInstance(t, func(w http.ResponseWriter, r *http.Request) {
		if sick.Load() && r.URL.Path == "/well" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	l := newLab(t)
	l.start(sotw, "ROUND_ROBIN", "")
	control := l.control(func(_ *Options, s *Settings) { s.Health.Path = "/well" })
	settle(t, control, backend("a", a, 0.5), backend("b", b, 0.5))
	l.serves()
	sick.Store(true)
	eventually(t, "b is unhealthy", func() bool {
		return contains(fmt.Errorf("%s", stateOf(t, control.Driver, "b").Health), "GET /well: 503")
	})
	eventually(t, "Envoy knows", func() bool {
		before := a.served.Load()
		return l.get(4, "/") == 0 && a.served.Load() >= before+4
	})
	sick.Store(false)
	eventually(t, "b is back", func() bool { return stateOf(t, control.Driver, "b").Healthy })
}

// With the panic threshold of the driver's page, ill and drained instances get no requests when most are so, and if all are ill, those that
// do not drain go on.
func TestMostAreIll(t *testing.T) {
	t.Parallel()
	var sick, allSick atomic.Bool
	answer := func(ill *atomic.Bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/well" && (ill.Load() || allSick.Load()) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
	}
	a, b, c, drained := newInstance(t, answer(&allSick)), newInstance(t, answer(&sick)), newInstance(t, answer(&sick)), newInstance(t, nil)
	l := newLab(t)
	l.start(sotw, "ROUND_ROBIN", "")
	control := l.control(func(_ *Options, s *Settings) { s.Health.Path = "/well" })
	settle(t, control, backend("a", a, 0.4), backend("b", b, 0.3), backend("c", c, 0.3),
		quell.Backend{ID: "d", Address: drained.address(), Draining: true})
	l.serves()
	sick.Store(true)
	eventually(t, "only a gets requests", func() bool {
		before, gone := a.traffic.Load(), drained.traffic.Load()
		return l.get(20, "/") == 0 && a.traffic.Load() == before+20 && drained.traffic.Load() == gone
	})
	allSick.Store(true)
	eventually(t, "all of them get requests", func() bool {
		before := [...]int64{a.traffic.Load(), b.traffic.Load(), c.traffic.Load()}
		failed := l.get(20, "/")
		return failed == 0 && a.traffic.Load() > before[0] && b.traffic.Load() > before[1] && c.traffic.Load() > before[2]
	})
}

// Envoy's access log is measured: responses, failures, refusals and clients that left.
func TestMeasuring(t *testing.T) {
	t.Parallel()
	a := newInstance(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			select {
			case <-r.Context().Done():
			case <-time.After(patience):
			}
		case "/bad":
			w.WriteHeader(http.StatusInternalServerError)
		case "/busy":
			w.WriteHeader(http.StatusTooManyRequests)
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
		default:
			time.Sleep(5 * time.Millisecond)
		}
	})
	l := newLab(t)
	l.start(sotw, "LEAST_REQUEST", "")
	control := l.control(nil)
	settle(t, control, backend("a", a, 1))
	eventually(t, "Envoy listens", func() bool { return l.get(1, "/events") == 0 })
	tried := a.served.Load()
	l.get(10, "/")
	l.get(3, "/bad")
	l.get(2, "/busy")
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.traffic+"/slow", nil)
	before := a.served.Load()
	go func() {
		eventually(t, "the slow request arrives", func() bool { return a.served.Load() > before })
		cancel()
	}()
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Fatal("the slow request was answered")
	}
	var requests, failed int64
	var responses int
	var sum float64
	eventually(t, "everything is measured", func() bool {
		select {
		case list := <-control.got:
			for _, r := range list {
				requests, failed = requests+r.Requests, failed+r.Errors
				if m := r.Observation.LatencyMS; m != nil {
					responses, sum = responses+m.N, sum+*m.Mean*float64(m.N)
				}
			}
		default:
		}
		return requests == tried+16
	})
	if failed != 3 || responses != 10 || sum/10 < 5 {
		t.Errorf("%d failed, %d responses of %v ms in the mean; want 3, 10 and at least 5 ms", failed, responses, sum/float64(responses))
	}
}

// While an Envoy is replaced by its successor no request fails, and the successor has the endpoints, also those that come later.
func TestHotRestart(t *testing.T) {
	t.Parallel()
	a, b := newInstance(t, nil), newInstance(t, nil)
	l := newLab(t)
	base := filepath.Join(l.dir, "base")
	l.hot = []string{"--use-dynamic-base-id", "--base-id-path", base}
	l.start(sotw, "ROUND_ROBIN", "")
	control := l.control(nil)
	settle(t, control, backend("a", a, 0.5), backend("b", b, 0.5))
	l.serves()
	ctx, stop := context.WithCancel(t.Context())
	failed := make(chan int, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			n += l.get(1, "/")
		}
		failed <- n
	}()
	old := l.ended
	l.admin = need.FreeAddress(t) // of the successor: the old one closes its own late
	l.hot = []string{"--base-id", id(t, base), "--restart-epoch", "1", "--drain-time-s", "1", "--parent-shutdown-time-s", "2"}
	l.start(sotw, "ROUND_ROBIN", "")
	select {
	case <-old:
	case <-time.After(patience):
		t.Error("the old Envoy does not end")
	}
	settle(t, control, backend("a", a, 1))
	stop()
	if n := <-failed; n > 0 {
		t.Errorf("%d requests failed", n)
	}
	before := b.served.Load()
	if n := l.get(20, "/"); n > 0 || b.served.Load() > before {
		t.Errorf("%d failed, and b, which left, got %d", n, b.served.Load()-before)
	}
}

// id reads the id that an Envoy has chosen.
func id(t *testing.T, path string) (text string) {
	t.Helper()
	eventually(t, "Envoy has chosen its id", func() bool {
		data, err := os.ReadFile(path)
		text = strings.TrimSpace(string(data))
		return err == nil && text != ""
	})
	return text
}

// Two instances may have the same address, for example by a mistake in a list: both are in force, and no request fails.
func TestAnAddressTwice(t *testing.T) {
	t.Parallel()
	a, b := newInstance(t, nil), newInstance(t, nil)
	l := newLab(t)
	l.start(sotw, "ROUND_ROBIN", "")
	control := l.control(nil)
	settle(t, control, backend("a", a, 0.25), backend("copy", a, 0.25), backend("b", b, 0.5))
	l.serves()
	if failed := l.get(50, "/"); failed > 0 || a.served.Load() == 0 || b.served.Load() == 0 {
		t.Errorf("%d failed; %d and %d were served", failed, a.served.Load(), b.served.Load())
	}
	settle(t, control, backend("a", a, 0.5), backend("b", b, 0.5))
	if failed := l.get(50, "/"); failed > 0 {
		t.Errorf("after one left: %d failed", failed)
	}
}

// The largest group that is tried: each endpoint once, with its weight, in both families of addresses.
func TestAThousandEndpoints(t *testing.T) {
	d, err := New(Options{Clusters: []string{"web", "api"}})
	if err != nil {
		t.Fatal(err)
	}
	var list []quell.Backend
	for i := range 1000 {
		list = append(list, quell.Backend{ID: fmt.Sprint("i", i), Address: fmt.Sprintf("[fd00::%x]:80", i+1), Weight: float64(i)})
	}
	if err := d.Apply(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for name, r := range d.cache.GetResources() {
		endpoints := r.(*endpoint.ClusterLoadAssignment).Endpoints[0].LbEndpoints
		last := endpoints[999]
		if len(endpoints) != 1000 || last.GetLoadBalancingWeight().GetValue() != mostWeight ||
			endpoints[1].GetLoadBalancingWeight().GetValue() != 10 || envoylog.Plain(last.GetEndpoint().GetAddress()) != "[fd00::3e8]:80" {
			t.Errorf("%s: %d endpoints, the last one is %v", name, len(endpoints), last)
		}
	}
	if err := d.Apply(t.Context(), []quell.Backend{{ID: "a", Address: "no port", Weight: 1}}); err == nil {
		t.Error("an address without a port was taken")
	}
}

// An instance whose name cannot be resolved does not hold up the others. It keeps the address that it had by that name, and a new one gets
// requests as soon as it has one.
func TestANameThatIsNotResolved(t *testing.T) {
	memory := filepath.Join(t.TempDir(), "envoy.json")
	if err := os.WriteFile(memory, []byte(`[{"id": "a", "address": "127.0.0.1:1", "numeric": "127.0.0.1:1", "share": 0.5},
		{"id": "b", "address": "forgotten", "numeric": "127.0.0.1:2", "share": 0.5}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	given := func(d *Driver) string {
		var list []string
		for _, e := range d.cache.GetResources()["web"].(*endpoint.ClusterLoadAssignment).Endpoints[0].LbEndpoints {
			list = append(list, envoylog.Plain(e.GetEndpoint().GetAddress())+" "+e.HealthStatus.String())
		}
		return strings.Join(list, ", ")
	}
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	d, err := New(Options{Clusters: []string{"web"}, Memory: memory, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Apply(t.Context(), []quell.Backend{{ID: "a", Address: "127.0.0.1:1", Draining: true},
			{ID: "b", Address: "forgotten", Weight: 0.5}, {ID: "c", Address: "unheard of", Weight: 0.5}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := given(d); got != "127.0.0.1:1 DRAINING, 127.0.0.1:2 UNKNOWN" {
		t.Errorf("Envoys get %s", got)
	}
	if n := strings.Count(said.String(), "address of c"); n != 1 {
		t.Errorf("said %d times: %s", n, said.String())
	}
	if err := d.Apply(t.Context(), []quell.Backend{{ID: "c", Address: "unheard of", Weight: 1}}); !contains(err, "address of c") {
		t.Errorf("without any address: %v", err)
	}

	// Before the first plan it is the same with a fixed group.
	members := []quell.Member{{ID: "c", Address: "unheard of"}, {ID: "a", Address: "127.0.0.1:1"}}
	d, err = New(Options{Clusters: []string{"web"}, Members: members})
	if err != nil {
		t.Fatal(err)
	}
	d.waiting[0].Address = "127.0.0.1:3" // stands for a name that can be resolved later
	before := given(d)
	if err := d.renew(t.Context(), time.Now()); err != nil || before != "127.0.0.1:1 UNKNOWN" || given(d) != before+", 127.0.0.1:3 UNKNOWN" {
		t.Errorf("%v; Envoys got %s and get %s", err, before, given(d))
	}
}

// Connections that are opened and held keep no Envoy from its endpoints.
func TestHeldConnections(t *testing.T) {
	t.Parallel()
	const most = 8
	a := newInstance(t, nil)
	l := newLab(t)
	control := l.control(nil)
	control.port.Limiter().Resize(most)
	if err := control.Apply(t.Context(), []quell.Backend{backend("a", a, 1)}); err != nil {
		t.Fatal(err)
	}
	for range 4 * most {
		conn, err := net.Dial("tcp", l.quell)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	l.start(sotw, "ROUND_ROBIN", "")
	l.serves()
	for range 4 * most {
		conn, err := net.Dial("tcp", l.quell)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	eventually(t, "the limit holds", func() bool { return control.port.Limiter().Open() <= most })
	settle(t, control, backend("a", a, 1), backend("b", a, 0)) // over the connection that the Envoy has had
}
