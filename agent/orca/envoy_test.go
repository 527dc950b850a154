package orca

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/internal/need"
)

const (
	patience = time.Minute
	machines = 3
)

// machine is a web server and its agent's reports.
type machine struct {
	*Reports
	served atomic.Int64
	stop   func() // of the reports
	at     string
}

// front is a real Envoy in front of machines that have addresses of their own, and whose reports have the same port, as in production.
type front struct {
	t        *testing.T
	traffic  string
	machines []*machine
	pass     atomic.Bool // whether the next failure is expected
	began    time.Time
}

func newFront(t *testing.T) *front {
	program := need.Envoy(t)
	f := &front{t: t, began: time.Now(), traffic: need.FreeAddress(t)}
	_, port, _ := net.SplitHostPort(need.FreeAddress(t))
	var endpoints strings.Builder
	for i := range machines {
		ip := fmt.Sprintf("127.0.0.%d", 11+i)
		m := &machine{Reports: New(time.Now, slog.New(slog.DiscardHandler)), at: ip + ":" + port}
		m.Serve([]string{"shop"})
		web := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { m.served.Add(1) }))
		listener, err := net.Listen("tcp", ip+":0")
		if err != nil {
			t.Fatal(err)
		}
		web.Listener.Close()
		web.Listener = listener
		web.Start()
		t.Cleanup(web.Close)
		m.listen(t)
		t.Cleanup(func() { m.stop() })
		f.machines = append(f.machines, m)
		fmt.Fprintf(&endpoints, "        - endpoint: {address: %s}\n", socketOf(listener.Addr().String()))
	}
	example, err := os.ReadFile(filepath.Join("..", "..", "examples", "reports", "envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(example), "        - endpoint:")
	text := strings.NewReplacer("{socket_address: {address: 127.0.0.1, port_value: 8080}}", socketOf(f.traffic), "9469", port,
		"blackout_period: 1s", "blackout_period: 0.1s", "weight_expiration_period: 30s", "weight_expiration_period: 2s").Replace(before)
	need.RunEnvoy(t, program, text+endpoints.String())
	return f
}

func (m *machine) listen(t *testing.T) {
	t.Helper()
	var err error
	if m.stop, err = m.Listen(m.at, certfile.Files{}); err != nil {
		t.Fatal(err)
	}
}

func socketOf(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("{socket_address: {address: %q, port_value: %s}}", host, port)
}

// tell says how the requests are to be shared.
func (f *front) tell(validS float64, shares ...float64) {
	for i, m := range f.machines {
		m.Observe(map[quell.Resource]float64{quell.CPU: .1 * float64(i+1)})
		m.Tell("shop", quell.LoadReport{Share: shares[i], Resource: quell.CPU, Capacity: new(.9), ValidS: validS})
	}
}

// shares waits until requests are shared like this.
func (f *front) shares(what string, want ...float64) {
	f.t.Helper()
	const requests, near = 100, .04
	client := http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	for deadline := time.Now().Add(patience); ; {
		for _, m := range f.machines {
			m.served.Store(0)
		}
		for range requests {
			resp, err := client.Get("http://" + f.traffic)
			if err != nil {
				if f.pass.Load() {
					break
				}
				f.t.Fatalf("%s: a request failed: %v", what, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK && !f.pass.Load() {
				f.t.Fatalf("%s: a request failed: %s", what, resp.Status)
			}
		}
		far := 0.0
		var got []float64
		for i, m := range f.machines {
			got = append(got, float64(m.served.Load())/requests)
			far = math.Max(far, math.Abs(got[i]-want[i]))
		}
		if far < near {
			f.t.Logf("%s after %v", what, time.Since(f.began))
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%s: shares are %v, want %v", what, got, want)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestEnvoyFollowsReports plays what the machines of a group report to an Envoy that no controller tells anything.
func TestEnvoyFollowsReports(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	f.pass.Store(true) // until Envoy listens
	f.shares("without a controller", .334, .333, .333)
	f.pass.Store(false)
	f.tell(3600, .4, .4, .2)
	f.shares("one is disturbed", .4, .4, .2)
	f.tell(3600, .5, .5, 0)
	f.shares("one drains", .5, .5, 0)
	f.tell(3600, .2, .3, .5)
	f.shares("it is back", .2, .3, .5)
	f.machines[2].stop() // as if its agent had been killed
	f.shares("an agent is gone, and its weight is the median of the others", .267, .4, .333)
	f.machines[2].listen(t)
	f.shares("the agent is back", .2, .3, .5)
	f.tell(.001, .2, .3, .5)
	f.shares("the controller is gone", .334, .333, .333)
}
