package reports

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/envoylog"
	"github.com/quellhq/quell/internal/need"
)

const patience = 30 * time.Second

// envoyFor starts an Envoy with the lines of examples/envoy that docs/balancers/reports.md names, and two instances.
func envoyFor(t *testing.T, quell string, instances ...string) (traffic string) {
	t.Helper()
	program := need.Envoy(t)
	example, err := os.ReadFile(filepath.Join("..", "..", "examples", "envoy", "envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(example), "  - name: shop-or-before")
	_, controller, ended := strings.Cut(after, "  - name: quell ")
	if !found || !ended {
		t.Fatal("the example has other clusters")
	}
	var endpoints []string
	for _, at := range instances {
		endpoints = append(endpoints, fmt.Sprintf("{endpoint: {address: %s}}", socketOf(at)))
	}
	traffic = need.FreeAddress(t)
	text := before + "  - name: shop\n    connect_timeout: 1s\n    load_assignment: {cluster_name: shop, endpoints: [{lb_endpoints: [" +
		strings.Join(endpoints, ", ") + "]}]}\n  - name: quell " + controller
	text = strings.NewReplacer("{socket_address: {address: 127.0.0.1, port_value: 8080}}", socketOf(traffic), "cluster: shop-or-before",
		"cluster: shop", "{socket_address: {address: 127.0.0.1, port_value: 18000}}", socketOf(quell), "interval: 0.5s",
		"interval: 0.1s").Replace(text)
	need.RunEnvoy(t, program, text)
	return traffic
}

func socketOf(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("{socket_address: {address: %q, port_value: %s}}", host, port)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", patience, what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestEnvoysLog measures response times and requests in progress by the log of a real Envoy.
func TestEnvoysLog(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	open := func(name string) (address string) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hold" {
				<-hold
			}
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	one, two := open("one"), open("two")
	_, port, _ := net.SplitHostPort(two)
	s := &Settings{Log: envoylog.Settings{Listen: need.FreeAddress(t), Clusters: []string{"shop"}}}
	a := &agents{told: map[string]quell.LoadReport{}, silent: map[string]bool{}}
	d := driverOf(t, a, "")
	got := make(chan []quell.Reading, 10000)
	in := balancer.Service{Name: "shop", Balancer: "envoy", Period: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	meter, err := s.Measure(d, in, func(list []quell.Reading) { got <- list })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(meter.Stop)
	group := []quell.Backend{{ID: "i1", Address: one, Weight: .5}, {ID: "i2", Address: "localhost:" + port, Weight: .5}}
	if err := d.Apply(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is said that no Envoy is there", func() bool {
		return meter.Err() != nil && strings.Contains(meter.Err().Error(), "no Envoy sends its load reports to "+s.Log.Listen)
	})
	traffic := envoyFor(t, s.Log.Listen, one, two)
	get := func(path string) bool {
		answer, err := http.Get("http://" + traffic + path)
		if err != nil {
			return false
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}
	eventually(t, "Envoy answers", func() bool { return get("/") })
	measured := map[string]bool{}
	eventually(t, "response times of both are measured", func() bool {
		get("/")
		for len(got) > 0 {
			for _, r := range <-got {
				measured[r.Instance] = measured[r.Instance] || r.Observation.LatencyMS != nil && r.Observation.LatencyMS.N > 0
			}
		}
		return measured["i1"] && measured["i2"]
	})
	eventually(t, "all is well", func() bool { return meter.Err() == nil })

	held := make(chan bool, 2)
	for range 2 { // one of them at each instance
		go func() { held <- get("/hold") }()
	}
	eventually(t, "both have a request in progress", func() bool {
		return stateOf(t, d, "i1").InFlight == 1 && stateOf(t, d, "i2").InFlight == 1
	})
	group[0].Weight, group[1].Weight, group[1].Draining = 1, 0, true
	if err := d.Apply(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	close(hold)
	for range 2 {
		if !<-held {
			t.Error("a request failed")
		}
	}
	eventually(t, "the drain has ended, long before its time", func() bool { return stateOf(t, d, "i2").InFlight == 0 })
}

// Without a log nothing is measured; with one that cannot be listened for, it is said.
func TestNoLog(t *testing.T) {
	d := driverOf(t, &agents{}, "")
	s := &Settings{}
	if meter, err := s.Measure(d, balancer.Service{}, nil); meter != nil || err != nil {
		t.Errorf("%v, %v", meter, err)
	}
	if notes := s.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "Response times are measured only if") || s.Manages() != nil {
		t.Errorf("%q, %v", notes, s.Manages())
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s.Log = envoylog.Settings{Listen: taken.Addr().String(), Clusters: []string{"shop"}}
	if _, err := s.Measure(d, balancer.Service{}, nil); err == nil || !strings.Contains(err.Error(), "listening for Envoy") {
		t.Errorf("an address in use: %v", err)
	}
	if notes := s.Notes(); strings.Contains(notes[0], "measured only if") || len(s.Manages()) != 1 {
		t.Errorf("%q, %v", notes, s.Manages())
	}
}
