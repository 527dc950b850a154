package haproxy

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quellhq/quell"
)

// TestWhyAServerIsOut reads rows of `show servers state` and `show stat` of a real HAProxy 2.6.
func TestWhyAServerIsOut(t *testing.T) {
	head := strings.Join(strings.Split(stateText, "\n")[:2], "\n") + "\n"
	for _, c := range []struct {
		why, state, tracked string // op state, admin state, weight
		want                string
		held                bool
	}{
		{"in service", "2 0 1", "", "", false},
		{"down by its check is a failure and no hold", "0 0 1", "", "", false},
		{"maintenance by command", "0 1 1", "", "", true},
		{"drain by command", "2 8 1", "", "", true},
		{"inherited maintenance", "0 2 1", "infra/web", "it tracks infra/web, which is in maintenance", true},
		{"inherited drain", "3 16 1", "infra/web", "it tracks infra/web, which drains", true},
		{"inherited, of a version that does not name the other", "0 2 1", "", "it tracks another server, which is in maintenance", true},
		{"no address", "0 32 1", "", "HAProxy has no address for its name web.internal", true},
		{"no address after a name given at run time", "0 64 1", "", "HAProxy has no address for its name web.internal", true},
		{"soft stop", "3 0 1", "", "it took itself out: its health check is answered with 404", true},
		{"soft stop of the tracked one", "3 0 1", "infra/web",
			"it tracks infra/web, which took itself out: its health check is answered with 404", true},
		{"weight 0", "2 0 0", "", zeroWeight, true},
		{"maintenance by command of a tracking one", "0 3 1", "infra/web", "", true},
		{"starting slowly", "1 0 1", "", "", false},
	} {
		address := "10.0.0.1"
		if strings.Contains(c.why, "no address") {
			address = "-"
		}
		row := "3 b 1 s1 " + address + " " + c.state + " 1 1 6 3 4 6 0 0 0 web.internal 80 - 0 0 - - 0"
		servers, _, err := parseState(head + row)
		if err == nil {
			_, err = parseStat("# svname,scur,stot,tracked\ns1,0,0,"+c.tracked+"\n", servers)
		}
		if err != nil {
			t.Fatalf("%s: %v", c.why, err)
		}
		v := &view{servers: map[string]*server{"s1": &servers[0]}, order: []string{"s1"}}
		targets := []target{{server: "s1", address: "10.0.0.1:80", named: "web.internal:80", weight: 5, known: true,
			traces: []*trace{{Process: "/"}}}}
		notice(v, targets)
		if got := targets[0].held(v); got != c.held {
			t.Errorf("%s: held is %t", c.why, got)
		} else if got && targets[0].why(v) != c.want {
			t.Errorf("%s: %q, want %q", c.why, targets[0].why(v), c.want)
		}
		if todo, _ := commands(v, targets, &Options{Backend: "b"}); c.held && len(todo) > 0 {
			t.Errorf("%s: %v is sent", c.why, todo)
		}
	}
}

// TestOutsideHolds runs a real HAProxy in which servers are out of service although nobody took them out there: by a tracked server in
// maintenance or drained, by a name without address, and by their own health check. Quell shows why, sends no command, and gives them
// their weights again when that ends.
func TestOutsideHolds(t *testing.T) {
	var code atomic.Int64
	code.Store(200)
	check := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(code.Load())) }))
	defer check.Close()
	_, port, _ := net.SplitHostPort(check.Listener.Addr().String())
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, "")
	l.configure("option httpchk GET /\nhttp-check disable-on-404\nserver a "+a.address()+" check inter 50ms\n"+
		"server b "+b.address()+" check port "+port+" inter 50ms fall 1 rise 1\n"+
		"server c "+b.address()+" track infra/other\n"+
		"server d none.invalid:80 init-addr none check resolvers nobody\n"+
		"backend infra\noption httpchk GET /\nhttp-check disable-on-404\nserver other "+a.address()+" check inter 50ms fall 1 rise 1\n"+
		"resolvers nobody\nnameserver n 127.0.0.1:9", "")
	l.start()
	d := l.driver(func(o *Options) { o.Memory = filepath.Join(l.dir, "memory.json") })
	const noName = "HAProxy has no address for its name none.invalid"
	want := []quell.Backend{backend("a", a, 0.25), backend("b", b, 0.25), {ID: "c", Address: b.address(), Weight: 0.25},
		{ID: "d", Address: "none.invalid:80", Weight: 0.25}}
	holds := func(is map[string]string) func() (bool, any) {
		return func() (bool, any) {
			states, err := d.State(context.Background())
			got := map[string]string{}
			for _, s := range states {
				if s.ByHand != nil {
					got[s.ID] = s.ByHand.Why
				}
			}
			same := err == nil && len(got) == len(is)
			for id, why := range is {
				same = same && got[id] == why
			}
			return same, got
		}
	}
	settle(t, d, want...)
	await(t, "a name without address", holds(map[string]string{"d": noName}))
	before := l.weights()
	for why, act := range map[string][3]string{
		"it tracks infra/other, which is in maintenance": {"set server infra/other state maint", "set server infra/other state ready", "c"},
		"it tracks infra/other, which drains":            {"set server infra/other state drain", "set server infra/other state ready", "c"},
		zeroWeight:                                       {"set server app/c weight 0", "set server app/c weight 256", "c"},
	} {
		l.ask(act[0])
		await(t, why, holds(map[string]string{"d": noName, act[2]: why}))
		for range 3 {
			if same, err := step(d, want); !same || err != nil {
				t.Fatalf("%s: %v, %v", why, same, err)
			}
		}
		err := d.Release(context.Background(), "c")
		if released := why == zeroWeight; released != (err == nil) {
			t.Errorf("%s: an operator's release says %v", why, err)
		}
		l.ask(act[1])
		await(t, "its end", holds(map[string]string{"d": noName}))
		settle(t, d, want...)
	}
	code.Store(404)
	await(t, "a soft stop", holds(map[string]string{"d": noName, "b": "it took itself out: its health check is answered with 404"}))
	if same, err := step(d, want); !same || err != nil {
		t.Errorf("a soft stop: %v, %v", same, err)
	}
	code.Store(200)
	await(t, "the end of the soft stop", holds(map[string]string{"d": noName}))
	if after := l.weights(); len(after) != 3 || after["a"] != after["b"] || len(before) != 3 {
		t.Errorf("weights %v became %v", before, after)
	}
}

// TestZeroByHand checks that a weight of 0 that a person set is a hold in every fleet, also after restarts of either program, and that
// zeros of Quell's own are none.
func TestZeroByHand(t *testing.T) {
	for _, fleet := range fleets {
		t.Run(fleet, func(t *testing.T) {
			t.Parallel()
			h := newDrained(t, fleet)
			zero := func(when string) {
				t.Helper()
				if held := h.byHand(); !slices.Equal(held, []string{"b"}) {
					t.Fatalf("%s: held are %v, want b", when, held)
				}
				if s := h.servers()[h.names["b"]]; s.weight != 0 || s.forced() != "" {
					t.Fatalf("%s: b has weight %d and state %q", when, s.weight, s.forced())
				}
			}
			h.set("b", "weight 0")
			zero("at once")
			h.again()
			zero("with another controller")
			h.reload()
			zero("after a reload")
			h.restart()
			zero("after a restart")
			h.set("b", "weight 1")
			h.wantNobodyOut("a weight again")

			own := []quell.Backend{backend("a", h.a, 1), backend("b", h.b, 0)}
			settle(t, h.d, own...)
			h.again()
			settle(t, h.d, own...)
			h.wantNobodyOut("Quell's own zero")
			if s := h.servers()[h.names["b"]]; s.weight == 0 {
				t.Error("b has no weight")
			}
			h.set("b", "weight 0")
			zero("again")
			if err := h.d.Release(context.Background(), "b"); err != nil {
				t.Fatal(err)
			}
			h.wantNobodyOut("released")
		})
	}
}

// TestZeroBeforeQuell checks that a server that has the weight 0 when Quell comes stays without requests.
func TestZeroBeforeQuell(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, "")
	l.configure("server a "+a.address()+" weight 10\nserver b "+b.address()+" weight 0", "")
	l.start()
	d := l.driver(nil)
	for range 3 {
		states, err := d.State(t.Context())
		if err != nil || len(states) != 2 || states[0].ByHand != nil || states[1].ByHand == nil || states[1].ByHand.Why != zeroWeight {
			t.Fatalf("%+v, %v", states, err)
		}
		apply(t, d, backend("a", a, 1), backend("b", b, 0))
	}
	if err := d.Release(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	settle(t, d, backend("a", a, 0.5), backend("b", b, 0.5))
	if got := l.weights(); got["a"] != got["b"] {
		t.Errorf("released: %v", got)
	}
}

// TestTheSameAddressUnderAnotherName checks that an instance is the declared server with its address, before and after the first Apply, and
// that Quell adds no second server.
func TestTheSameAddressUnderAnotherName(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, "")
	l.configure("server app01 "+a.address()+" weight 20\nserver app02 "+b.address()+" weight 60\n"+
		"server spare "+a.address()+" backup", "")
	l.start()
	members := []quell.Member{{ID: "web-1", Address: a.address()}, {ID: "web-2", Address: b.address()}}
	d := l.driver(func(o *Options) { o.Members = members })
	states, err := d.State(t.Context())
	if err != nil || len(states) != 3 || states[1].ID != "web-1" || states[2].ID != "web-2" || *states[2].Base <= *states[1].Base ||
		states[0].Weight != 0 {
		t.Fatalf("before anything was applied: %+v, %v", states, err)
	}
	if id, ok := d.Instance("app02"); id != "web-2" || !ok {
		t.Errorf("app02 is %s", id)
	}
	settle(t, d, backend("web-1", a, 0.5), backend("web-2", b, 0.5))
	if got := l.servers(); len(got) != 3 || got["app01"].weight != got["app02"].weight {
		t.Errorf("servers are %+v", got)
	}
	if id, ok := d.Instance("app01"); id != "web-1" || !ok {
		t.Errorf("app01 is %s", id)
	}
	if n := l.said.count("a server has no `check`"); n != 3 {
		t.Errorf("servers without check are told %d times", n)
	}
}

// TestSeveralServersOfOneAddress checks that Quell does not guess which of several servers an instance is.
func TestSeveralServersOfOneAddress(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, declared("app01", a.address(), "app02", a.address(), "web-2", b.address()))
	l.start()
	d := l.driver(func(o *Options) { o.Members = []quell.Member{{ID: "web-1", Address: a.address()}} })
	for range 2 {
		apply(t, d, backend("web-1", a, 0.5), backend("web-2", b, 0.5))
	}
	const want = "servers app01, app02 of backend app all have the address"
	if l.said.count(want) != 1 || len(l.servers()) != 3 {
		t.Errorf("the log is %s, servers are %v", l.said, l.servers())
	}
	if err := d.Apply(t.Context(), []quell.Backend{backend("web-1", a, 1)}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("alone: %v", err)
	}
	settle(t, d, backend("app01", a, 0.3), backend("app02", a, 0.3), backend("web-2", b, 0.4)) // by name nothing is doubtful
}

// TestAddedServersAreExplained checks that it is said what an added server lacks.
func TestAddedServersAreExplained(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	for _, c := range []struct{ backend, parameters, want string }{
		{"default-server ssl verify none check\nserver a " + a.address(), "check inter 1s", "added without TLS beside servers that have it"},
		{"default-server ssl verify none check\nserver a " + a.address(), "check ssl verify none", "level=INFO msg=\"a server is added"},
		{"server a " + a.address(), "check", "level=INFO msg=\"a server is added"},
	} {
		l := newLab(t, c.backend)
		l.start()
		d := l.driver(func(o *Options) { o.Server = c.parameters })
		for range 2 {
			apply(t, d, backend("a", a, 0.5), backend("new", b, 0.5))
		}
		if l.said.count(c.want) != 1 {
			t.Errorf("%s: the log is %s", c.parameters, l.said)
		}
	}
}
