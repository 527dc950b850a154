package nginx

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/balancertest"
)

// Old workers that never end make new weights wait, but nothing else.
func TestOldWorkersNeverEnd(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	answer := func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			<-hold
		}
	}
	a, b := newInstance(t, answer), newInstance(t, answer)
	l := newLab(t, "least_conn;", "server "+a.address()+";", "server "+b.address()+";")
	config, err := os.ReadFile(l.config)
	if err != nil {
		t.Fatal(err)
	}
	l.write(l.config, strings.Replace(string(config), "worker_shutdown_timeout 10s;", "", 1))
	l.start()
	d := l.driver(nil)
	settle(t, d, backend("a", a, 0.5), backend("b", b, 0.5))
	old := func() int {
		_, old, err := d.master.Workers()
		if err != nil {
			t.Fatal(err)
		}
		return old
	}
	var held sync.WaitGroup
	var failed sync.Map
	sum := func() int64 { return a.served.Load() + b.served.Load() }
	for n := 0; old() < 4; n++ { // two workers
		before := sum()
		held.Go(func() {
			resp, err := http.Get("http://" + l.traffic + "/hold") // without a limit of time
			if err != nil || resp.StatusCode != http.StatusOK {
				failed.Store(n, err)
			}
			if err == nil {
				resp.Body.Close()
			}
		})
		eventually(t, "an instance has the request", func() bool { return sum() > before })
		w := 0.3 + 0.4*float64(n%2)
		settle(t, d, backend("a", a, w), backend("b", b, 1-w))
	}
	lines := l.lines()
	for range 3 {
		if err := d.Apply(t.Context(), []quell.Backend{backend("a", a, 0.9), backend("b", b, 0.1)}); err != nil {
			t.Fatal(err)
		}
	}
	if l.lines() != lines {
		t.Errorf("weights did not wait for %d old workers:\n%s", old(), l.lines())
	}
	settle(t, d, backend("a", a, 1), quell.Backend{ID: "b", Address: b.address(), Draining: true})
	if n := l.get(5, "/"); n > 0 {
		t.Errorf("%d requests failed", n)
	}
	close(hold)
	held.Wait()
	failed.Range(func(n, err any) bool { t.Errorf("request %v, which was held, failed: %v", n, err); return true })
	settle(t, d, backend("a", a, 0.9), backend("b", b, 0.1))
}

// nginx that is stopped and started again, as at an upgrade of the system, reads the same shares, also with a controller that saw nothing
// of it. While it is gone the driver says so.
func TestNginxIsRestarted(t *testing.T) {
	t.Parallel()
	a, b := newInstance(t, nil), newInstance(t, nil)
	l := newLab(t, "", "server "+a.address()+";", "server "+b.address()+";")
	l.start()
	d := l.driver(nil)
	want := []quell.Backend{backend("a", a, 0.8), backend("b", b, 0.2)}
	settle(t, d, want...)
	lines := l.lines()
	l.stop()
	if _, err := d.State(t.Context()); err == nil || !strings.Contains(err.Error(), "nginx does not run") {
		t.Errorf("without nginx: %v", err)
	}
	err := d.Apply(t.Context(), []quell.Backend{backend("a", a, 0.5), backend("b", b, 0.5)})
	if err == nil || !strings.Contains(err.Error(), "nginx does not run") {
		t.Errorf("without nginx: %v", err)
	}
	if l.lines() != lines {
		t.Errorf("the file was changed:\n%s", l.lines())
	}
	l.start()
	for _, d := range []*Driver{d, l.driver(nil)} {
		if s := stateOf(t, d, "a"); s.Weight != 0.8 {
			t.Errorf("after the restart: %+v", s)
		}
	}
	if n, before := l.get(100, "/"), b.served.Load(); n > 0 || a.served.Load() < 3*before {
		t.Errorf("%d requests failed; %d and %d were served", n, a.served.Load(), before)
	}
	settle(t, d, backend("a", a, 0.5), backend("b", b, 0.5))
}

// When nginx's master process is killed, its workers go on with the last weights: no request fails, and the driver says who they are and
// changes nothing. When they have ended and nginx is started again, weights are applied again.
func TestTheMasterIsKilled(t *testing.T) {
	t.Parallel()
	a, b := newInstance(t, nil), newInstance(t, nil)
	l := newLab(t, "", "server "+a.address()+";", "server "+b.address()+";")
	l.start()
	d := l.driver(nil)
	settle(t, d, backend("a", a, 0.8), backend("b", b, 0.2))
	lines := l.lines()
	workers, _, err := d.master.Workers()
	if err != nil {
		t.Fatal(err)
	}
	failed := l.load()
	end := l.kill(workers)
	even := []quell.Backend{backend("a", a, 0.5), backend("b", b, 0.5)}
	_, looked := d.State(t.Context())
	for _, err := range []error{looked, d.Apply(t.Context(), even)} {
		if err == nil || !strings.Contains(err.Error(), "go on with the last weights: end them with kill -QUIT "+strings.Join(workers, " ")) {
			t.Errorf("without the master of %v: %v", workers, err)
		}
	}
	served := a.served.Load() + b.served.Load()
	eventually(t, "the workers serve", func() bool { return a.served.Load()+b.served.Load() > served+20 })
	if n := failed(); n > 0 || l.lines() != lines {
		t.Errorf("%d requests failed without the master; the file is\n%s", n, l.lines())
	}
	end()
	l.start()
	if s := stateOf(t, d, "a"); s.Weight != 0.8 {
		t.Errorf("after a new start: %+v", s)
	}
	failed = l.load()
	settle(t, d, even...)
	if n := failed(); n > 0 {
		t.Errorf("%d requests failed after the new start", n)
	}
	x, y := a.served.Load(), b.served.Load()
	if n := l.get(100, "/"); n > 0 || a.served.Load()-x != b.served.Load()-y {
		t.Errorf("%d requests failed; of 100 with equal weights a got %d", n, a.served.Load()-x)
	}
}

// A thousand servers, one of them at an address of IPv6, are taken by nginx, and the only one that serves gets all requests.
func TestAThousandServers(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Logf("without IPv6: %v", err)
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	a := newInstance(t, nil)
	web := &http.Server{Handler: a.Config.Handler}
	go web.Serve(listener)
	t.Cleanup(func() { web.Close() })
	l := newLab(t, "")
	config, err := os.ReadFile(l.config)
	if err != nil {
		t.Fatal(err)
	}
	l.write(l.config, strings.Replace(string(config), "zone web 64k;", "zone web 2m;", 1))
	l.write(l.include, "server 127.0.0.1:9 down;\n")
	l.start()
	d := l.driver(nil)
	list := []quell.Backend{{ID: "a", Address: listener.Addr().String(), Weight: 1}}
	for n := range 999 {
		list = append(list, quell.Backend{ID: fmt.Sprint("i", n), Address: fmt.Sprintf("127.1.%d.%d:9", n/250, 1+n%250)})
	}
	if err := d.Apply(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if states, err := d.State(t.Context()); err != nil || len(states) != len(list) || strings.Count(l.lines(), " down;") != 999 {
		t.Errorf("%d servers are in force, %v", len(states), err)
	}
	if n := l.get(20, "/"); n > 0 || a.served.Load() != 20 {
		t.Errorf("%d requests failed, %d were served", n, a.served.Load())
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	l := newLab(t, "", "server "+newInstance(t, nil).address()+";")
	l.start()
	addresses := []string{newInstance(t, nil).address(), newInstance(t, nil).address(), newInstance(t, nil).address()}
	balancertest.Contract(t, func() balancer.Driver { return l.driver(nil) }, addresses, 0)
}
