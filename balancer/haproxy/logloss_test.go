package haproxy

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLostLines(t *testing.T) {
	type period struct{ served, open, lines, malformed int64 }
	for _, c := range []struct {
		what    string
		periods []period
		want    string // what the last period's error contains; "": there is none
	}{
		{"a silent log", []period{{served: 1000}}, "answered 1000 requests in a period and logged 0 of them"},
		{"few requests, and a silent log", []period{{served: 5}}, "logged 0 of them"},
		{"a log of errors only", []period{{served: 1000, lines: 20}, {served: 1000, lines: 20}}, "logged 20 of them"},
		{"one of several frontends does not log", []period{{served: 100, lines: 85}, {served: 100, lines: 85}}, "logged 85 of them"},
		{"once only", []period{{served: 100, lines: 85}}, ""},
		{"and then none", []period{{served: 100, lines: 85}, {served: 100, lines: 100}}, ""},
		{"lines that come a little later", []period{{served: 100, lines: 85}, {served: 100, lines: 114}}, ""},
		{"long downloads", []period{{served: 100, lines: 60, open: 40}, {served: 100, lines: 90, open: 50}}, ""},
		{"another format", []period{{served: 1000, malformed: 1000}}, errMalformed.Error()},
		{"one of two frontends in another format", []period{{served: 1000, lines: 300, malformed: 700}}, errMalformed.Error()},
		{"a small part in another format", []period{{served: 300, lines: 285, malformed: 15}}, "15 lines of a period are"},
		{"another format and few requests", []period{{served: 3, malformed: 3}}, errMalformed.Error()},
		{"another backend's in another format", []period{{served: 1000, lines: 1000, malformed: 3}}, ""},
		{"another backend's, and nothing here", []period{{malformed: 3}}, ""},
		{"too little to tell", []period{{served: 3}}, ""},
	} {
		var whole completeness
		var err error
		for _, p := range c.periods {
			w := &window{counts: map[string]*count{"a": {responses: p.served, open: p.open, looks: 1}},
				log: heardOf{lines: p.lines, malformed: p.malformed, sample: "a line"}}
			err = whole.judge(w, func() []string { return nil })
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.what, err, c.want)
		}
	}
}

// The message has an example, the frontend, and what to do.
func TestUnreadableLines(t *testing.T) {
	for _, c := range []struct{ line, frontend, advice string }{
		{head + `{"fe":"json","status":200}`, "json", "Add the frontend's log-format to balancer.haproxy.log_format"},
		{head + `web.s1 200 12`, "", "Add the frontend's log-format"},
		{head + `Connect from 1.2.3.4:5 to 1.2.3.4:80 (web/HTTP)`, "web", "add `option httplog`"},
		{head + `1.2.3.4:5 [21/Nov/2026:23:29:59.521] web b/s1 0/0/12 549 -- 1/1/0/0/0 0/0`, "web", "use `mode http`"},
		{head + `1.2.3.4:5 [21/Nov/2026:23:29:59.521] web b/s1 "GET /` + strings.Repeat("x", 1000), "web", "write `len 4096`"},
	} {
		m := newMonitor(&Driver{opts: Options{Backend: "b"}}, monitorOptions{})
		m.hear([]byte(c.line))
		log := m.takeLog()
		err := unreadText(log.malformed, log.sample, []string{"we", "json", "web"}).Error()
		of := "example: "
		if c.frontend != "" {
			of = "of frontend " + c.frontend + ": "
		}
		if log.malformed != 1 || !strings.Contains(err, of) || !strings.Contains(err, c.advice) || len(err) > 500 {
			t.Errorf("%s: %d, %s", c.line, log.malformed, err)
		}
	}
	for _, notice := range []string{
		"<133>Nov 21 23:29:59 haproxy[1]: Anything \"else\"", head + "Server b/s1 is UP, reason: x.",
		head + "1.2.3.4:5 [21/Nov/2026:23:29:59.521] web/1: SSL handshake failure", "",
	} {
		m := newMonitor(&Driver{opts: Options{Backend: "b"}}, monitorOptions{})
		if m.hear([]byte(notice)); m.heard.malformed != 0 {
			t.Errorf("%s counts as a request that cannot be read", notice)
		}
	}
}

// A frontend is named if it had requests, no line of it was ever read, and the others' lines say where they come from.
func TestSilentFrontends(t *testing.T) {
	const stat = "# pxname,svname,req_tot,\nweb,FRONTEND,7,\nidle,FRONTEND,0,\njson,FRONTEND,3,\nweb,BACKEND,9,\n"
	names := busyFrontends(stat)
	if !slices.Equal(names, []string{"web", "json"}) {
		t.Fatalf("frontends %v", names)
	}
	for lines, want := range map[string]string{
		"1.2.3.4:5 [21/Nov/2026:23:29:59.521] web b/s1 0/0/0/7/7 304 9 - - ---- 1/1/0/0/0 0/0 \"GET / HTTP/1.1\"": ", and none of frontend json",
		"quell b/s1 0/0/0/5/9 200 -- {}": "",
	} {
		m := newMonitor(&Driver{opts: Options{Backend: "b"}}, monitorOptions{})
		m.hear([]byte(head + lines))
		log := m.takeLog()
		if m.whole.note(&log); m.whole.silent(names) != want {
			t.Errorf("%s: %q, want %q", lines, m.whole.silent(names), want)
		}
	}
}

// An objective on a percentile cannot be measured without a log.
func TestPercentileWithoutALog(t *testing.T) {
	for exact, want := range map[bool]bool{true: true, false: false} {
		m := newMonitor(&Driver{}, monitorOptions{Exact: exact, Period: time.Second})
		m.check(t.Context(), &window{})
		if err := m.err(); (err != nil) != want {
			t.Errorf("percentile %v: %v", exact, err)
		}
	}
}
