package builtin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/measure"
)

func testMeter(now time.Time) *meter {
	o := Options{}.withDefaults()
	return newMeter(now, newMetrics(&o).instance("i1"))
}

func TestWindowOfOneInstance(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	m := testMeter(t0)
	m.requestSent(at(0), "")
	m.requestSent(at(1000), "")
	m.requestDone(at(2000), result{code: "2xx", took: 2 * time.Second})
	m.requestDone(at(3000), result{code: "5xx", took: time.Second, verdict: measure.Failure})
	m.requestSent(at(3000), "")
	m.requestMoved(at(3000), "")
	m.requestSent(at(3000), "") // still open at the window's end
	m.connected(4 * time.Millisecond)

	tally, window, open := m.rotate(at(4000), measure.New())
	o := tally.Observation(at(4000), window, open)
	for what, c := range map[string][2]float64{
		"window":                            {o.WindowS, 4},
		"request rate (3 stayed in 4 s)":    {*o.RequestRate, 0.75},
		"error rate (1 failed, 1 moved, 3)": {*o.ErrorRate, 2.0 / 3},
		"in flight (2 s + 2 s + 1 s of 4)":  {*o.InFlight, 1.25},
		"mean":                              {*o.LatencyMS.Mean, 2000},
		"connect":                           {o.TCP["connect_ms_p90"], 4},
		"n, without the failed one":         {float64(o.LatencyMS.N), 1},
	} {
		if got, want := c[0], c[1]; math.Abs(got-want) > 0.01*want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}

	tally, window, open = m.rotate(at(6000), measure.New())
	o = tally.Observation(at(6000), window, open)
	if *o.RequestRate != 0 || *o.InFlight != 1 || o.ErrorRate != nil || o.LatencyMS != nil || o.TCP != nil {
		t.Errorf("a window with nothing but an open request: %+v", o)
	}
}

func TestTimesOutOfOrder(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := testMeter(t0)
	m.requestSent(t0.Add(20*time.Millisecond), "")
	m.requestDone(t0.Add(10*time.Millisecond), result{code: "2xx"})
	for _, now := range []time.Time{t0.Add(15 * time.Millisecond), t0.Add(14 * time.Millisecond), t0.Add(30 * time.Millisecond)} {
		tally, window, open := m.rotate(now, measure.New())
		r := quell.Reading{Service: "s", Instance: "i", Source: quell.FromBalancer, Observation: tally.Observation(now, window, open)}
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestPercentilesAreWithinAPercent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		us := rapid.SliceOfN(rapid.Int64Range(1, 5e9), 1, 300).Draw(t, "microseconds")
		m := testMeter(time.Time{})
		for _, v := range us {
			m.requestDone(time.Time{}, result{code: "2xx", took: time.Duration(v) * time.Microsecond})
		}
		slices.Sort(us)
		tally, window, open := m.rotate(time.Time{}.Add(time.Second), measure.New())
		o := tally.Observation(time.Time{}, window, open)
		for metric, share := range map[quell.Metric]float64{quell.P50: .5, quell.P90: .9, quell.P95: .95, quell.P99: .99} {
			got, _ := o.LatencyMS.Of(metric)
			rank := max(1, int(math.Round(share*float64(len(us))))) // as HdrHistogram defines it
			exact := us[rank-1]
			want := float64(min(exact, measure.MaxUS)) / 1000
			if math.Abs(got-want) > 0.01*want+0.001 {
				t.Fatalf("%s of %d values: %v ms, want %v", metric, len(us), got, want)
			}
		}
	})
}

func TestReadingsArePublished(t *testing.T) {
	var mu sync.Mutex
	var published []quell.Reading
	requestsAt := func(id string) (n, answered int64) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range published {
			if r.Instance == id {
				n, answered = n+r.Requests, answered+decoded(t, r.LatencyHDR)
			}
		}
		return n, answered
	}
	s := start(t, Options{
		Name: "lb1", Service: "video", Period: 5 * time.Millisecond, Scheduling: quell.RoundRobin,
		Publish: func(_ context.Context, r []quell.Reading) error {
			mu.Lock()
			defer mu.Unlock()
			published = append(published, r...)
			return errors.New("the bus is away") // this error must not end the reporting
		},
	})
	busy, idle := newInstance(t, "busy", nil), newInstance(t, "idle", nil)
	applyHealthy(t, s, busy.backend(1), idle.backend(0))
	for range 5 {
		get(t, client(t), s)
	}
	waitFor(t, "five requests to be reported", func() bool { n, _ := requestsAt("busy"); return n >= 5 })
	if n, answered := requestsAt("busy"); n != 5 || answered != 5 {
		t.Errorf("%d requests and %d response times in all, want 5", n, answered)
	}
	if n, _ := requestsAt("idle"); n != 0 {
		t.Errorf("%d requests at the idle instance", n)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, r := range published {
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
		if r.Sender != "lb1" || r.Service != "video" || r.Source != quell.FromBalancer || r.Observation.RequestRate == nil {
			t.Errorf("reading %+v", r)
		}
		if r.Requests == 0 && (r.Observation.LatencyMS != nil || r.LatencyHDR != nil || r.Observation.ErrorRate != nil) {
			t.Errorf("without requests: %+v", r)
		}
	}
}

// Requests that find no instance are told in each sampling period, with a fast policy and without one, and if there is no instance at all.
func TestRequestsWithoutAnInstance(t *testing.T) {
	for _, fast := range []time.Duration{0, 30 * time.Minute} {
		s := start(t, Options{Service: "video", Name: "lb1", Period: time.Hour, Fast: fast})
		in := newInstance(t, "i1", nil)
		for what, backends := range map[string][]quell.Backend{quell.NoInstance: nil, "i1": {in.backend(0)}} {
			apply(t, s, backends...)
			s.reporter.readings(time.Now().Truncate(time.Hour).Add(time.Hour))
			s.reporter.ended = time.Now().Truncate(time.Hour)
			for range 36 {
				get(t, client(t), s)
			}
			list := s.reporter.readings(s.reporter.ended.Add(time.Hour))
			last := list[len(list)-1]
			if last.Instance != what || last.Fast || last.Observation.Counters[quell.CounterUnserved] != 0.01 || last.Validate() != nil {
				t.Errorf("fast policy every %s: %+v, want a reading of %q with 0.01 a second: %v", fast, last, what, last.Validate())
			}
		}
	}
}

func TestWindowsDoNotRunIntoEachOther(t *testing.T) {
	s := start(t, Options{Period: time.Hour, Scheduling: quell.RoundRobin})
	a, b := newInstance(t, "a", nil), newInstance(t, "b", nil)
	applyHealthy(t, s, a.backend(2), b.backend(1))
	for window, requests := range []int{9, 0, 3, 0} {
		for range requests {
			get(t, client(t), s)
		}
		waitFor(t, "the requests' end", func() bool { return stateOf(t, s, "a").InFlight+stateOf(t, s, "b").InFlight == 0 })
		r := s.reporter.readings(time.Now())
		if r[0].Requests != int64(requests*2/3) || r[1].Requests != int64(requests/3) {
			t.Errorf("window %d: %d and %d requests of %d", window, r[0].Requests, r[1].Requests, requests)
		}
	}
}

// Rates and response times are measured by class, also of classes without requests, of requests that fail, and of those that were moved.
func TestClassesAreMeasured(t *testing.T) {
	var said bytes.Buffer
	s := start(t, Options{Service: "video", Period: time.Hour, Scheduling: quell.RoundRobin, Logger: slog.New(slog.NewTextHandler(&said, nil)),
		Classes: balancer.Classes{{Name: "home", Path: "/"}, {Name: "tags", Path: "/tag/*"}, {Name: "never", Path: "/never"}}})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tag/broken" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	applyHealthy(t, s, in.backend(1))
	_ = s.reporter.readings(time.Now())
	c := client(t)
	for path, n := range map[string]int{"/?a=b": 3, "/tag/x": 2, "/tag/broken": 1, "/picture": 4} {
		for range n {
			if _, err := do(c, http.MethodGet, "http://"+s.Addr()+path, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	waitFor(t, "the requests' end", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
	r := s.reporter.readings(time.Now())[0]
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
	o := r.Observation
	for class, want := range map[string]struct{ arrived, n int }{
		"home": {3, 3}, "tags": {3, 2}, "never": {0, 0}, balancer.OtherClass: {4, 4},
	} {
		rate, told := o.RequestRates[class]
		if !told || math.Abs(rate*o.WindowS-float64(want.arrived)) > 1e-6 || o.LatencyByClassMS[class].N != want.n ||
			(len(r.ClassHDR[class]) > 0) != (want.n > 0) {
			t.Errorf("class %s: rate %v (told: %t) in %v s, response times %+v", class, rate, told, o.WindowS, o.LatencyByClassMS[class])
		}
	}
	if n := len(o.RequestRates); n != 4 {
		t.Errorf("%d classes: %v", n, o.RequestRates)
	}
	s.reporter.watch.Add(s.opts.Classes, map[string]int64{"home": 989})
	get(t, c, s)
	waitFor(t, "the request's end", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
	if o := s.reporter.readings(time.Now())[0].Observation; o.RequestRates["tags"] != 0 || len(o.LatencyByClassMS) != 1 {
		t.Errorf("the next window: %+v", o)
	}
	want := "0 of the last 1000 requests match"
	if strings.Count(said.String(), want) != 1 || !strings.Contains(said.String(), "class never") {
		t.Errorf("the log says %q, want once that %s", said.String(), want)
	}
}

// A fast policy gets a reading of each of its periods; the others get one reading at the end of the sampling period.
func TestFastWindowsAddUp(t *testing.T) {
	s := start(t, Options{Period: time.Hour, Fast: 20 * time.Minute})
	in := newInstance(t, "i1", nil)
	applyHealthy(t, s, in.backend(1))
	end := time.Now().Truncate(time.Hour).Add(10 * time.Hour)
	for window, requests := range []int{2, 0, 3} {
		for range requests {
			get(t, client(t), s)
		}
		waitFor(t, "the requests' end", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
		readings := s.reporter.readings(end.Add(time.Duration(window-2) * 20 * time.Minute))
		if fast := readings[0]; !fast.Fast || fast.Requests != int64(requests) || decoded(t, fast.LatencyHDR) != int64(requests) {
			t.Errorf("window %d: %+v", window, fast)
		}
		if window < 2 && len(readings) != 1 {
			t.Errorf("window %d: %d readings", window, len(readings))
			continue
		}
		if window == 2 {
			if whole := readings[1]; whole.Fast || whole.Requests != 5 || decoded(t, whole.LatencyHDR) != 5 || whole.Observation.LatencyMS.N != 5 {
				t.Errorf("the whole period: %+v", whole)
			}
		}
	}
	s.reporter.pace.Set(time.Hour, 0)
	if r := s.reporter.readings(end.Add(time.Hour)); len(r) != 1 || r[0].Fast {
		t.Errorf("after the fast policy is gone: %+v", r)
	}
}

func decoded(t *testing.T, encoded []byte) int64 {
	t.Helper()
	if encoded == nil {
		return 0
	}
	h, err := hdrhistogram.Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return h.TotalCount()
}

func TestTheLastWindowOfAnInstanceIsReported(t *testing.T) {
	s := start(t, Options{Period: time.Hour})
	in := newInstance(t, "i1", nil)
	applyHealthy(t, s, in.backend(1))
	get(t, client(t), s)
	apply(t, s)
	waitFor(t, "the drain", func() bool { return !listed(s, "i1") })
	if r := s.reporter.readings(time.Now()); len(r) != 1 || r[0].Requests != 1 {
		t.Errorf("readings after the removal: %+v", r)
	}
	if r := s.reporter.readings(time.Now()); len(r) != 1 || r[0].Instance != quell.NoInstance {
		t.Errorf("an instance that is gone is still reported: %+v", r)
	}
	if text := scrape(t, s.metrics); strings.Contains(text, `"i1"`) {
		t.Errorf("an instance that is gone is still in the metrics:\n%s", text)
	}
}

func TestMetrics(t *testing.T) {
	s := start(t, Options{Name: "lb1", Service: "video", Metrics: "127.0.0.1:0"})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	get(t, client(t), s) // unrouted
	applyHealthy(t, s, in.backend(0.5))
	get(t, client(t), s)
	if _, err := do(client(t), http.MethodGet, "http://"+s.Addr()+"/missing", nil); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the requests' end", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
	metrics := "http://" + s.metricsEnd.listener.Addr().String()
	r, err := do(client(t), http.MethodGet, metrics+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`quell_balancer_requests_total{balancer="lb1",code="2xx",member="i1",service="video"} 1`,
		`quell_balancer_requests_total{balancer="lb1",code="4xx",member="i1",service="video"} 1`,
		`quell_balancer_latency_seconds_count{balancer="lb1",member="i1",service="video"} 2`,
		`quell_balancer_in_flight{balancer="lb1",member="i1",service="video"} 0`,
		`quell_balancer_weight{balancer="lb1",member="i1",service="video"} 0.5`,
		`quell_balancer_healthy{balancer="lb1",member="i1",service="video"} 1`,
		`quell_balancer_moved_total{balancer="lb1",member="i1",service="video"} 0`,
		`quell_balancer_unrouted_total{balancer="lb1",service="video"} 1`,
	} {
		if !strings.Contains(r.body, line+"\n") {
			t.Errorf("no %s", line)
		}
	}
	if t.Failed() {
		t.Log(r.body)
	}
	if r, err := do(client(t), http.MethodGet, metrics+"/healthz", nil); err != nil || r.status != http.StatusOK {
		t.Errorf("healthz: %+v, %v", r, err)
	}
}

func scrape(t *testing.T, m *metrics) string {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		io.WriteString(&text, f.String())
	}
	return text.String()
}

func TestCodeClasses(t *testing.T) {
	for status, want := range map[int]string{101: "1xx", 200: "2xx", 304: "3xx", 404: "4xx", 599: "5xx", 0: "5xx", 999: "5xx"} {
		if got := codeClass(status); got != want {
			t.Errorf("%d is %s, want %s", status, got, want)
		}
	}
}
