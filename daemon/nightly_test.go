package daemon_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/model"
)

// usual are the shares without a test. i1 needs few levels to get everything.
var usual = map[string]float64{"i1": .75, "i2": .25}

// nights is a service of two servers behind HAProxy in the middle of its window. What agents and probers would report is made up, because a
// test of this machine's neighbours would wait for a quiet moment.
type nights struct {
	*rig
	servers [2]string
	logs    string
	window  quell.Window
}

func newNights(t *testing.T) *nights {
	t.Helper()
	program := need.Program(t, "haproxy")
	n := &nights{rig: newRig(t, ""), logs: need.FreeAddress(t), window: windowAround(time.Now())}
	body := make([]byte, 20000)
	for i := range n.servers {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tick.Sleep(r.Context(), 5*time.Millisecond)
			_, _ = w.Write(body) // the client may have gone
		}))
		t.Cleanup(server.Close)
		n.servers[i] = server.Listener.Addr().String()
	}
	n.allow(1)
	cfg := filepath.Join(n.dir, "haproxy.cfg")
	text := fmt.Sprintf("global\n  stats socket %s level admin\n  log %s local0\n  hard-stop-after 5s\n  nbthread 1\n  maxconn 500\n"+
		"defaults\n  mode http\n  log global\n  option httplog\n  timeout connect 1s\n  timeout client 30s\n  timeout server 30s\n"+
		"frontend web\n  bind %s\n  default_backend app\nbackend app\n  balance roundrobin\n  server i1 %s weight 30\n  server i2 %s weight 10\n",
		n.admin, n.logs, n.traffic, n.servers[0], n.servers[1])
	if err := os.WriteFile(cfg, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	n.launch("haproxy", exec.Command(program, "-db", "-f", cfg))
	return n
}

// windowAround is a window in which the time lies, with an hour left.
func windowAround(now time.Time) quell.Window {
	h, m, _ := now.Clock()
	at := time.Duration(h)*time.Hour + time.Duration(m)*time.Minute
	const day = 24 * time.Hour
	return quell.Window{From: (at + day - time.Hour) % day, To: (at + time.Hour) % day}
}

// allow writes the configuration, with the most tests in a night.
func (n *nights) allow(tests int) {
	n.t.Helper()
	text := fmt.Sprintf(`service: shop
slo: {metric: mean, threshold: 2s}
sampling: 200ms
guard: {stale_after: 20}
data: data
listen: %q
bus: {listen: %q}
policy: {name: static}
redline: {nightly: %q, tests: %d}
balancer:
  kind: haproxy
  haproxy: {sockets: [%s], backend: app, log: %q}
scaler:
  kind: fixed
  instances: [{id: i1, address: %q}, {id: i2, address: %q}]
`, n.metrics, n.bus, n.window, tests, n.admin, n.logs, n.servers[0], n.servers[1])
	if err := os.WriteFile(n.config, []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// report sends what agents and probers of machines without neighbours measure, until the test ends.
func (n *nights) report() {
	n.t.Helper()
	conn := n.connect()
	n.repeat(50*time.Millisecond, func() {
		for _, id := range []string{"i1", "i2"} {
			own := quell.Observation{At: time.Now(), WindowS: 0.05, Utilization: map[quell.Resource]float64{quell.Network: 0.3},
				Severity: map[quell.Resource]float64{quell.Network: 0}}
			probed := quell.Observation{At: time.Now(), WindowS: 0.05,
				Probe: map[quell.Resource]quell.ProbeStats{quell.Network: {MeanMS: 10, StddevMS: 1, N: 8}}}
			for _, r := range []quell.Reading{
				{Service: "shop", Instance: id, Source: quell.FromAgent, Sender: id, Observation: own},
				{Service: "shop", Instance: id, Source: quell.FromProber, Sender: "test", Observation: probed},
			} {
				if err := conn.PublishReading(r); err != nil && !errors.Is(err, bus.ErrNotConnected) { // the bus ends with its controller
					n.t.Error(err)
				}
			}
		}
	})
}

// repeat calls do again and again until the test ends.
func (n *nights) repeat(every time.Duration, do func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(every):
				do()
			}
		}
	}()
	n.t.Cleanup(func() { close(stop); <-done })
}

// shares are those that HAProxy has.
func (n *nights) shares() map[string]float64 {
	found, sum := map[string]float64{}, 0.
	for line := range strings.Lines(n.say("show servers state app")) {
		if f := strings.Fields(line); len(f) > 7 && (f[3] == "i1" || f[3] == "i2") {
			weight, _ := strconv.ParseFloat(f[7], 64) // what is no number is no share, and the test says what it waits for
			found[f[3]] = weight
			sum += weight
		}
	}
	for id := range found {
		found[id] /= sum
	}
	return found
}

// awaitRaised waits until HAProxy gives an instance more than its share because of a test by night.
func (n *nights) awaitRaised(id string) {
	n.t.Helper()
	n.await(id+" to be raised", func() (bool, any) {
		n.tested()
		shares := n.shares()
		return shares[id] > 1.1*usual[id], shares
	})
}

// tested are the tests that the status knows, by instance. It has set one share at most.
func (n *nights) tested() map[string]string {
	n.t.Helper()
	s, err := n.status()
	if err != nil || s.Nightly == nil {
		return nil
	}
	if len(s.Temporary) > 1 {
		n.t.Errorf("%d shares are set at a time: %+v", len(s.Temporary), s.Temporary)
	}
	found := map[string]string{}
	for _, t := range s.Nightly.Tested {
		found[t.Instance] = t.Text
	}
	return found
}

// awaitEnd waits until a test has ended and both have their shares again, and returns what it found.
func (n *nights) awaitEnd(id string) (text string) {
	n.t.Helper()
	n.await("the end of the test of "+id, func() (bool, any) {
		text = n.tested()[id]
		return text != "", n.shares()
	})
	n.awaitStatus("no share that is set, and no test", func(s controller.Status) bool {
		return s.Leading && !s.At.IsZero() && len(s.Temporary) == 0 && s.Nightly != nil && s.Nightly.Instance == ""
	})
	n.await("the shares of before", func() (bool, any) {
		shares := n.shares()
		return sameWeights(shares, usual), shares
	})
	return text
}

// wantRows checks the training rows of the tests so far.
func (n *nights) wantRows() {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(n.dir, "data", "redline-rows.jsonl"))
	if err != nil {
		n.t.Fatal(err)
	}
	if len(text) == 0 {
		n.t.Error("there are no rows")
	}
	for line := range strings.Lines(string(text)) {
		var row model.TrainingRow
		if err := json.Unmarshal([]byte(line), &row); err != nil || row.Resource != quell.Network || row.Requests == 0 || row.ProbeMS.N == 0 {
			n.t.Errorf("a row: %s, %v", line, err)
		}
	}
}

// events are the journal's, of tests by night.
func (n *nights) events() (events []string) {
	n.t.Helper()
	for _, e := range n.journal(n.connect()) {
		if e.Kind == bus.EventEntry && strings.Contains(e.Text, "red-line test") {
			events = append(events, e.Text)
		}
	}
	return events
}

// In its window the controller raises one instance at a time, puts everything back, and records what it found. After kill -9 in the middle
// of a test the next controller puts everything back, and does not repeat the test in that night.
func TestNightlyRedline(t *testing.T) {
	t.Parallel()
	n := newNights(t)
	first := n.start("controller")
	n.awaitStatus("a decision", func(s controller.Status) bool { return s.Leading && !s.At.IsZero() })
	n.report()
	for range 3 {
		flow(n.rig)
	}

	n.awaitRaised("i1")
	found := n.awaitEnd("i1")
	if !strings.Contains(found, "i1") || !strings.Contains(found, "requests missed the objective") {
		t.Errorf("the status says %q", found)
	}
	if strings.Contains(found, "carries") { // a machine may be too busy to measure a level
		n.wantRows()
	}
	want := []string{"a red-line test of i1 begins, as redline.nightly allows from " + n.window.String(), "red-line test by night: " + found}
	if got := n.events(); !slices.Equal(got, want) {
		t.Errorf("the journal says %q, want %q", got, want)
	}

	n.allow(2)
	hangUp(t, first)
	n.awaitRaised("i2")
	first.kill(t)
	raised := n.shares()["i2"] > 1.1*usual["i2"] // on a busy machine the test may have ended just before
	n.start("controller")
	const interrupted = "interrupted: its controller ended"
	if text := n.awaitEnd("i2"); raised && text != interrupted {
		t.Errorf("of the killed controller's test the status says %q", text)
	}
	s := n.awaitStatus("the night to be over", func(s controller.Status) bool { return s.Nightly != nil && s.Nightly.Waits != "" })
	if want := "2 of 2 test(s) of this night were made"; s.Nightly.Waits != want {
		t.Errorf("the status says %q, want %q", s.Nightly.Waits, want)
	}
	began := map[string]int{}
	for _, e := range n.events() {
		if id, ok := strings.CutPrefix(e, "a red-line test of "); ok {
			began[id[:2]]++
		}
	}
	if !maps.Equal(began, map[string]int{"i1": 1, "i2": 1}) {
		t.Errorf("tests that began: %v", began)
	}
}
