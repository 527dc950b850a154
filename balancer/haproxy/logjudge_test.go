package haproxy

import (
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/measure"
)

// TestWhatLinesCountAs goes through lines from other people's fleets.
func TestWhatLinesCountAs(t *testing.T) {
	const begin = head + `203.0.113.5:40112 [25/Nov/2026:10:00:00.123] fe app/web-2 `
	for _, c := range []struct {
		line      string
		want      measure.Verdict
		firstByte measure.Verdict
	}{
		{`0/0/0/-1/18 -1 0 - - CH-- 4/4/1/0/0 0/0 "GET / HTTP/1.1"`, measure.Demand, measure.Demand},
		{`0/0/-1/-1/3 503 0 - - CC-- 4/4/1/0/0 0/0 "GET / HTTP/1.1"`, measure.Demand, measure.Demand},
		{`0/0/0/-1/1000 -1 0 - - CH-- 4/4/1/0/0 0/0 "GET / HTTP/1.1"`, measure.Failure, measure.Failure},
		{`0/1900/0/-1/2000 -1 0 - - CH-- 4/4/1/0/0 0/0 "GET / HTTP/1.1"`, measure.Demand, measure.Demand},
		{`0/0/3003/9/3012 200 512 - - ---- 4/4/1/0/+3 0/0 "GET / HTTP/1.1"`, measure.Demand, measure.Demand},
		{`0/0/3003/9/3012 200 512 - - ---- 4/4/1/0/3 0/0 "GET / HTTP/1.1"`, measure.Response, measure.Response},
		{`0/0/1/3/30004 200 8123 - - ---- 4/4/1/0/0 0/0 {} {text/event-stream} "GET / HTTP/1.1"`, measure.Demand, measure.Response},
		{`0/0/1/5/+6 200 +99 - - ---- 4/4/1/0/0 0/0 "GET / HTTP/1.1"`, measure.Demand, measure.Response},
		{`0/0/1/5/6 429 99 - - ---- 4/4/1/0/0 0/0 "GET / HTTP/1.1"`, measure.Limited, measure.Limited},
		{`0/0/1/5/6 503 99 - - ---- 4/4/1/0/0 0/0 "GET / HTTP/1.1"`, measure.Shed, measure.Shed},
		{`0/0/-1/-1/3003 503 99 - - SC-- 4/4/1/0/3 0/0 "GET / HTTP/1.1"`, measure.Failure, measure.Failure},
		{`0/5000/-1/-1/5000 503 99 - - sQ-- 4/4/1/0/0 0/1 "GET / HTTP/1.1"`, measure.Demand, measure.Demand},
		{`0/0/-1/-1/0 403 99 - - PR-- 4/4/1/0/0 0/0 "GET / HTTP/1.1"`, measure.Nothing, measure.Nothing},
		{`0/0/1/5/600 502 99 - - PH-- 4/4/1/0/0 0/0 "GET / HTTP/1.1"`, measure.Failure, measure.Failure},
		{`0/0/1/5/600 200 99 - - CD-- 4/4/1/0/0 0/0 "GET / HTTP/1.1"`, measure.Demand, measure.Response},
		{`0/0/1/5/600 200 99 - - K--- 4/4/1/0/0 0/0 "GET / HTTP/1.1"`, measure.Demand, measure.Demand},
	} {
		for firstByte, want := range map[bool]measure.Verdict{false: c.want, true: c.firstByte} {
			l, err := parseLog([]byte(begin + c.line))
			if got := l.verdict(firstByte); err != nil || got != want {
				t.Errorf("%s, first byte %t: %s, %v; want %s", c.line, firstByte, got, err, want)
			}
		}
	}
	if l, err := parseLog([]byte(head + `quell b/s1 0/0/3003/9/3012 200 -- +3 {}`)); err != nil || l.verdict(false) != measure.Demand {
		t.Errorf("the short format with retries: %+v, %v", l, err)
	}
}

// Captured headers are classes only if the configuration says so, and lines that are written before the end are reported.
func TestCapturesAndEarlyLines(t *testing.T) {
	for captured, want := range map[bool]int{false: 0, true: 1} {
		m := newMonitor(&Driver{opts: Options{Backend: "b"}}, monitorOptions{Captured: captured, Log: conn{}})
		for range 10 {
			m.hear([]byte(head + `c:1 [d] f b/s1 0/0/1/5/+6 200 +99 - - ---- 1/1/0/0/0 0/0 {203.0.113.7} "GET / HTTP/1.1"`))
		}
		w := &window{log: m.takeLog(), length: time.Second}
		if n := len(w.log.servers["s1"].tally.Arrivals()); n != want {
			t.Errorf("captured %t: %d classes, want %d", captured, n, want)
		}
		if w.unfinished(false) == nil || w.unfinished(true) != nil {
			t.Error("option logasap must be reported, unless the first byte is what counts")
		}
	}
	poll := balancer.Classes{{Name: "poll", Path: "/poll", Outside: true}}
	m := newMonitor(&Driver{opts: Options{Backend: "b"}}, monitorOptions{Classes: poll})
	m.hear([]byte(head + `c:1 [d] f b/s1 0/0/1/3/30004 200 99 - - ---- 1/1/0/0/0 0/0 "GET /poll HTTP/1.1"`))
	o := m.takeLog().servers["s1"].tally.Observation(time.Unix(1, 0), time.Second, 0)
	if _, known := o.LatencyMS.Of(quell.Mean); known || o.RequestRates["poll"] != 0 && o.LatencyByClassMS != nil {
		t.Errorf("a class outside the objective has response times: %+v", o)
	}
}

// Counters that survive a reload are no arrivals.
func TestCountersThatSurviveAReload(t *testing.T) {
	for _, c := range []struct{ requests, total, want int64 }{{120, 4000120, 120}, {120, 3999000, 0}, {130, 120, 120}, {0, 120, 120}} {
		counts := newCounters()
		at := func(total, requests int64) *view {
			return &view{info: info{requests: requests}, servers: map[string]*server{"a": {name: "a", total: total}}}
		}
		counts.take(at(4000000, 4000000), true, false)
		counts.take(at(c.total, c.requests), false, true)
		if got := counts.window["a"].arrived; got != c.want {
			t.Errorf("%d after the reload, of a process with %d requests: %d arrivals, want %d", c.total, c.requests, got, c.want)
		}
	}
}
