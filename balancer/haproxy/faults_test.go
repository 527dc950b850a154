package haproxy

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/balancertest"
)

// TestOthersAreReported covers changed weights, foreign servers, and agent-checks, each reported once.
func TestOthersAreReported(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, declared("a", a.address(), "theirs", b.address())+"\nserver b "+b.address()+" agent-check agent-port 1 agent-inter 1h")
	l.start()
	d := l.driver(nil)
	want := []quell.Backend{backend("a", a, 0.75), backend("b", b, 0.25)}
	settle(t, d, want...)
	for range 3 {
		l.ask("set server app/a weight 7")
		if same, err := step(d, want); same || err != nil {
			t.Errorf("a changed weight: same %v, %v", same, err)
		}
		settle(t, d, want...)
		apply(t, d, want...)
	}
	for words, times := range map[string]int{"something else changes weights": 3, `changed="a from 255 to 7"`: 3, "quell override": 3,
		"has an agent-check": 1, "belongs to no instance": 1, "failed": 0, "works again": 0} {
		if n := l.said.count(words); n != times {
			t.Errorf("%q is said %d times, want %d", words, n, times)
		}
	}
	if s := l.servers()["theirs"]; s.weight != 1 || s.inMaint() || s.isDraining() {
		t.Errorf("somebody else's server became %+v", s)
	}
}

// TestTwoControllersOnOneBackend has two controllers of different services on one backend. Each restores its own servers, and both report
// the conflict.
func TestTwoControllersOnOneBackend(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l, other := newLab(t, declared("a", a.address(), "b", b.address())), &sayings{}
	l.start()
	one := l.driver(nil)
	two := l.driver(func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(other, nil)) })
	apply(t, one, backend("a", a, 0.75), backend("b", b, 0.25))
	apply(t, two, backend("a", a, 0.25), backend("b", b, 0.75))
	settle(t, one, backend("a", a, 0.75), backend("b", b, 0.25))
	settle(t, two, backend("a", a, 0.25), backend("b", b, 0.75))
	for _, said := range []*sayings{l.said, other} {
		if n := said.count("something else changes weights"); n != 1 {
			t.Errorf("said %d times:\n%s", n, said)
		}
	}
}

// TestSlotInServiceForNobody checks that the driver takes a slot out of service if it belongs to no instance, as can happen after a start
// with an old state file.
func TestSlotInServiceForNobody(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, "server-template slot 1-2 "+b.address()+" check inter 200ms")
	l.start()
	l.ask("set server app/slot1 state maint")
	d := l.driver(func(o *Options) { o.Slots = "slot" })
	settle(t, d, backend("i1", a, 1))
	if got := l.weights(); !maps.Equal(got, map[string]int{"slot1": 1}) {
		t.Errorf("in service are %v", got)
	}
}

// TestFilesThatCannotBeWritten checks that failures to write files are reported once and delay nothing.
func TestFilesThatCannotBeWritten(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, declared("a", a.address(), "b", b.address()))
	l.start()
	d := l.driver(func(o *Options) {
		o.StateFile, o.Memory = filepath.Join(l.dir, "no", "folder"), filepath.Join(l.dir, "no", "memory")
	})
	settle(t, d, backend("a", a, 0.75), backend("b", b, 0.25))
	settle(t, d, backend("a", a, 0.25), backend("b", b, 0.75))
	for _, words := range []string{"keeping HAProxy's state file failed", "balancer.haproxy.state_file",
		"keeping which server stands for which instance failed"} {
		if n := l.said.count(words); n != 1 {
			t.Errorf("%q is said %d times:\n%s", words, n, l.said)
		}
	}
}

// TestDamagedMemory checks that a damaged memory gives an error that says what to do.
func TestDamagedMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	for _, text := range []string{"{", `[{"id":"a","server":"s;t"}]`, `[{"id":"","server":"s"}]`, `[null]`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(Options{Sockets: []string{"/s"}, Backend: "b", Memory: path}); err == nil ||
			!strings.Contains(err.Error(), "delete it") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestMistakesAreNamed checks that each mistake gives one message that says what to do.
func TestMistakesAreNamed(t *testing.T) {
	a := newInstance(t, 0)
	l := newLab(t, "")
	state := func(change func(*Options)) string {
		_, err := l.driver(change).State(context.Background())
		return fmt.Sprint(err)
	}
	expect := func(what, got, want string) {
		t.Helper()
		if !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q in one line", what, got, want)
		}
	}
	expect("no HAProxy", state(nil), "the socket does not exist: is HAProxy running")
	l.start()
	expect("no such backend", state(func(o *Options) { o.Backend = "other" }), `there is no backend "other"`)
	for what, path := range map[string]string{"a folder": l.dir, "a file": l.config} {
		expect(what, state(func(o *Options) { o.Sockets = []string{path} }), "this is no socket")
	}
	expect("nobody at the port", state(func(o *Options) { o.Sockets = []string{"127.0.0.1:1"} }), "nobody answers")
	d := l.driver(func(o *Options) { o.Slots = "slot" })
	expect("no slot", fmt.Sprint(d.Apply(context.Background(), []quell.Backend{backend("i1", a, 1)})), "no slot is free for i1")
	d = l.driver(func(o *Options) { o.Server = "no-such-word" })
	expect("bad parameters", fmt.Sprint(d.Apply(context.Background(), []quell.Backend{backend("i1", a, 1)})), "no-such-word")

	text, _ := os.ReadFile(l.config)
	if err := os.WriteFile(l.config, []byte(strings.Replace(string(text), "level admin", "level user", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	l.kill()
	l.start()
	expect("a socket that may only look", fmt.Sprint(l.driver(nil).Apply(context.Background(), []quell.Backend{backend("i1", a, 1)})),
		"level admin")
	expect("no name for a server", fmt.Sprint(l.driver(nil).Apply(context.Background(), []quell.Backend{{ID: "a;b", Address: a.address()}})),
		"cannot be the name of a server")
}

// TestFrontendCalledAsTheBackend checks that counters are read from the backend, not from a frontend of the same
// name.
func TestFrontendCalledAsTheBackend(t *testing.T) {
	a := newInstance(t, 0)
	l := newLab(t, declared("a", a.address()))
	l.replace("frontend web", "frontend app")
	l.start()
	d := l.driver(nil)
	apply(t, d, backend("a", a, 1))
	var open sync.WaitGroup
	open.Go(func() { _ = get(http.DefaultClient, "http://"+l.traffic+"/slow") })
	await(t, "the request to be counted", func() (bool, any) {
		states, err := d.State(context.Background())
		return err == nil && states[0].InFlight == 1, states
	})
	open.Wait()
}

// TestBackendThatIgnoresWeights checks that a backend that ignores weights, or counts no requests, is reported once.
func TestBackendThatIgnoresWeights(t *testing.T) {
	for how, want := range map[string]string{"balance first": "balance first does not share", "mode tcp": "mode tcp", "balance random": ""} {
		a := newInstance(t, 0)
		l := newLab(t, how+"\n"+declared("a", a.address()))
		l.replace("  balance leastconn\n", "")
		if how == "mode tcp" {
			l.replace("mode http", "mode tcp")
			l.replace("  option httplog\n", "")
			l.replace("  capture request header X-Class len 20\n", "")
			l.replace("  http-response set-header X-Quell-Instance %[srv_name]\n", "")
		}
		l.start()
		d := l.driver(nil)
		apply(t, d, backend("a", a, 1))
		for range 2 {
			if _, err := d.State(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if n := l.said.count("level=WARN"); want != "" && (n != 1 || l.said.count(want) != 1) || want == "" && n != 0 {
			t.Errorf("%s: %s", how, l.said)
		}
	}
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, declared("a", a.address(), "b", b.address()))
	l.replace("balance leastconn", "balance source")
	l.start()
	err := l.driver(nil).Apply(context.Background(), []quell.Backend{backend("a", a, 0.7), backend("b", b, 0.3)})
	if err == nil || !strings.Contains(err.Error(), "`balance` must be roundrobin") {
		t.Error(err)
	}
}

// TestRestartThatKeepsThePid checks that a restart with the same pid, as in a container, is noticed by the uptime.
func TestRestartThatKeepsThePid(t *testing.T) {
	uptime, said := 100, &sayings{}
	path := fake(t, func(command string) (string, bool) {
		return map[string]string{
			"show info": fmt.Sprintf("Pid: 1\nUptime_sec: %d\n", uptime), "show servers state app": stateText + "\n",
			"show stat 3 6 -1": statText + "\n",
		}[command], true
	})
	d, err := New(Options{Sockets: []string{path}, Backend: "app", Logger: slog.New(slog.NewTextHandler(said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, uptime = range []int{100, 101, 0} {
		if _, err := d.State(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if n := said.count("restarted or reloaded"); n != 1 {
		t.Errorf("%d restarts are told of", n)
	}
	if counts := d.processes[0].takeCounts(); counts["s1"].arrived != 40 {
		t.Errorf("%d requests of the new process are counted", counts["s1"].arrived)
	}
}

// TestOneOfTwoHangs has a HAProxy that accepts connections but does not answer. It must not delay the weights of the other HAProxy.
func TestOneOfTwoHangs(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l1, l2 := newLab(t, declared("a", a.address(), "b", b.address())), newLab(t, declared("a", a.address(), "b", b.address()))
	l1.start()
	l2.start()
	d := l1.driver(func(o *Options) { o.Sockets = append(o.Sockets, l2.socket) })
	settle(t, d, backend("a", a, 0.5), backend("b", b, 0.5))
	signal := func(s os.Signal) {
		if err := l2.running.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP) // it may still answer the first query
	want := []quell.Backend{backend("a", a, 0.75), backend("b", b, 0.25)}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // the time limit of a controller's step
	defer cancel()
	if _, err := d.State(ctx); err != nil {
		t.Error(err)
	}
	if err := d.Apply(ctx, want); err != nil {
		t.Error(err)
	}
	if got := l1.weights(); got["a"] != 3*got["b"] {
		t.Errorf("the one that answers has %v", got)
	}
	await(t, "the other to be found hanging", func() (bool, any) {
		_, err := d.State(context.Background())
		return err == nil && d.processes[1].socket.hung, err
	})
	if l1.said.count("does not answer") != 1 {
		t.Errorf("of the other is said %s", l1.said)
	}
	signal(syscall.SIGCONT)
	settle(t, d, want...)
	if got := l2.weights(); got["a"] != 3*got["b"] {
		t.Errorf("the one that answers again has %v", got)
	}
}

// TestADrainBehindOneThatHangs checks that a drain does not count as finished while one of the HAProxies, which may have open requests,
// cannot be asked.
func TestADrainBehindOneThatHangs(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l1, l2 := newLab(t, declared("a", a.address(), "b", b.address())), newLab(t, declared("a", a.address(), "b", b.address()))
	l1.start()
	l2.start()
	var later atomic.Int64
	d := l1.driver(func(o *Options) {
		o.Sockets = append(o.Sockets, l2.socket)
		o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	settle(t, d, backend("a", a, 0.5), backend("b", b, 0.5))
	signal := func(s os.Signal) {
		if err := l2.running.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	open := func() (of [2]int64) {
		states, err := d.State(t.Context())
		if err != nil || len(states) != 2 {
			t.Fatalf("%+v, %v", states, err)
		}
		return [2]int64{states[0].InFlight, states[1].InFlight}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	await(t, "the other to be found hanging", func() (bool, any) { open(); return d.processes[1].socket.hung, nil })
	drain := []quell.Backend{backend("a", a, 1), {ID: "b", Address: b.address(), Draining: true}}
	apply(t, d, drain...)
	if got := open(); got != [2]int64{0, 1} {
		t.Errorf("while one cannot be asked, %v requests are open", got)
	}
	later.Store(int64(d.opts.Drain))
	if got := open(); got != [2]int64{0, 0} {
		t.Errorf("after the time for draining, %v requests are open", got)
	}
	later.Store(0)
	signal(syscall.SIGCONT)
	settle(t, d, drain...)
	if got := open(); got != [2]int64{0, 0} {
		t.Errorf("when both answer, %v requests are open", got)
	}
}

// TestTooFewSlots checks that an instance without a slot waits, that the others' weights are in force, and that a
// freed slot is used.
func TestTooFewSlots(t *testing.T) {
	a, b, x := newInstance(t, 0), newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, "server-template slot 1-2 127.0.0.1:1 disabled")
	l.start()
	d := l.driver(func(o *Options) { o.Slots = "slot" })
	settle(t, d, backend("a", a, 0.5), backend("b", b, 0.5))
	f := l.flow(3, "/")
	for range 3 {
		_, err := step(d, []quell.Backend{backend("a", a, 0.6), backend("b", b, 0.2), backend("x", x, 0.2)})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := l.weights(); got["slot1"] != 3*got["slot2"] || l.said.count("no slot is free for x") != 1 {
		t.Errorf("the weights are %v, and is said:\n%s", got, l.said)
	}
	if states, err := d.State(context.Background()); err != nil || len(states) != 2 {
		t.Errorf("in force are %+v, %v", states, err)
	}
	settle(t, d, backend("b", b, 0.5), backend("x", x, 0.5))
	f.wantNoFailures()
	// The others' weights are in force even if the new instance is the only change.
	settle(t, d, backend("a", a, 1))
}

// TestLostMemory checks that slots are recognised by their addresses, and that no instance is taken out of service.
func TestLostMemory(t *testing.T) {
	a, b := newInstance(t, 2*time.Millisecond), newInstance(t, 2*time.Millisecond)
	l := newLab(t, "server-template slot 1-2 127.0.0.1:1 disabled")
	l.start()
	settle(t, l.driver(func(o *Options) { o.Slots = "slot" }), backend("a", a, 0.5), backend("b", b, 0.5))
	f := l.flow(6, "/")
	d := l.driver(func(o *Options) { o.Slots = "slot" })
	apply(t, d, backend("b", b, 0.75), backend("a", a, 0.25))
	if got := l.weights(); got["slot2"] != 3*got["slot1"] {
		t.Errorf("the weights are %v", got)
	}
	f.wantNoFailures()
}

// TestSlotThatVanished removes a slot from HAProxy's configuration, and checks that its instance gets another slot.
func TestSlotThatVanished(t *testing.T) {
	a := newInstance(t, 0)
	l := newLab(t, "server-template slot 1-2 127.0.0.1:1 disabled")
	l.start()
	d := l.driver(func(o *Options) { o.Slots = "slot" })
	settle(t, d, backend("a", a, 1))
	l.replace("slot 1-2", "slot 2-3")
	l.reload()
	settle(t, d, backend("a", a, 1))
	if got := l.weights(); len(got) != 1 || got["slot2"] == 0 {
		t.Errorf("in service are %v", got)
	}
}

// TestServersThatAreNoSlots checks that servers whose names only look like slots are left unchanged.
func TestServersThatAreNoSlots(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, "server static "+b.address()+"\nserver-template s 1-2 127.0.0.1:1 disabled")
	l.start()
	d := l.driver(func(o *Options) { o.Slots, o.Memory = "s", filepath.Join(l.dir, "memory") })
	const odd = "an id; that / no server can have\n"
	settle(t, d, backend(odd, a, 1))
	if states, err := l.driver(func(o *Options) {
		o.Slots, o.Memory = "s",
			filepath.Join(l.dir, "memory")
	}).State(context.Background()); err != nil || len(states) != 1 || states[0].ID != odd {
		t.Errorf("another driver finds %+v, %v", states, err)
	}
	if s := l.servers()["static"]; s.inMaint() || s.isDraining() {
		t.Errorf("somebody else's server became %+v", s)
	}
}

// TestServerGoneFromOneOfTwo checks that a HAProxy that lacks one server still gets the weights of the other servers.
func TestServerGoneFromOneOfTwo(t *testing.T) {
	a, b, c := newInstance(t, 0), newInstance(t, 0), newInstance(t, 0)
	l1, l2 := newLab(t, declared("a", a.address(), "b", b.address(), "c", c.address())), newLab(t,
		declared("a", a.address(), "b", b.address()))
	l1.start()
	l2.start()
	d := l1.driver(func(o *Options) { o.Sockets = append(o.Sockets, l2.socket) })
	for range 3 {
		if same, err := step(d, []quell.Backend{backend("a", a, 0.6), backend("b", b, 0.2), backend("c", c, 0.2)}); same || err != nil {
			t.Errorf("same %v, %v", same, err)
		}
	}
	if got := l2.weights(); got["a"] != 3*got["b"] {
		t.Errorf("the weights are %v", got)
	}
	if l1.said.count("backend app has no server c") != 1 || l1.said.count("something else") != 0 {
		t.Errorf("said is %s", l1.said)
	}
}

// TestNameThatMoved checks that HAProxy itself resolves a server's name, and that the driver does not set the server back to the name's
// earlier address.
func TestNameThatMoved(t *testing.T) {
	text := strings.Replace(stateText, "3 b 2 s2 ::1 0 8", "3 b 2 s2 10.0.0.9 0 0", 1)
	servers, _, err := parseState(text)
	if err != nil {
		t.Fatal(err)
	}
	at := target{server: "s2", address: "10.0.0.2:18082", named: "s2.internal:18082"}
	if !inForce(&servers[1], &at) {
		t.Errorf("%+v is turned back", servers[1])
	}
	for _, other := range []string{"other.internal:18082", "s2.internal:1", "10.0.0.2:18082"} {
		if at.named = other; inForce(&servers[1], &at) {
			t.Errorf("%s is taken for %+v", other, servers[1])
		}
	}
}

// TestNameThatCannotBeResolved checks that only the instance with this name is delayed.
func TestNameThatCannotBeResolved(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, "")
	l.start()
	d := l.driver(nil)
	apply(t, d, backend("a", a, 0.5), quell.Backend{ID: "nowhere", Address: "127.0.0.1", Weight: 0.25}, backend("b", b, 0.25))
	if got := l.weights(); got["a"] != 2*got["b"] || l.said.count("address of nowhere") != 1 {
		t.Errorf("the weights are %v, said is %s", got, l.said)
	}
}

// TestPartlyRefused checks that a command that HAProxy refuses is reported and does not stop the others; if all are
// refused, that is an error.
func TestPartlyRefused(t *testing.T) {
	a, b, c := newInstance(t, 0), newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, declared("a", a.address(), "b", b.address()))
	l.start()
	d := l.driver(func(o *Options) { o.Server = "no-such-word" })
	want := []quell.Backend{backend("a", a, 0.6), backend("b", b, 0.2), backend("c", c, 0.2)}
	if err := d.Apply(context.Background(), want); err != nil {
		t.Error(err)
	}
	if got := l.weights(); got["a"] != 3*got["b"] || l.said.count("changing everything") != 1 {
		t.Errorf("the weights are %v, said is %s", got, l.said)
	}
	if err := d.Apply(context.Background(), want); err == nil || !strings.Contains(err.Error(), "no-such-word") {
		t.Error(err)
	}
	settle(t, d, want[0], want[1])
}

// TestKilledWhileItIsChanged checks that the next steps complete a change that was interrupted.
func TestKilledWhileItIsChanged(t *testing.T) {
	l := newLab(t, "")
	l.start()
	d := l.driver(func(o *Options) { o.Server = "" })
	plan := func(round int) (backends []quell.Backend) {
		for i := range 100 {
			backends = append(backends, quell.Backend{ID: fmt.Sprintf("i%02d", i), Address: fmt.Sprint("127.0.0.1:", 20000+i),
				Weight: float64(1+(i*7+round)%97) / 97})
		}
		return backends
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for round := 0; ; round++ {
			select {
			case <-stop:
				return
			default:
				_ = d.Apply(context.Background(), plan(round)) // fails while HAProxy is down
			}
		}
	}()
	for range 3 {
		l.kill()
		l.start()
		await(t, "servers to be added", func() (bool, any) { n := len(l.servers()); return n > 50, n })
	}
	close(stop)
	<-ended
	settle(t, d, plan(0)...)
	if got := l.servers(); len(got) != 100 {
		t.Errorf("%d servers", len(got))
	}
}

// TestLongAdviceThenAction checks that the drain of an unused slot lasts from the first Apply, however long the driver only read the state
// before (advise mode).
func TestLongAdviceThenAction(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, "server-template slot 1-2 "+b.address())
	l.start()
	l.ask("set server app/slot1 state maint")
	now := time.Now()
	d := l.driver(func(o *Options) { o.Slots, o.Now = "slot", func() time.Time { return now } })
	f := l.flow(3, "/slow")
	for range 2 {
		if _, err := d.State(context.Background()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
	}
	apply(t, d, backend("i1", a, 1))
	f.wantNoFailures()
}

func TestContract(t *testing.T) {
	for name, c := range map[string]struct{ backend, slots string }{
		"added": {"", ""},
		"slots": {"server-template slot 1-4 127.0.0.1:1 check inter 200ms disabled", "slot"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, declared("others", newInstance(t, 0).address())+"\n"+c.backend)
			l.start()
			open := func() balancer.Driver {
				return l.driver(func(o *Options) { o.Slots, o.Memory = c.slots, filepath.Join(l.dir, "memory.json") })
			}
			balancertest.Contract(t, open, addresses(t), 0)
		})
	}
}

func addresses(t *testing.T) (list []string) {
	for range 3 {
		list = append(list, newInstance(t, 0).address())
	}
	return list
}
