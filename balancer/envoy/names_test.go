package envoy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/envoylog"
	"github.com/quellhq/quell/balancer/health"
)

// directory stands for DNS.
type directory map[string][]string

func (d directory) resolve(_ context.Context, name string) (list []netip.AddrPort, err error) {
	for _, a := range d[name] {
		list = append(list, netip.MustParseAddrPort(a))
	}
	if len(list) == 0 {
		err = errors.New("there is no such name")
	}
	return list, err
}

// at returns the addresses that Envoys get.
func at(d *Driver) (list []string) {
	for _, e := range d.cache.GetResources()["web"].(*endpoint.ClusterLoadAssignment).Endpoints[0].LbEndpoints {
		list = append(list, envoylog.Plain(e.GetEndpoint().GetAddress()))
	}
	return list
}

// A name is resolved again without a new plan. An instance moves only if its address is none of its name's any more.
func TestANameStandsForAnotherAddress(t *testing.T) {
	o := Options{Clusters: []string{"web"}, Memory: filepath.Join(t.TempDir(), "envoy.json")}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	names := directory{"a:80": {"10.0.0.2:80", "10.0.0.1:80"}, "b:80": {"10.0.0.9:80"}}
	d.resolve = names.resolve
	list := []quell.Backend{{ID: "a", Address: "a:80", Weight: 0.5}, {ID: "b", Address: "b:80", Weight: 0.5}}
	if err := d.Apply(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, c := range []struct {
		why   string
		names []string
		after time.Duration
		want  string
	}{
		{"the least of two", []string{"10.0.0.2:80", "10.0.0.1:80"}, 0, "10.0.0.1:80"},
		{"another order, and one that is less", []string{"10.0.0.0:80", "10.0.0.2:80", "10.0.0.1:80"}, lookEvery, "10.0.0.1:80"},
		{"another address, soon after", []string{"10.0.0.7:80"}, time.Second, "10.0.0.1:80"},
		{"later", []string{"10.0.0.7:80"}, lookEvery, "10.0.0.7:80"},
		{"no address", nil, lookEvery, "10.0.0.7:80"},
	} {
		names["a:80"], now = c.names, now.Add(c.after)
		if err := d.renew(t.Context(), now); err != nil || !slices.Equal(at(d), []string{c.want, "10.0.0.9:80"}) {
			t.Errorf("%s: %v, %v", c.why, at(d), err)
		}
	}
	if next, err := New(o); err != nil || !slices.Equal(at(next), at(d)) {
		t.Errorf("the next controller: %v", err)
	}
	names["a:80"] = []string{"10.0.0.3:80", "10.0.0.7:80"}
	if err := d.Apply(t.Context(), list); err != nil || at(d)[0] != "10.0.0.7:80" {
		t.Errorf("a plan moved it: %v, %v", at(d), err)
	}
}

// Names are resolved at the same time, and nobody waits for them who only reads the state.
func TestNamesAreResolvedWithoutTheLock(t *testing.T) {
	d, err := New(Options{Clusters: []string{"web"}})
	if err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	both.Add(2)
	read := make(chan struct{})
	d.resolve = func(context.Context, string) ([]netip.AddrPort, error) {
		both.Done()
		both.Wait()
		<-read
		return []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80")}, nil
	}
	done := make(chan error)
	go func() {
		done <- d.Apply(context.Background(), []quell.Backend{{ID: "a", Address: "a:80", Weight: 0.5}, {ID: "b", Address: "b:80", Weight: 0.5}})
	}()
	both.Wait()
	if states, err := d.State(t.Context()); err != nil || len(states) > 0 {
		t.Errorf("%+v, %v", states, err)
	}
	close(read)
	if err := <-done; err != nil || len(at(d)) != 2 {
		t.Error(err)
	}
}

// A plan that waits for a slow name puts no instance back to the address that it has left meanwhile.
func TestAPlanWaitsForASlowName(t *testing.T) {
	d, err := New(Options{Clusters: []string{"web"}})
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]chan string{"a:80": make(chan string), "b:80": make(chan string)}
	d.resolve = func(_ context.Context, name string) ([]netip.AddrPort, error) {
		return []netip.AddrPort{netip.MustParseAddrPort(<-answers[name])}, nil
	}
	apply, done := func() error {
		return d.Apply(t.Context(), []quell.Backend{{ID: "a", Address: "a:80", Weight: 0.5}, {ID: "b", Address: "b:80", Weight: 0.5}})
	}, make(chan error)
	begin := func(do func() error) { go func() { done <- do() }() }
	end := func(slow string) {
		t.Helper()
		answers["b:80"] <- slow
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	begin(apply)
	answers["a:80"] <- "10.0.0.1:80"
	end("10.0.0.9:80")

	begin(apply)
	answers["a:80"] <- "10.0.0.1:80" // and b is slow
	later, renewed := time.Now().Add(lookEvery), make(chan error)
	d.entries[1].Address = "10.0.0.9:80" // so that the renewal does not wait for it
	go func() { renewed <- d.renew(t.Context(), later) }()
	answers["a:80"] <- "10.0.0.2:80"
	if err := <-renewed; err != nil || at(d)[0] != "10.0.0.2:80" {
		t.Errorf("the renewal: %v, %v", at(d), err)
	}
	end("10.0.0.9:80")
	if got := at(d); !slices.Equal(got, []string{"10.0.0.2:80", "10.0.0.9:80"}) {
		t.Errorf("after the plan: %v", got)
	}
}

// The health of an instance is checked where Envoys find it, and its requests name the host that was configured.
func TestChecksFollowTheAddress(t *testing.T) {
	asked := make(chan string, 100)
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Host }))
	defer web.Close()
	d, err := New(Options{Clusters: []string{"web"}})
	if err != nil {
		t.Fatal(err)
	}
	names := directory{"a.invalid:80": {"127.0.0.1:1"}}
	d.resolve = names.resolve
	ctx, cancel := context.WithCancel(t.Context())
	d.watch(ctx, health.Options{Path: "/", Interval: time.Hour, Timeout: time.Minute, Fall: 1, Rise: 1})
	defer d.checks.Wait()
	defer cancel()
	if err := d.Apply(t.Context(), []quell.Backend{{ID: "a", Address: "a.invalid:80", Weight: 1}}); err != nil {
		t.Fatal(err)
	}
	names["a.invalid:80"] = []string{web.Listener.Addr().String()}
	if err := d.renew(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if host := <-asked; host != "a.invalid:80" {
		t.Errorf("asked for %s", host)
	}
}
