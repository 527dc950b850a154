package haproxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/measure"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/logsocket"
	"github.com/quellhq/quell/internal/need"
)

// TestReadingsFromTheLog checks that a real HAProxy's log, over UDP and over a Unix socket, in both formats, matches what
// clients measure.
func TestReadingsFromTheLog(t *testing.T) {
	for name, c := range map[string]struct{ network, format string }{
		"udp, httplog": {"udp", ""},
		"unix, short":  {"unix", "\nlog-format \"quell %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %tsc {%[capture.req.hdr(0)]}\""},
	} {
		t.Run(name, func(t *testing.T) {
			fast, slow := newInstance(t, 2*time.Millisecond), newInstance(t, 30*time.Millisecond)
			l := newLab(t, "")
			address := filepath.Join(l.dir, "log.sock")
			if c.network == "udp" {
				address = need.FreeAddress(t)
			}
			conn, err := logsocket.Listen(address, "HAProxy")
			if err != nil {
				t.Fatal(err)
			}
			l.configure("balance roundrobin\n"+declared("fast", fast.address(), "slow", slow.address()), "log "+address+" local0")
			l.inFrontend(c.format)
			l.start()
			d := l.driver(nil)
			apply(t, d, backend("fast", fast, 0.5), backend("slow", slow, 0.5))
			m := newMonitor(d, monitorOptions{Service: "s", Sender: "edge", Log: conn, Captured: true})
			go m.listen()
			t.Cleanup(func() { conn.Close() })
			_ = m.readings(&window{m.counts(context.Background()), m.takeLog(), time.Second}, time.Now(), false)
			for i := range 40 {
				req, _ := http.NewRequest(http.MethodGet, "http://"+l.traffic+"/", nil)
				req.Header.Set("X-Class", []string{"view", "buy"}[i/20])
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			await(t, "the lines", func() (bool, any) { m.mu.Lock(); defer m.mu.Unlock(); return m.heard.lines == 40, m.heard.lines })
			readings := m.readings(&window{m.counts(context.Background()), m.takeLog(), 2 * time.Second}, time.Now(), false)
			if len(readings) != 2 {
				t.Fatalf("%d readings", len(readings))
			}
			for i, r := range readings {
				o := r.Observation
				if err := r.Validate(); err != nil {
					t.Error(err)
				}
				if r.Instance != []string{"fast", "slow"}[i] || r.Sender != "edge" || r.Source != quell.FromBalancer || r.Requests != 20 ||
					r.Errors != 0 || *o.RequestRate != 10 {
					t.Errorf("reading %+v, rate %v", r, *o.RequestRate)
				}
				if o.LatencyMS == nil || o.LatencyMS.N != 20 || len(r.LatencyHDR) == 0 || len(o.LatencyByClassMS) != 2 ||
					o.LatencyByClassMS["view"].N != 10 || o.RequestRates["buy"] != 5 {
					t.Errorf("latency %+v, by class %+v", o.LatencyMS, o.LatencyByClassMS)
				}
			}
			if f, s := *readings[0].Observation.LatencyMS.P50, *readings[1].Observation.LatencyMS.P50; f < 1 || s < 29 || f >= s {
				t.Errorf("2 ms and 30 ms became %v and %v", f, s)
			}
		})
	}
}

// TestMovedAndRefusedRequests checks at a real HAProxy to which server it books attempts that failed and requests that it moved: to the one
// that was left, and never to the one that answered, whose response times do not show the wait either. Requests that HAProxy itself refuses
// are counted apart.
func TestMovedAndRefusedRequests(t *testing.T) {
	good := newInstance(t, time.Millisecond)
	l := newLab(t, "")
	address := filepath.Join(l.dir, "log.sock")
	conn, err := logsocket.Listen(address, "HAProxy")
	if err != nil {
		t.Fatal(err)
	}
	l.configure("balance roundrobin\nretries 1\ntimeout connect 100ms\ntimeout queue 50ms\n"+
		"server dead "+need.FreeAddress(t)+"\nserver good "+good.address()+" maxconn 1", "log "+address+" local0")
	l.start()
	d := l.driver(nil)
	apply(t, d, quell.Backend{ID: "dead", Address: l.servers()["dead"].address, Weight: 0.25}, backend("good", good, 0.75))
	m := newMonitor(d, monitorOptions{Service: "s", Log: conn})
	go m.listen()
	t.Cleanup(func() { conn.Close() })
	heard := func(lines int64) {
		t.Helper()
		await(t, "the lines", func() (bool, any) {
			m.mu.Lock()
			defer m.mu.Unlock()
			got := m.heard.lines + m.heard.refused[queued] + m.heard.refused[unserved]
			return got >= lines, got
		})
	}
	take := func() window { return window{m.counts(context.Background()), m.takeLog(), time.Second} }
	_ = take()
	const requests = 8
	for range requests {
		if why := get(http.DefaultClient, "http://"+l.traffic+"/"); why != "" {
			t.Fatal(why)
		}
	}
	heard(requests)
	w := take()
	moved := w.counts["dead"].moved
	if moved < 1 || moved == requests || w.counts["good"].moved != 0 {
		t.Errorf("moved away: %d from the dead one, %d from the other", moved, w.counts["good"].moved)
	}
	for _, r := range m.readings(&w, time.Now(), false) {
		o := r.Observation
		timed := 0
		if o.LatencyMS != nil {
			timed = o.LatencyMS.N
		}
		dead := r.Instance == "dead"
		if dead != (*o.ErrorRate > 0) || !dead && (r.Requests != requests || timed != requests-int(moved)) {
			t.Errorf("%s: %d requests, error rate %v, %d response times, %d moved", r.Instance, r.Requests, *o.ErrorRate, timed, moved)
		}
	}
	l.ask("set server app/dead state maint")
	var slow sync.WaitGroup
	for range 2 { // one is served, the other waits in vain
		slow.Go(func() { get(&http.Client{Transport: &http.Transport{}}, "http://"+l.traffic+"/slow") })
	}
	slow.Wait()
	heard(2)
	l.ask("set server app/good state maint")
	get(http.DefaultClient, "http://"+l.traffic+"/")
	heard(3)
	w = take()
	if err := w.refused("app"); err == nil || !strings.Contains(err.Error(), "refused 2 requests to backend app") ||
		!strings.Contains(err.Error(), "1 waited too long in its queue, for 1 no server was up") {
		t.Errorf("%v, %+v", err, w.log.refused)
	}
	for _, r := range m.readings(&w, time.Now(), false) {
		if got := r.Observation.Counters[quell.CounterUnserved]; got != 1 {
			t.Errorf("%s: %g requests a second had no server, want 1", r.Instance, got)
		}
	}
	if n := w.log.servers["good"].tally; n.Errors != 0 {
		t.Errorf("the instance failed %d times", n.Errors)
	}
}

// TestABackendWithoutServers checks that what HAProxy refuses is told if the backend has no servers, also in the windows of a fast policy,
// and that nothing is told of a HAProxy that could not be read.
func TestABackendWithoutServers(t *testing.T) {
	m := newMonitor(nil, monitorOptions{Service: "shop", Sender: "edge"})
	refusing := func(counts map[string]*count) *window {
		w := &window{counts: counts, log: newHeardOf(), length: time.Second}
		w.log.refused[unserved] = 3
		return w
	}
	var whole window
	for range 2 {
		w := refusing(map[string]*count{})
		if r := m.readings(w, time.Now(), true); len(r) != 0 {
			t.Errorf("of a fast policy's window: %+v", r)
		}
		whole.add(w)
	}
	r := m.readings(&whole, time.Now(), false)
	if len(r) != 1 || r[0].Instance != quell.NoInstance || r[0].Observation.Counters[quell.CounterUnserved] != 3 || r[0].Validate() != nil {
		t.Errorf("%+v", r)
	}
	if r := m.readings(refusing(nil), time.Now(), false); len(r) != 0 {
		t.Errorf("of a HAProxy that could not be read: %+v", r)
	}
}

// TestClassesAndConnectTimesFromTheLog checks that a real HAProxy's requests are sorted by their path, in both formats, and that connect
// times are those of connections that were opened, however short, but not of connections that were kept.
func TestClassesAndConnectTimesFromTheLog(t *testing.T) {
	classes := balancer.Classes{{Name: "home", Path: "/"}, {Name: "tags", Path: "/tag/*"}}
	for name, c := range map[string]struct {
		format, reuse string
		opened        int // connections, of 30 requests
	}{
		"httplog, kept connections": {"", "http-reuse always", 1},
		"short, new connections": {"\nlog-format \"quell %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %tsc \\\"%HM %HP\\\"\"",
			"option http-server-close", 30},
	} {
		t.Run(name, func(t *testing.T) {
			a := newInstance(t, time.Millisecond)
			l := newLab(t, "")
			address := filepath.Join(l.dir, "log.sock")
			conn, err := logsocket.Listen(address, "HAProxy")
			if err != nil {
				t.Fatal(err)
			}
			l.configure(c.reuse+"\n"+declared("a", a.address()), "log "+address+" local0")
			l.inFrontend(c.format)
			l.start()
			d := l.driver(nil)
			apply(t, d, backend("a", a, 1))
			m := newMonitor(d, monitorOptions{Service: "s", Sender: "edge", Log: conn, Classes: classes})
			go m.listen()
			t.Cleanup(func() { conn.Close() })
			_ = m.readings(&window{m.counts(context.Background()), m.takeLog(), time.Second}, time.Now(), false)
			for i := range 30 {
				if why := get(http.DefaultClient, "http://"+l.traffic+[]string{"/?q=1", "/tag/x", "/image.png"}[i%3]); why != "" {
					t.Fatal(why)
				}
			}
			await(t, "the lines", func() (bool, any) { m.mu.Lock(); defer m.mu.Unlock(); return m.heard.lines == 30, m.heard.lines })
			w := &window{m.counts(context.Background()), m.takeLog(), 2 * time.Second}
			if err := w.unclassed(classes); err != nil {
				t.Error(err)
			}
			readings := m.readings(w, time.Now(), false)
			if len(readings) != 1 {
				t.Fatalf("%d readings", len(readings))
			}
			r := readings[0]
			if err := r.Validate(); err != nil {
				t.Error(err)
			}
			for _, class := range classes.Names() {
				if o := r.Observation; o.RequestRates[class] != 5 || o.LatencyByClassMS[class].N != 10 || len(r.ClassHDR[class]) == 0 {
					t.Errorf("class %s: rates %v, response times %v", class, o.RequestRates, o.LatencyByClassMS)
				}
			}
			if h := w.log.servers["a"].tally.Connects(); h != c.opened {
				t.Errorf("connect times of %d connections, want %d", h, c.opened)
			}
		})
	}
}

// Lines without a path are reported, and connections that were kept have no connect time.
func TestPathlessLinesAndKeptConnections(t *testing.T) {
	classes := balancer.Classes{{Name: "home", Path: "/"}}
	m := newMonitor(&Driver{opts: Options{Backend: "b"}}, monitorOptions{Classes: classes})
	for range 10 {
		m.hear([]byte(head + "quell b/s1 0/0/0/5/9 200 -- {video}"))
	}
	w := &window{log: m.takeLog(), length: time.Second}
	if err := w.unclassed(classes); err == nil || !strings.Contains(err.Error(), "10 of 10 lines of HAProxy's log have no path") {
		t.Errorf("lines without a path: %v", err)
	}
	if err := w.unclassed(nil); err != nil {
		t.Errorf("without classes: %v", err)
	}
	if n := w.log.servers["s1"].brief; n != 10 {
		t.Errorf("%d requests whose connection was kept or opened at once, want 10", n)
	}
	m.opts.Log = conn{} // there is a log, so readings are not coarse
	for reused, want := range map[int64]int{0: 10, 7: 3, 10: 0, 12: 0} {
		h := w.log.servers["s1"]
		h.tally.Reset()
		h.brief = 10
		r := m.reading(&count{arrived: 10, responses: 10, reused: reused}, h, time.Now(), time.Second)
		if got := h.tally.Connects(); got != want {
			t.Errorf("%d requests on kept connections: %d connect times, want %d", reused, got, want)
		}
		if _, told := r.Observation.TCP["connect_ms_p90"]; told != (want > 0) {
			t.Errorf("%d requests on kept connections: %v", reused, r.Observation.TCP)
		}
	}
}

// With a fast policy a connection counts once in the window of each policy.
func TestConnectTimesOfFastWindows(t *testing.T) {
	m := newMonitor(&Driver{opts: Options{Backend: "b"}}, monitorOptions{Log: conn{}})
	var whole window
	for range 3 {
		for range 10 {
			m.hear([]byte(head + "quell b/s1 0/0/0/5/9 200 -- {}"))
		}
		w := window{map[string]*count{"s1": {arrived: 10, responses: 10, reused: 6}}, m.takeLog(), time.Second}
		m.reading(w.counts["s1"], w.log.servers["s1"], time.Now(), w.length)
		if got := w.log.servers["s1"].tally.Connects(); got != 4 {
			t.Errorf("%d connect times in a fast window, want 4", got)
		}
		whole.add(&w)
	}
	m.reading(whole.counts["s1"], whole.log.servers["s1"], time.Now(), whole.length)
	if got := whole.log.servers["s1"].tally.Connects(); got != 12 {
		t.Errorf("%d connect times in the whole period, want 12", got)
	}
}

// conn stands for a log that nothing is read from.
type conn struct{ net.PacketConn }

// TestCoarseReadings checks that readings without a log, from HAProxy's counters alone, have rates, and a mean that is marked as inexact.
func TestCoarseReadings(t *testing.T) {
	a := newInstance(t, 20*time.Millisecond)
	l := newLab(t, declared("a", a.address()))
	l.start()
	d := l.driver(nil) // this driver never applies anything, as in advise mode
	m := newMonitor(d, monitorOptions{Service: "s", Sender: "edge"})
	_ = m.readings(&window{m.counts(context.Background()), m.takeLog(), time.Second}, time.Now(), false)
	for range 30 {
		if why := get(http.DefaultClient, "http://"+l.traffic+"/"); why != "" {
			t.Fatal(why)
		}
	}
	readings := m.readings(&window{m.counts(context.Background()), m.takeLog(), 2 * time.Second}, time.Now(), false)
	if len(readings) != 1 {
		t.Fatalf("%d readings", len(readings))
	}
	o := readings[0].Observation
	if err := readings[0].Validate(); err != nil {
		t.Error(err)
	}
	if readings[0].Requests != 30 || *o.RequestRate != 15 || *o.ErrorRate != 0 || o.Counters["haproxy_coarse"] != 1 ||
		readings[0].LatencyHDR != nil {
		t.Errorf("%+v", readings[0])
	}
	if o.LatencyMS == nil || o.LatencyMS.P95 != nil || *o.LatencyMS.Mean < 19 {
		t.Errorf("latency %+v", o.LatencyMS)
	}
}

// TestAnOutageOfTheCounters checks that what HAProxy counted while it could not be read does not look like the requests of a single period:
// the rate is the usual one, with and without windows of a fast policy. Nor does it look as if there was no instance.
func TestAnOutageOfTheCounters(t *testing.T) {
	var total atomic.Int64
	var away atomic.Bool
	path := fake(t, func(command string) (string, bool) {
		return map[string]string{
			"show info": "Pid: 7\nVersion: 2.6\n", "show servers state b": stateText + "\n",
			"show stat 3 6 -1": strings.Replace(statText, ",,40,30,", fmt.Sprintf(",,%d,%[1]d,", total.Load()), 1) + "\n",
		}[command], !away.Load()
	})
	d, err := New(Options{Sockets: []string{path}, Backend: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m := newMonitor(d, monitorOptions{Service: "s"})
	rate := func(w *window) string {
		for _, r := range m.readings(w, time.Now(), false) {
			switch r.Instance {
			case "s1":
				return fmt.Sprint(*r.Observation.RequestRate)
			case quell.NoInstance:
				return "no instance"
			}
		}
		return "none"
	}
	var rates []string
	var whole, without, later window // of all, of those in the outage, and of the last two
	for i, unread := range []bool{false, false, true, true, true, false, false} {
		total.Add(100)
		away.Store(unread)
		w := window{m.counts(t.Context()), m.takeLog(), time.Second}
		whole.add(&w)
		switch {
		case unread:
			without.add(&w)
		case i > 2:
			later.add(&w)
		}
		rates = append(rates, rate(&w))
	}
	if got, want := strings.Join(rates, " "), "0 100 none none none none 100"; got != want {
		t.Errorf("rates are %s, want %s", got, want)
	}
	if got := rate(&whole); !strings.HasPrefix(got, "66.6") { // of three windows, the first of which knows no earlier totals
		t.Errorf("in all windows together the rate is %s", got)
	}
	if got := rate(&without); got != "none" {
		t.Errorf("in the windows of the outage the rate is %s", got)
	}
	if got := rate(&later); got != "100" { // what was counted in the first of them is not known
		t.Errorf("in the last two windows together the rate is %s", got)
	}
}

// TestNamesInTheLog checks that memory stays limited, whatever names the log has.
func TestNamesInTheLog(t *testing.T) {
	m := newMonitor(&Driver{opts: Options{Backend: "b"}}, monitorOptions{Captured: true})
	for i := range 1000 {
		m.hear(fmt.Appendf(nil, "%squell b/s1 0/0/0/5/9 200 -- {class%d}", head, i))
		m.hear(fmt.Appendf(nil, "%squell other/s%d 0/0/0/5/9 200 -- {}", head, i))
	}
	o := m.heard.servers["s1"].tally.Observation(time.Now(), time.Second, 0)
	if len(m.heard.servers) != 1 || len(o.LatencyByClassMS) != measure.MaxClasses ||
		o.LatencyByClassMS[balancer.OtherClass].N != 1000-measure.MaxClasses+1 {
		t.Errorf("%d servers, classes %v", len(m.heard.servers), o.LatencyByClassMS)
	}
}

// TestListen checks that a dead socket is replaced, but not a live one or another file.
func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	first, err := logsocket.Listen(path, "HAProxy")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := logsocket.Listen(path, "HAProxy"); err == nil {
		t.Error("a second listener took the path")
	}
	first.Close()
	again, err := logsocket.Listen(path, "HAProxy")
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if err := atomicfile.Write(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := logsocket.Listen(path, "HAProxy"); err == nil {
		t.Error("a file was replaced")
	}
}
