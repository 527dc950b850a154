package builtin

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/internal/need"
)

// loadHeader sends a request, and returns the load report of the response.
func loadHeader(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Header.Get(LoadHeader)
}

func TestLoadReportText(t *testing.T) {
	var l loadReport
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := l.tell(loadBody{.5}, at, time.Minute); err != nil || l.header(at) != "" {
		t.Errorf("before rates are known: %q, %v", l.header(at), err)
	}
	for i := range 30 {
		l.count(200 + 300*(i/27)) // three failures
	}
	at = at.Add(10 * time.Second)
	if err := l.tell(loadBody{.5}, at, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, want := l.header(at), "TEXT application_utilization=0.5,rps_fractional=3,eps=0.3"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := l.header(at.Add(time.Minute)); got != "" {
		t.Errorf("it is told no more: %q", got)
	}
	at = at.Add(time.Second)
	err := l.tell(loadBody{0}, at, time.Minute)
	if got := l.header(at); err != nil || !strings.Contains(got, "application_utilization=0.01,rps_fractional=0") {
		t.Errorf("an idle group: %v, %q", err, got)
	}
	for _, bad := range []float64{-1, 101, math.NaN(), math.Inf(1)} {
		if err := l.tell(loadBody{bad}, at, time.Minute); !errors.As(err, new(*quell.InvalidError)) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// A controller tells the balancer, whose responses tell it on, if they are to.
func TestLoadReports(t *testing.T) {
	a := newInstance(t, "a", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(LoadHeader, "TEXT cpu_utilization=0.9") })
	o := Options{Admin: filepath.Join(t.TempDir(), "admin.sock"), Period: time.Hour, LoadReports: true}
	s := start(t, o)
	applyHealthy(t, s, a.backend(1))
	driver, err := (&Settings{Admin: o.Admin, LoadReports: true}).New(balancer.Service{})
	if err != nil {
		t.Fatal(err)
	}
	informed, ok := driver.(informing)
	if !ok {
		t.Fatalf("%T tells no load", driver)
	}
	inform := func(capacity, use map[string]float64) {
		t.Helper()
		if err := informed.Inform(t.Context(), quell.CPU, capacity, use); err != nil {
			t.Fatal(err)
		}
	}
	inform(nil, map[string]float64{"a": .3})
	if got := loadHeader(t, s.Addr()); got != "" {
		t.Errorf("nothing is told, and a response says %q", got)
	}
	capacity, use := map[string]float64{"a": .8, "b": .4, "c": .5}, map[string]float64{"a": .6, "b": .3}
	inform(capacity, use)
	inform(capacity, use)
	if got := loadHeader(t, s.Addr()); !strings.HasPrefix(got, "TEXT application_utilization=0.75,rps_fractional=") {
		t.Errorf("a response says %q", got)
	}
	off := s.opts
	off.LoadReports = false
	if err := s.Reconfigure(off); err != nil {
		t.Fatal(err)
	}
	if got := loadHeader(t, s.Addr()); got != "TEXT cpu_utilization=0.9" {
		t.Errorf("without load reports a response says %q, want what its instance does", got)
	}
	if plain, _ := (&Settings{Admin: o.Admin}).New(balancer.Service{}); plain.(*Client) == nil {
		t.Error("without load reports nothing is told")
	}
	if err := NewClient(o.Admin).put(t.Context(), "/load", loadBody{-1}); err == nil || !strings.Contains(err.Error(), "utilization") {
		t.Errorf("a negative utilisation: %v", err)
	}
}

// TestEnvoyReadsLoadReports puts a real Envoy in front of two balancers, one of whose groups is busier.
func TestEnvoyReadsLoadReports(t *testing.T) {
	program := need.Envoy(t)
	var servers []*Server
	var instances []*instance
	var endpoints []string
	for _, id := range []string{"free", "busy"} {
		in := newInstance(t, id, nil)
		s := start(t, Options{Period: time.Hour, LoadReports: true, Health: checkedOnce()})
		applyHealthy(t, s, in.backend(1))
		servers, instances = append(servers, s), append(instances, in)
		host, port, _ := net.SplitHostPort(s.Addr())
		endpoints = append(endpoints, fmt.Sprintf("{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}", host, port))
	}
	traffic := need.FreeAddress(t)
	_, port, _ := net.SplitHostPort(traffic)
	need.RunEnvoy(t, program, strings.NewReplacer("PORT", port, "ENDPOINTS", strings.Join(endpoints, ", ")).Replace(envoyByHeader))
	const tries, part = 40, 0.7
	for deadline := time.Now().Add(time.Minute); ; {
		before := [2]int64{instances[0].served.Load(), instances[1].served.Load()}
		for range tries {
			if resp, err := http.Get("http://" + traffic); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
		free, busy := instances[0].served.Load()-before[0], instances[1].served.Load()-before[1]
		if free+busy > 0 && float64(free) > part*float64(free+busy) {
			return
		}
		for i, use := range []float64{.2, .8} {
			if err := servers[i].tellLoad(loadBody{use}); err != nil {
				t.Fatal(err)
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the group with a use of 0.2 got %d requests, that with 0.8 %d", free, busy)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

const envoyByHeader = `static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: PORT}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: groups}}]}]
  clusters:
  - name: groups
    connect_timeout: 1s
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.client_side_weighted_round_robin
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin
            blackout_period: 0.1s
            weight_update_period: 0.1s
    load_assignment: {cluster_name: groups, endpoints: [{lb_endpoints: [ENDPOINTS]}]}
`
