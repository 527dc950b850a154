package haproxy

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
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
				address = freeAddress(t)
			}
			conn, err := listen(address)
			if err != nil {
				t.Fatal(err)
			}
			l.configure("balance roundrobin\n"+declared("fast", fast.address(), "slow", slow.address()), "log "+address+" local0")
			l.inFrontend(c.format)
			l.start()
			d := l.driver(nil)
			apply(t, d, backend("fast", fast, 0.5), backend("slow", slow, 0.5))
			m := newMonitor(d, monitorOptions{Service: "s", Sender: "edge", Log: conn})
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

// TestLogThatTellsNothing checks that an empty log and an unreadable log are reported, and that memory stays limited.
func TestLogThatTellsNothing(t *testing.T) {
	for _, c := range []struct {
		what                     string
		served, lines, malformed int64
		want                     string
	}{
		{"a silent log", 1000, 0, 0, "logged 0 of them"},
		{"a log of errors only", 1000, 20, 0, "logged 20 of them"},
		{"another format", 1000, 0, 1000, errMalformed.Error()},
		{"one of two frontends in another format", 1000, 300, 700, errMalformed.Error()},
		{"another format and few requests", 3, 0, 3, errMalformed.Error()},
		{"another backend's in another format", 1000, 1000, 3, ""},
		{"lines that come a little later", 1000, 900, 0, ""},
		{"too little to tell", 3, 0, 0, ""},
	} {
		err := (&window{counts: map[string]*count{"a": {responses: c.served}}, log: heardOf{lines: c.lines, malformed: c.malformed}}).missing()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	m := newMonitor(&Driver{opts: Options{Backend: "b"}}, monitorOptions{})
	for i := range 1000 {
		m.hear(fmt.Appendf(nil, "%squell b/s1 0/0/0/5/9 200 -- {class%d}", head, i))
		m.hear(fmt.Appendf(nil, "%squell other/s%d 0/0/0/5/9 200 -- {}", head, i))
	}
	if len(m.heard.servers) != 1 || len(m.heard.servers["s1"].classes) != maxClasses ||
		m.heard.servers["s1"].classes[otherClass].Summary().N != 1000-maxClasses+1 {
		t.Errorf("%d servers, %d classes", len(m.heard.servers), len(m.heard.servers["s1"].classes))
	}
}

// TestListen checks that a dead socket is replaced, but not a live one or another file.
func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	first, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen(path); err == nil {
		t.Error("a second listener took the path")
	}
	first.Close()
	again, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if err := atomicfile.Write(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(path); err == nil {
		t.Error("a file was replaced")
	}
}
