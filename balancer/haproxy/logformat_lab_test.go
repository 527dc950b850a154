package haproxy

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/logsocket"
	"github.com/quellhq/quell/internal/need"
)

// frontends are what a user may have in one HAProxy, each with its own log.
var frontends = []struct{ name, lines, format string }{
	{"json", "option httplog\nlog-format '" + jsonText + "'", jsonText},
	{"short", `log-format "` + shortText + `"`, shortText},
	{"plain", "option httplog", ""},
	{"exact", "http-request set-var(txn.quell_start) date(0,us)\n" + `log-format "` + exactText + `"`, `log-format "` + exactText + `"`},
}

// inFrontends adds a frontend for each of these, and returns where it listens.
func (l *lab) inFrontends(names ...string) map[string]string {
	l.t.Helper()
	addresses, text := map[string]string{}, ""
	for _, f := range frontends {
		if slices.Contains(names, f.name) {
			addresses[f.name] = need.FreeAddress(l.t)
			text += fmt.Sprintf("frontend %s\n%s\n  bind %s\n  capture request header X-Class len 20\n  default_backend app\n", f.name,
				indent(f.lines), addresses[f.name])
		}
	}
	l.replace("backend app\n  balance", text+"backend app\n  balance")
	return addresses
}

// meterOf makes a monitor of the lab's log, which reads the formats of these frontends.
func (l *lab) meterOf(conn net.PacketConn, known ...string) *monitor {
	l.t.Helper()
	d := l.driver(nil)
	o := monitorOptions{Service: "s", Sender: "edge", Log: conn, Period: time.Second}
	for _, f := range frontends {
		if f.format == "" || !slices.Contains(known, f.name) {
			continue
		}
		parsed, err := parseFormat(f.format)
		if err != nil {
			l.t.Fatal(err)
		}
		o.Formats = append(o.Formats, parsed)
	}
	o.Captured = true
	m := newMonitor(d, o)
	go m.listen()
	l.t.Cleanup(func() { conn.Close() })
	m.counts(context.Background()) // what came before does not count
	return m
}

// period sends requests to each address, waits until the log has what it will have, and ends a period.
func (l *lab) period(m *monitor, addresses map[string]string, each int, heard func(h *heardOf) bool) *window {
	l.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		for range each {
			req, _ := http.NewRequest(http.MethodGet, "http://"+addresses[name]+"/a/b?c", nil)
			req.Header.Set("X-Class", "view")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				l.t.Fatal(err)
			}
			resp.Body.Close()
		}
	}
	await(l.t, "the lines", func() (bool, any) { m.mu.Lock(); defer m.mu.Unlock(); return heard(&m.heard), m.heard })
	w := &window{m.counts(context.Background()), m.takeLog(), time.Second}
	m.check(context.Background(), w)
	return w
}

// A real HAProxy that logs JSON in one frontend, a short format in another, httplog in a third and microseconds in a fourth is measured
// completely by configuration alone.
func TestFrontendsInDifferentFormats(t *testing.T) {
	l := newLab(t, "")
	a := newInstance(t, 2*time.Millisecond)
	address := filepath.Join(l.dir, "log.sock")
	conn, err := logsocket.Listen(address, "HAProxy")
	if err != nil {
		t.Fatal(err)
	}
	l.configure(declared("a", a.address()), "log "+address+" local0")
	addresses := l.inFrontends("json", "short", "plain", "exact")
	l.start()
	m := l.meterOf(conn, "json", "short", "plain", "exact")
	w := l.period(m, addresses, 10, func(h *heardOf) bool { return h.lines+h.malformed == 40 })
	if err := m.err(); err != nil || w.log.lines != 40 || w.log.malformed != 0 {
		t.Fatalf("%d lines were read, %d were not: %v", w.log.lines, w.log.malformed, err)
	}
	r := m.readings(w, time.Now(), false)[0]
	if o := r.Observation; r.Requests != 40 || r.Errors != 0 || o.LatencyMS.N != 40 || *o.LatencyMS.Mean < 2 ||
		o.LatencyByClassMS["view"].N != 20 {
		t.Errorf("reading %+v, latency %+v, by class %+v", r, o.LatencyMS, o.LatencyByClassMS)
	}
	for range 40 { // each is a whole number of milliseconds once in a thousand
		if why := get(http.DefaultClient, "http://"+addresses["exact"]+"/"); why != "" {
			t.Fatal(why)
		}
	}
	await(t, "the lines in microseconds", func() (bool, any) { m.mu.Lock(); defer m.mu.Unlock(); return m.heard.lines == 40, m.heard.lines })
	o := m.heard.servers["a"].tally.Observation(time.Now(), time.Second, 0)
	if mean := *o.LatencyMS.Mean; mean < 2 || mean*40 == float64(int(mean*40)) {
		t.Errorf("a mean of %v ms, which whole milliseconds would give, too", mean)
	}
}

// Each wrong set-up is named within two periods.
func TestWrongSetUps(t *testing.T) {
	for name, c := range map[string]struct {
		global, change string   // log line, and a change of the configuration, as "from|to"
		frontends      []string // that get requests
		known          []string // whose formats are configured
		lines          int64    // that come in a period
		want           []string
	}{
		"JSON that is not configured": {"log %s local0", "", []string{"json", "plain"}, nil, 40,
			[]string{"example of frontend json: ", `{"client":"127.0.0.1"`, "balancer.haproxy.log_format"}},
		"a short format that is not configured": {"log %s local0", "", []string{"short", "plain"}, nil, 40,
			[]string{"20 lines of a period", "a.app 200 ", "balancer.haproxy.log_format"}},
		"the wrong format": {"log %s local0", "", []string{"json"}, []string{"short"}, 20, []string{"example of frontend json: "}},
		"no option httplog": {"log %s local0", "frontend plain\n  option httplog|frontend plain", []string{"plain"}, nil, 20,
			[]string{"example of frontend plain: ", "add `option httplog`"}},
		"lines cut off": {"log %s len 100 local0", "", []string{"json"}, []string{"json"}, 20, []string{"a format that Quell does not know"}},
		"a level":       {"log %s local0 notice", "", []string{"plain"}, nil, 0, []string{"logged 0 of them", "without a level above info"}},
		"another place": {"log 127.0.0.1:1 local0", "", []string{"plain"}, nil, 0, []string{"logged 0 of them", "this address"}},
		"a frontend that does not log": {"log %s local0", "frontend short|frontend short\n  no log", []string{"plain", "short"}, nil, 20,
			[]string{"logged 20 of them here, and none of frontend short"}},
		"dontlog-normal": {"log %s local0", "frontend plain\n|frontend plain\n  option dontlog-normal\n",
			[]string{"plain"}, nil, 0, []string{"logged 0 of them", "dontlog-normal"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "")
			a := newInstance(t, 0)
			address := filepath.Join(l.dir, "log.sock")
			conn, err := logsocket.Listen(address, "HAProxy")
			if err != nil {
				t.Fatal(err)
			}
			global := c.global
			if strings.Contains(global, "%s") {
				global = fmt.Sprintf(global, address)
			}
			l.configure(declared("a", a.address()), global)
			addresses := l.inFrontends(c.frontends...)
			if from, to, ok := strings.Cut(c.change, "|"); ok {
				l.replace(from, to)
			}
			l.start()
			m := l.meterOf(conn, c.known...)
			for range 2 {
				l.period(m, addresses, 20, func(h *heardOf) bool { return h.lines+h.malformed == c.lines })
			}
			problem := m.err()
			for _, words := range c.want {
				if problem == nil || !strings.Contains(problem.Error(), words) {
					t.Fatalf("after two periods: %v; want %q", problem, words)
				}
			}
		})
	}
}
