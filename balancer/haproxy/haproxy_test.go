package haproxy

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
)

func backend(id string, i *instance, weight float64) quell.Backend {
	return quell.Backend{ID: id, Address: i.address(), Weight: weight}
}

func declared(list ...string) string {
	var lines []string
	for i := 0; i < len(list); i += 2 {
		lines = append(lines, fmt.Sprintf("server %s %s check inter 200ms", list[i], list[i+1]))
	}
	return strings.Join(lines, "\n")
}

// TestWeightsShareTheTraffic checks the shares under both algorithms that use weights.
func TestWeightsShareTheTraffic(t *testing.T) {
	for _, balance := range []string{"roundrobin", "leastconn"} {
		t.Run(balance, func(t *testing.T) {
			a, b, c := newInstance(t, 4*time.Millisecond), newInstance(t, 4*time.Millisecond), newInstance(t, 4*time.Millisecond)
			l := newLab(t, "")
			l.configure("balance "+balance+"\n"+declared("a", a.address(), "b", b.address(), "c", c.address()), "")
			l.start()
			d := l.driver(nil)
			apply(t, d, backend("a", a, 0.6), backend("b", b, 0.3), backend("c", c, 0.1))
			if got := l.weights(); !maps.Equal(got, map[string]int{"a": 252, "b": 126, "c": 42}) {
				t.Fatalf("weights are %v", got)
			}
			if _, err := d.State(t.Context()); err != nil || d.IdleFirst() != (balance == "leastconn") {
				t.Errorf("idle servers come first: %v, %v", d.IdleFirst(), err)
			}
			f := l.flow(10, "/")
			f.more(600)
			f.wantNoFailures()
			if x, y, z := a.served.Load(), b.served.Load(), c.served.Load(); x <= y*5/4 || y <= z*5/4 {
				t.Errorf("shares of 0.6, 0.3 and 0.1 served %d, %d and %d", x, y, z)
			}
		})
	}
}

// TestAddedServersShareTheTraffic checks that each server that was added at run time gets requests.
func TestAddedServersShareTheTraffic(t *testing.T) {
	for _, balance := range []string{"roundrobin", "leastconn", "random(2)"} {
		t.Run(balance, func(t *testing.T) {
			l := newLab(t, "")
			l.configure("balance "+balance, "")
			l.start()
			d := l.driver(nil)
			var instances []*instance
			var backends []quell.Backend
			for i := range 5 {
				instances = append(instances, newInstance(t, 4*time.Millisecond))
				backends = append(backends, backend(fmt.Sprintf("s%d", i), instances[i], 0.2))
			}
			settle(t, d, backends...)
			f := l.flow(10, "/")
			f.more(600)
			f.wantNoFailures()
			for i, a := range instances {
				if n := a.served.Load(); n < 60 {
					t.Errorf("s%d served %d of 600 requests", i, n)
				}
			}
		})
	}
}

// TestNothingDiffers checks that applied weights read back as requested, and are not applied again.
func TestNothingDiffers(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, declared("a", a.address(), "b", b.address()))
	l.start()
	d := l.driver(func(o *Options) { o.Memory = filepath.Join(l.dir, "memory.json") })
	states, err := d.State(context.Background())
	if err != nil || len(states) != 2 || states[0].ID != "a" || states[0].Weight != 0.5 || !states[0].Healthy {
		t.Fatalf("a first look finds %+v, %v", states, err)
	}
	want := []quell.Backend{
		{ID: "a", Address: a.address(), Probe: "127.0.0.1:1", Weight: 0.123456789}, {ID: "b", Address: b.address(), Weight: 0.876543211},
	}
	apply(t, d, want...)
	if same, err := step(d, want); !same || err != nil {
		t.Errorf("what was applied differs: %v", err)
	}
	// A restarted controller finds shares that it need not change.
	d2 := l.driver(func(o *Options) { o.Memory = filepath.Join(l.dir, "memory.json") })
	states, err = d2.State(context.Background())
	if err != nil || len(states) != 2 || states[0].Probe != "127.0.0.1:1" {
		t.Fatalf("the second finds %+v, %v", states, err)
	}
	before := l.weights()
	apply(t, d2, states[0].Backend, states[1].Backend)
	if after := l.weights(); !maps.Equal(before, after) {
		t.Errorf("taking over changed %v to %v", before, after)
	}
	// Weights in the same proportions give the same shares, so they are left unchanged.
	apply(t, d, backend("a", a, 0.5), backend("b", b, 0.5))
	l.ask("set server app/a weight 10", "set server app/b weight 10")
	settle(t, d, backend("a", a, 0.5), backend("b", b, 0.5))
	if got := l.weights(); got["a"] != 10 || got["b"] != 10 {
		t.Errorf("10 to 10 became %v", got)
	}
}

// TestServersComeAndGo adds and removes instances under load, with servers added at run time and with slots.
func TestServersComeAndGo(t *testing.T) {
	for name, c := range map[string]struct{ backend, slots string }{
		"added": {"", ""},
		"slots": {"server-template slot 1-3 127.0.0.1:1 check inter 200ms disabled", "slot"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, x := newInstance(t, 2*time.Millisecond), newInstance(t, 2*time.Millisecond), newInstance(t, 2*time.Millisecond)
			l := newLab(t, c.backend)
			l.start()
			d := l.driver(func(o *Options) { o.Slots = c.slots; o.Memory = filepath.Join(l.dir, "memory.json") })
			settle(t, d, backend("a", a, 0.5), backend("b", b, 0.5))
			f := l.flow(8, "/")
			for round := range 3 {
				// An instance is added, at first without a share.
				settle(t, d, backend("a", a, 0.5), backend("b", b, 0.5), backend("x", x, 0))
				f.more(20)
				settle(t, d, backend("a", a, 0.3), backend("b", b, 0.3), backend("x", x, 0.4))
				count := x.served.Load()
				await(t, "the new one to serve", func() (bool, any) { return x.served.Load() > count+10, round })
				// An instance drains until no request is open, and is removed.
				settle(t, d, backend("a", a, 0.5), backend("b", b, 0.5), quell.Backend{ID: "x", Address: x.address(), Draining: true})
				await(t, "the drain to end", func() (bool, any) {
					s, err := d.State(context.Background())
					return err == nil && s[2].InFlight == 0 && s[2].Draining, s
				})
				settle(t, d, backend("a", a, 0.5), backend("b", b, 0.5))
				if n := x.open.Load(); n != 0 {
					t.Errorf("%d requests are open at an instance that has gone", n)
				}
			}
			f.wantNoFailures()
			await(t, "the server to be deleted", func() (bool, any) {
				_, err := step(d, []quell.Backend{backend("a", a, 0.5), backend("b", b, 0.5)})
				servers := l.servers()
				s, there := servers["x"]
				return err == nil && (!there || s.inMaint()), servers
			})
		})
	}
}

// TestRemovalWaitsForOpenRequests removes a server that was not drained before.
func TestRemovalWaitsForOpenRequests(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, "")
	l.start()
	d := l.driver(nil)
	settle(t, d, backend("b", b, 1))
	f := l.flow(3, "/slow")
	settle(t, d, backend("a", a, 1))
	f.wantNoFailures()
	if _, there := l.servers()["b"]; there {
		t.Error("b is still there")
	}
}

// TestReload reloads under load, with other weights in the configuration.
func TestReload(t *testing.T) {
	a, b := newInstance(t, 2*time.Millisecond), newInstance(t, 2*time.Millisecond)
	l := newLab(t, declared("a", a.address(), "b", b.address()))
	l.start()
	d := l.driver(nil)
	want := []quell.Backend{backend("a", a, 0.75), backend("b", b, 0.25)}
	settle(t, d, want...)
	f := l.flow(8, "/")
	l.configure("server a "+a.address()+" weight 1\nserver b "+b.address()+" weight 100", "")
	for range 2 {
		l.reload()
		f.more(50)
		settle(t, d, want...)
		if got := l.weights(); got["a"] != 3*got["b"] {
			t.Errorf("after the reload the weights are %v", got)
		}
	}
	f.wantNoFailures()
	if n := l.said.count("restarted or reloaded"); n != 2 {
		t.Errorf("the log tells of %d reloads", n)
	}
	if l.said.count("something else changes weights") != 0 {
		t.Error("a reload was taken for somebody else's work")
	}
}

// TestReloadBetweenLookAndApply reloads HAProxy after the driver has read the state and before it applies weights. The commands must reach
// the new process.
func TestReloadBetweenLookAndApply(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, declared("a", a.address(), "b", b.address()))
	l.start()
	d := l.driver(nil)
	settle(t, d, backend("a", a, 0.5), backend("b", b, 0.5))
	l.reload()
	apply(t, d, backend("a", a, 0.8), backend("b", b, 0.2))
	if got := l.weights(); got["a"] != 4*got["b"] {
		t.Errorf("the weights are %v", got)
	}
}

// TestKilledAndRestarted checks that only requests in flight fail, and that a restarted HAProxy with a state file has
// weights and slots' addresses at once.
func TestKilledAndRestarted(t *testing.T) {
	a, b := newInstance(t, 2*time.Millisecond), newInstance(t, 2*time.Millisecond)
	l := newLab(t, "")
	state := filepath.Join(l.dir, "state")
	l.configure("server-template slot 1-3 unused.invalid:1 check inter 200ms disabled init-addr last,127.0.0.1", "server-state-file "+state)
	l.start()
	d := l.driver(func(o *Options) { o.Slots, o.StateFile = "slot", state })
	want := []quell.Backend{backend("i1", a, 0.75), backend("i2", b, 0.25)}
	settle(t, d, want...)
	const clients = 6
	f := l.flow(clients, "/")
	killed := time.Now()
	l.kill()
	if _, err := d.State(context.Background()); err == nil || !strings.Contains(err.Error(), "nobody answers") {
		t.Errorf("of a dead HAProxy the driver says %v", err)
	}
	l.start()
	up := time.Now()
	f.more(50)
	if got := l.weights(); got["slot1"] != 3*got["slot2"] {
		t.Errorf("the restarted HAProxy begins with %v", got)
	}
	settle(t, d, want...)
	f.more(30)
	f.end()
	inFlight := 0
	for i, began := range f.began {
		switch {
		case began.Before(killed):
			inFlight++
		case began.After(up):
			t.Errorf("failed after the restart: %s", f.failed[i])
		}
	}
	if inFlight > clients {
		t.Errorf("%d requests failed that began before the kill, of at most %d in flight", inFlight, clients)
	}
}

// TestReloadKeepsSlots checks that with the state file a reload loses no request although the configuration has no
// instance.
func TestReloadKeepsSlots(t *testing.T) {
	a, b := newInstance(t, 2*time.Millisecond), newInstance(t, 2*time.Millisecond)
	l := newLab(t, "")
	state := filepath.Join(l.dir, "state")
	l.configure("server-template slot 1-3 unused.invalid:1 check inter 200ms disabled init-addr last,127.0.0.1", "server-state-file "+state)
	l.start()
	d := l.driver(func(o *Options) { o.Slots, o.StateFile = "slot", state })
	want := []quell.Backend{backend("i1", a, 0.75), backend("i2", b, 0.25)}
	settle(t, d, want...)
	f := l.flow(6, "/")
	l.reload()
	f.more(50)
	settle(t, d, want...)
	f.wantNoFailures()
}

// TestRestartBringsAddedServersBack checks that the driver adds servers again that HAProxy lost in a restart.
func TestRestartBringsAddedServersBack(t *testing.T) {
	a := newInstance(t, 0)
	l := newLab(t, "")
	l.start()
	d := l.driver(nil)
	settle(t, d, backend("i1", a, 1))
	l.kill()
	l.start()
	if states, err := d.State(context.Background()); err != nil || len(states) != 0 {
		t.Errorf("a restarted HAProxy has %+v, %v", states, err)
	}
	settle(t, d, backend("i1", a, 1))
	if why := get(http.DefaultClient, "http://"+l.traffic+"/"); why != "" {
		t.Error(why)
	}
}

// TestSeveralHAProxies checks that all HAProxies get the same servers, that their requests in flight are added up, and that a HAProxy that
// does not run delays nothing and is reported.
func TestSeveralHAProxies(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l1, l2 := newLab(t, declared("a", a.address(), "b", b.address())), newLab(t, declared("a", a.address(), "b", b.address()))
	l1.start()
	l2.start()
	d := l1.driver(func(o *Options) { o.Sockets = append(o.Sockets, l2.socket) })
	want := []quell.Backend{backend("a", a, 0.5), backend("b", b, 0.5)}
	settle(t, d, want...)

	var open sync.WaitGroup
	for _, l := range []*lab{l1, l2} {
		open.Go(func() {
			if why := get(http.DefaultClient, "http://"+l.traffic+"/slow"); why != "" {
				t.Errorf("a slow request failed: %s", why)
			}
		})
	}
	await(t, "a request in flight at each", func() (bool, any) {
		states, err := d.State(context.Background())
		return err == nil && states[0].InFlight+states[1].InFlight == 2, states
	})
	open.Wait()

	l2.ask("set server app/a weight 9")
	if same, _ := step(d, want); same {
		t.Error("weights of the second were changed, and nobody noticed")
	}
	settle(t, d, want...)
	l2.kill()
	want = []quell.Backend{backend("a", a, 0.75), backend("b", b, 0.25)}
	settle(t, d, want...)
	if n := l1.said.count("driving HAProxy at " + l2.socket + " failed"); n != 1 {
		t.Errorf("the dead one was reported %d times", n)
	}
	l2.start()
	settle(t, d, want...)
	if got := l2.weights(); got["a"] != 3*got["b"] {
		t.Errorf("the one that came back has %v", got)
	}
	if n := l1.said.count("driving HAProxy at " + l2.socket + " works again"); n != 1 {
		t.Errorf("its return was reported %d times", n)
	}
}

// TestDrainAfterAReload checks that after a reload a drain lasts longer, because the old process may still have open requests.
func TestDrainAfterAReload(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, declared("a", a.address(), "b", b.address()))
	l.start()
	now := time.Now()
	d := l.driver(func(o *Options) { o.Drain, o.Now = time.Minute, func() time.Time { return now } })
	want := []quell.Backend{backend("a", a, 1), {ID: "b", Address: b.address(), Draining: true}}
	settle(t, d, want...)
	inFlight := func() int64 {
		t.Helper()
		states, err := d.State(context.Background())
		if err != nil || len(states) != 2 {
			t.Fatalf("%+v, %v", states, err)
		}
		return states[1].InFlight
	}
	if n := inFlight(); n != 0 {
		t.Errorf("%d requests in flight", n)
	}
	l.reload()
	settle(t, d, want...)
	if n := inFlight(); n != 1 {
		t.Errorf("after the reload %d requests are in flight", n)
	}
	if now = now.Add(time.Minute); inFlight() != 0 {
		t.Error("the drain does not end")
	}
}

// TestOverTCP uses the runtime API over TCP.
func TestOverTCP(t *testing.T) {
	a := newInstance(t, 0)
	l := newLab(t, "")
	address := need.FreeAddress(t)
	l.configure("", "stats socket ipv4@"+address+" level admin")
	l.start()
	d := l.driver(func(o *Options) { o.Sockets = []string{address} })
	settle(t, d, backend("i1", a, 1))
}

// TestMasterWorker reloads by SIGUSR2 under load. The driver does not use the master's own socket.
func TestMasterWorker(t *testing.T) {
	a, b := newInstance(t, 2*time.Millisecond), newInstance(t, 2*time.Millisecond)
	l := newLab(t, declared("a", a.address(), "b", b.address()))
	master := filepath.Join(l.dir, "m")
	l.startMaster(master)
	misled := l.driver(func(o *Options) { o.Sockets = []string{master} })
	await(t, "the master to be recognised", func() (bool, any) {
		_, err := misled.State(context.Background())
		return err != nil && strings.Contains(err.Error(), "socket of the master process"), err
	})
	d := l.driver(nil)
	want := []quell.Backend{backend("a", a, 0.75), backend("b", b, 0.25)}
	settle(t, d, want...)
	f := l.flow(6, "/")
	for range 2 {
		before, asked := l.said.count("restarted or reloaded"), time.Time{}
		await(t, "the new worker", func() (bool, any) {
			if time.Since(asked) > 5*time.Second { // a master that is still loading ignores the signal
				if err := l.running.Process.Signal(syscall.SIGUSR2); err != nil {
					t.Fatal(err)
				}
				asked = time.Now()
			}
			_, err := step(d, want)
			return err == nil && l.said.count("restarted or reloaded") > before, l.said
		})
		f.more(50)
		settle(t, d, want...)
		if got := l.weights(); got["a"] != 3*got["b"] {
			t.Errorf("after the reload the weights are %v", got)
		}
	}
	f.wantNoFailures()
}
