package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/balancertest"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/route"
)

func TestDriver(t *testing.T) {
	path := socketPath(t)
	s := start(t, Options{Name: "lb1", Service: "video", Admin: path, Scheduling: quell.RoundRobin})
	in := newInstance(t, "i1", nil)
	c, ctx := NewClient(path), t.Context()
	want := quell.Backend{ID: "i1", Address: in.address, Probe: "127.0.0.1:9", Weight: 0.25}
	if err := c.Apply(ctx, []quell.Backend{want}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a healthy instance", func() bool { return stateOf(t, s, "i1").Healthy })
	states, err := c.State(ctx)
	if err != nil || !reflect.DeepEqual(states, []quell.BackendState{{Backend: want, Healthy: true}}) {
		t.Errorf("state %+v, %v", states, err)
	}
	if err := c.SetScheduling(ctx, quell.Random2); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.pool.picker.(*route.Random2); !ok {
		t.Errorf("the picker is %T", s.pool.picker)
	}
	status, err := c.Status(ctx)
	if err != nil || status.Name != "lb1" || status.Service != "video" || status.Scheduling != quell.Random2 || status.Started.IsZero() {
		t.Errorf("status %+v, %v", status, err)
	}
	if err := c.SetScheduling(ctx, "fastest"); err == nil || !strings.Contains(err.Error(), "known: roundrobin") {
		t.Errorf("an unknown scheduling: %v", err)
	}
	if err := c.Apply(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if states, err := c.State(ctx); err != nil || len(states) != 0 {
		t.Errorf("after applying nothing: %+v, %v", states, err)
	}
}

func TestBadListChangesNothing(t *testing.T) {
	path := socketPath(t)
	s := start(t, Options{Admin: path})
	in := newInstance(t, "i1", nil)
	applyHealthy(t, s, in.backend(0.5))
	before := s.Backends()
	remembered, err := os.ReadFile(path + ".backends.json")
	if err != nil {
		t.Fatal(err)
	}
	good := `{"id":"i1","address":"127.0.0.1:1","weight":1}`
	for _, tt := range []struct{ why, body, want string }{
		{"not JSON", `[`, "ends too early"},
		{"null", `null`, "not a list"},
		{"an object", `{}`, "object"},
		{"an unknown field", `[{"id":"a","address":"h:1","wieght":1}]`, "wieght"},
		{"the same id twice", `[` + good + `,` + good + `]`, `backends[1].id: "i1" is given twice`},
		{"no id", `[` + good + `,{"address":"h:1","weight":1}]`, "backends[1].id: missing"},
		{"an id that splits headers", `[{"id":"a\r\nb","address":"h:1","weight":1}]`, "backends[0].id"},
		{"a negative weight", `[` + good + `,{"id":"b","address":"h:1","weight":-1}]`, "backends[1].weight"},
		{"a huge weight", `[{"id":"b","address":"h:1","weight":1e300}]`, "backends[0].weight"},
		{"no port", `[` + good + `,{"id":"b","address":"host","weight":1}]`, `"host" is not host:port`},
		{"a port that cannot be", `[{"id":"b","address":"h:99999","weight":1}]`, "99999"},
		{"no host", `[{"id":"b","address":":80","weight":1}]`, "no usable host"},
		{"something after the end", `[] []`, "more after the end"},
	} {
		req := httptest.NewRequest(http.MethodPut, "/backends", strings.NewReader(tt.body))
		w := httptest.NewRecorder()
		s.adminHandler().ServeHTTP(w, req)
		var refused adminError
		if err := json.Unmarshal(w.Body.Bytes(), &refused); err != nil || w.Code != http.StatusBadRequest ||
			!strings.Contains(refused.Error, tt.want) {
			t.Errorf("%s: %d %s, want 400 with %q", tt.why, w.Code, w.Body, tt.want)
		}
	}
	bad := []quell.Backend{{ID: "a", Address: "h:1", Weight: math.NaN()}, {ID: "b", Address: "h:1", Weight: math.Inf(1)}}
	var invalid *quell.InvalidError
	if err := NewClient(path).Apply(t.Context(), bad); !errors.As(err, &invalid) || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("weights that are no numbers: %v, want both named", err)
	}
	if err := s.Apply(t.Context(), bad); !errors.As(err, &invalid) {
		t.Errorf("weights that are no numbers: %v", err)
	}
	if after := s.Backends(); !reflect.DeepEqual(before, after) {
		t.Errorf("the backends were %+v and are %+v", before, after)
	}
	if now, err := os.ReadFile(path + ".backends.json"); err != nil || !bytes.Equal(now, remembered) {
		t.Errorf("the file has changed: %s, %v", now, err)
	}
}

func TestOversizedListIsRefused(t *testing.T) {
	s := start(t, Options{})
	req := httptest.NewRequest(http.MethodPut, "/backends", io.LimitReader(endless{}, maxAdminBody+1))
	w := httptest.NewRecorder()
	s.adminHandler().ServeHTTP(w, req)
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", w.Code)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

func TestClientSaysWhatIsMissing(t *testing.T) {
	path := socketPath(t)
	if _, err := NewClient(path).State(t.Context()); err == nil || !strings.Contains(err.Error(), path+" does not exist") ||
		strings.Count(err.Error(), path) != 1 {
		t.Errorf("without a socket: %v", err)
	}
	leaveDeadSocket(t, path)
	if err := NewClient(path).Apply(t.Context(), nil); err == nil ||
		!strings.Contains(err.Error(), "nobody answers on balancer socket "+path) || strings.Count(err.Error(), path) != 1 {
		t.Errorf("with a dead socket: %v", err)
	}
}

// leaveDeadSocket leaves a socket file as a killed process does.
func leaveDeadSocket(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
}

func TestAdminSocket(t *testing.T) {
	path := socketPath(t)
	leaveDeadSocket(t, path)
	s := start(t, Options{Admin: path})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v; want mode 0600", info, err)
	}
	second, err := New(Options{Listen: "127.0.0.1:0", Admin: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "already running") {
		t.Errorf("a second balancer on the same socket: %v", err)
	}
	if _, err := NewClient(path).State(t.Context()); err != nil {
		t.Errorf("the first balancer after the second's attempt: %v", err)
	}
	stop(t, s)
	entries, err := os.ReadDir(path[:strings.LastIndex(path, "/")])
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestAdminSocketThatCannotBe(t *testing.T) {
	path := socketPath(t)
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for admin, want := range map[string]string{path: "another kind", "/tmp/" + strings.Repeat("x", 200): "longer than"} {
		s, err := New(Options{Listen: "127.0.0.1:0", Admin: admin})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if data, _ := os.ReadFile(path); string(data) != "precious" {
		t.Error("the file is gone")
	}
}

func TestRestartKeepsTheBackends(t *testing.T) {
	path := socketPath(t)
	o := Options{Admin: path, Scheduling: quell.RoundRobin}
	a, b := newInstance(t, "a", nil), newInstance(t, "b", nil)
	s := start(t, o)
	applyHealthy(t, s, a.backend(0.75), b.backend(0.25))
	stop(t, s)
	s = start(t, o)
	got := map[string]int{}
	waitFor(t, "the first checks", func() bool { return stateOf(t, s, "a").Healthy && stateOf(t, s, "b").Healthy })
	for range 8 {
		got[get(t, client(t), s).instance]++
	}
	if got["a"] != 6 || got["b"] != 2 {
		t.Errorf("after a restart: %v of 8, want 6 and 2", got)
	}
}

func TestUnreadableMemoryCostsOnlyItself(t *testing.T) {
	for why, content := range map[string]string{
		"truncated": `[{"id":"a"`, "breaks a rule": `[{"id":"a","address":"nowhere","weight":1}]`, "empty": "",
	} {
		path := socketPath(t)
		if err := os.WriteFile(path+".backends.json", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		s := start(t, Options{Admin: path})
		if got := s.Backends(); len(got) != 0 {
			t.Errorf("%s: %+v", why, got)
		}
		in := newInstance(t, "i1", nil)
		applyHealthy(t, s, in.backend(1))
		stop(t, s)
		if got, err := s.memory.load(); err != nil || len(got) != 1 || got[0].Backend != in.backend(1) {
			t.Errorf("%s: remembered %+v, %v", why, got, err)
		}
	}
}

func FuzzBackends(f *testing.F) {
	f.Add([]byte(`[{"id":"i1","address":"127.0.0.1:80","weight":0.5}]`))
	f.Add([]byte(`[{"id":"","address":"[::1]:0","weight":-1,"draining":true}]`))
	o := Options{Listen: "127.0.0.1:0"}.withDefaults()
	f.Fuzz(func(t *testing.T, data []byte) {
		var backends []quell.Backend
		if strictjson.Decode(data, &backends) != nil || checkBackends(backends) != nil {
			return
		}
		for _, b := range backends { // if a list passes the check, it must be usable
			be := newBackend(b, nil, &o, &places{makeRoom: func() {}})
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service/", nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := be.send(req, &exchange{}); !errors.Is(err, context.Canceled) {
				t.Errorf("%+v: %v", b, err)
			}
		}
	})
}

func TestContract(t *testing.T) {
	path := socketPath(t)
	start(t, Options{Admin: path})
	var addresses []string
	for _, id := range []string{"a", "b", "c"} {
		addresses = append(addresses, newInstance(t, id, nil).backend(1).Address)
	}
	balancertest.Contract(t, func() balancer.Driver {
		c := NewClient(path)
		if err := c.Own(t.Context(), quell.Owner{ID: "one", Name: "one"}); err != nil {
			t.Fatal(err)
		}
		return c
	}, addresses, 1e-9)
}
