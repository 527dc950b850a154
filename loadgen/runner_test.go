package loadgen

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fixed is a schedule of given times.
type fixed struct{ times []time.Duration }

func (f *fixed) Next() (time.Duration, bool) {
	if len(f.times) == 0 {
		return 0, false
	}
	at := f.times[0]
	f.times = f.times[1:]
	return at, true
}

func every(gap time.Duration, n int) *fixed {
	f := &fixed{}
	for i := range n {
		f.times = append(f.times, time.Duration(i)*gap)
	}
	return f
}

func serve(t testing.TB, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// run runs the options and returns the samples in order of reporting.
func run(t testing.TB, ctx context.Context, o Options) (Summary, []Sample) {
	var samples []Sample
	o.Report = func(s Sample) { samples = append(samples, s) } // without a lock, because Report must never run twice at the same time
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r.Run(ctx), samples
}

func TestRunnerAccountsForAnswers(t *testing.T) {
	var paths sync.Map
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		paths.Store(r.URL.Path, true)
		if r.Header.Get("Accept-Encoding") != "" {
			t.Error("asked for compression")
		}
		w.Header().Set(InstanceHeader, "i7")
		io.WriteString(w, strings.Repeat("x", 100_000))
	})
	sum, samples := run(t, t.Context(), Options{
		URL: url + "/files/", Arrivals: every(time.Millisecond, 20),
		PathOf: func(n int64) string { return []string{"a", "/b"}[n%2] },
	})
	if sum.Requests != 20 || sum.Errors != 0 || sum.Bytes != 20*100_000 || len(samples) != 20 {
		t.Errorf("summary %+v, %d samples", sum, len(samples))
	}
	for _, s := range samples {
		if s.Failed() || s.Instance != "i7" || s.Status != 200 || s.Bytes != 100_000 {
			t.Errorf("sample %+v", s)
		}
		if s.Sent < s.Intended || s.Finished < s.Sent || s.Latency() != s.Finished-s.Intended {
			t.Errorf("times out of order: %+v", s)
		}
	}
	for _, p := range []string{"/files/a", "/files/b"} {
		if _, ok := paths.Load(p); !ok {
			t.Errorf("%s was not asked for", p)
		}
	}
}

// A stalled server must not slow the sending: it answers only when every request has arrived, so a runner that waits for answers
// would hang. And latencies must include the waiting time, from the intended time on.
func TestStalledServerDoesNotCloseTheLoop(t *testing.T) {
	const n, stall = 60, 300 * time.Millisecond
	start := time.Now()
	var arrived atomic.Int64
	var opened time.Duration
	open := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if arrived.Add(1) == n {
			time.Sleep(time.Until(start.Add(stall)))
			opened = time.Since(start)
			close(open)
		}
		<-open
	})
	sum, samples := run(t, t.Context(), Options{URL: url, Arrivals: every(time.Millisecond, n), Start: start, Timeout: 20 * time.Second})
	if sum.Errors != 0 || len(samples) != n {
		t.Fatalf("summary %+v, %d samples: requests waited for answers to others", sum, len(samples))
	}
	for _, s := range samples {
		if s.Latency() < opened-s.Intended {
			t.Errorf("intended at %v, open opened at %v, yet the latency is %v", s.Intended, opened, s.Latency())
		}
	}
}

func TestBadAnswersAreFailures(t *testing.T) {
	short := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.Header().Set(InstanceHeader, "i1")
		w.Write(make([]byte, 400))
	}
	hang := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	refuse := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) }
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		path    string
		want    func(Sample) bool
	}{
		"a body shorter than announced": {short, "/", func(s Sample) bool {
			return errors.Is(s.Err, io.ErrUnexpectedEOF) && s.Bytes == 400 && s.Instance == "i1"
		}},
		"no answer in time": {hang, "/", func(s Sample) bool { return errors.Is(s.Err, context.DeadlineExceeded) && s.Status == 0 }},
		"an error status":   {refuse, "/", func(s Sample) bool { return s.Err == nil && s.Status == 503 && s.Bytes == 3 }},
		"an impossible path": {refuse, "/%zz", func(s Sample) bool {
			return s.Err != nil && strings.Contains(s.Err.Error(), "making the request")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{URL: serve(t, tc.handler), Path: tc.path, Arrivals: every(0, 1), Timeout: 5 * time.Second}
			if name == "no answer in time" {
				o.Timeout = 50 * time.Millisecond
			}
			sum, samples := run(t, t.Context(), o)
			if sum.Requests != 1 || sum.Errors != 1 || len(samples) != 1 || !samples[0].Failed() || !tc.want(samples[0]) {
				t.Errorf("summary %+v, samples %+v", sum, samples)
			}
		})
	}
}

// With fresh connections each request has one of its own, and how long that took; otherwise only the first has.
func TestFreshConnections(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	for _, fresh := range []bool{true, false} {
		arrivals, err := NewArrivals(ArrivalOptions{Process: Deterministic, Rate: []Step{{PerSecond: 50}}, Duration: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		_, samples := run(t, t.Context(), Options{URL: url, Arrivals: arrivals, Fresh: fresh})
		recorder := NewRecorder()
		for _, s := range samples {
			if recorder.Record(s); s.Failed() || (s.Connect > 0) != fresh {
				t.Errorf("fresh %v: %+v", fresh, s)
			}
		}
		again := NewRecorder()
		again.Merge(recorder)
		if ms := again.Total().ConnectMS; (ms != nil) != fresh || fresh && !(*ms > 0) {
			t.Errorf("fresh %v: p90 of connect times %v", fresh, ms)
		}
	}
}

func TestNobodyListening(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	sum, samples := run(t, t.Context(), Options{URL: "http://" + ln.Addr().String(), Arrivals: every(0, 3)})
	if sum.Errors != 3 || samples[0].Err == nil {
		t.Errorf("summary %+v, samples %+v", sum, samples)
	}
}

func TestTooManyOpenRequestsAreShed(t *testing.T) {
	open := make(chan struct{})
	var arrived atomic.Int64
	url := serve(t, func(http.ResponseWriter, *http.Request) { arrived.Add(1); <-open })
	shed := 0
	r, err := New(Options{URL: url, Arrivals: every(0, 10), MaxInFlight: 4, Report: func(s Sample) {
		if errors.Is(s.Err, ErrShed) {
			if shed++; shed == 6 {
				close(open) // the four other requests can only be answered from here on
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	sum := r.Run(t.Context())
	if sum.Requests != 10 || sum.Shed != 6 || sum.Errors != 6 || arrived.Load() != 4 {
		t.Errorf("summary %+v, %d arrived", sum, arrived.Load())
	}
	if !strings.Contains(strings.Join(sum.Warnings, "\n"), "6 of 10 requests were shed") {
		t.Errorf("warnings %q", sum.Warnings)
	}
}

func TestCancelledRunAbandonsWhatIsOpen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var arrived atomic.Int64
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if arrived.Add(1) == 3 {
			cancel()
		}
		<-r.Context().Done()
	})
	times := &fixed{[]time.Duration{0, 0, 0, time.Hour}}
	sum, samples := run(t, ctx, Options{URL: url, Arrivals: times})
	if sum.Requests != 0 || sum.Abandoned != 3 || len(samples) != 0 {
		t.Errorf("summary %+v, %d samples", sum, len(samples))
	}
}

func TestFallingBehindIsSaid(t *testing.T) {
	url := serve(t, func(http.ResponseWriter, *http.Request) {})
	// A start in the past makes every request late.
	sum, samples := run(t, t.Context(), Options{URL: url, Arrivals: every(0, 5), Start: time.Now().Add(-time.Second)})
	if sum.Late != 5 || sum.WorstLate < time.Second || !sum.FallingBehind() ||
		!strings.Contains(strings.Join(sum.Warnings, "\n"), "fell behind: 5 of 5") {
		t.Errorf("summary %+v", sum)
	}
	if samples[0].Latency() < time.Second {
		t.Errorf("latency %v leaves out the wait before the sending", samples[0].Latency())
	}
	if s := (Summary{Requests: 1000, Late: 10}); s.FallingBehind() {
		t.Error("1% of late requests is not yet falling behind")
	}
}

func TestRunnerMistakes(t *testing.T) {
	for name, o := range map[string]Options{
		"no scheme":     {URL: "localhost:80", Arrivals: every(0, 1)},
		"no host":       {URL: "http://", Arrivals: every(0, 1)},
		"other scheme":  {URL: "ftp://x", Arrivals: every(0, 1)},
		"no schedule":   {URL: "http://x"},
		"negative time": {URL: "http://x", Arrivals: every(0, 1), Timeout: -1},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// BenchmarkRunner requests answers of 50 KB, 2000 per second. With -cpuprofile it shows how much processor time a request needs in the
// generator and the server together.
func BenchmarkRunner(b *testing.B) {
	body := make([]byte, 50_000)
	url := serve(b, func(w http.ResponseWriter, _ *http.Request) { w.Write(body) })
	r, err := New(Options{URL: url, Arrivals: every(500*time.Microsecond, b.N)})
	if err != nil {
		b.Fatal(err)
	}
	before := cpuTime()
	sum := r.Run(b.Context())
	b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "cpu-us/req")
	if sum.Errors > 0 {
		b.Fatalf("%+v", sum)
	}
}
