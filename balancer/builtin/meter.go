package builtin

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell"
)

// Histograms hold 1 µs to 1 h within 1%, in 25 KB; what takes longer counts as 1 h.
const (
	histogramMaxUS  = int64(time.Hour / time.Microsecond)
	histogramDigits = 2
)

// result is how one request ended at the instance that had the last word on it.
type result struct {
	code    string        // class of the status, or "aborted" where the response never got to its end
	failed  bool          // no connection, 5xx, or cut off by the instance or by a client tired of waiting
	took    time.Duration // from the request's arrival to the last byte
	counted bool          // whether took is a response time: it is not for failures, nor for upgraded connections
}

// meter measures one instance. It outlives a backend that moves to another address under the same name.
type meter struct {
	mu        sync.Mutex
	began     time.Time // of the current window
	tally     *tally
	open      int64
	openSince time.Time // until when openTime is accounted
	openTime  time.Duration

	metrics *instanceMetrics
}

// tally is what is counted in one window.
type tally struct {
	arrived  int64 // requests given to the instance, without those moved away again
	requests int64 // requests that finished
	errors   int64 // failed among them
	moved    int64 // connections that could not be opened, their requests moved to another instance
	sum      time.Duration
	latency  *hdrhistogram.Histogram // µs
	connect  *hdrhistogram.Histogram // µs
}

func newTally() *tally {
	return &tally{
		latency: hdrhistogram.New(1, histogramMaxUS, histogramDigits),
		connect: hdrhistogram.New(1, histogramMaxUS, histogramDigits),
	}
}

func (t *tally) reset() {
	t.latency.Reset()
	t.connect.Reset()
	*t = tally{latency: t.latency, connect: t.connect}
}

func newMeter(now time.Time, m *instanceMetrics) *meter {
	return &meter{began: now, openSince: now, tally: newTally(), metrics: m}
}

func (m *meter) requestSent(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account(now)
	m.open++
	m.tally.arrived++
}

func (m *meter) requestMoved(now time.Time) {
	m.metrics.moved.Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account(now)
	m.open--
	m.tally.arrived--
	m.tally.moved++
}

func (m *meter) requestDone(now time.Time, r result) {
	m.metrics.observe(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account(now)
	m.open--
	m.tally.requests++
	if r.failed {
		m.tally.errors++
	}
	if r.counted {
		m.tally.sum += r.took
		record(m.tally.latency, r.took)
	}
}

func (m *meter) connected(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	record(m.tally.connect, took)
}

// account adds up open requests over time, so that the window's mean is exact. Callers look at the clock before they get
// the lock, so a later one may bring an earlier time.
func (m *meter) account(now time.Time) {
	if now.Before(m.openSince) {
		return
	}
	m.openTime += time.Duration(m.open) * now.Sub(m.openSince)
	m.openSince = now
}

// rotate ends the window and starts the next with an empty tally. It returns the old tally, how long the window was, and the
// mean number of open requests in it.
func (m *meter) rotate(now time.Time, empty *tally) (old *tally, window time.Duration, meanOpen float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account(now)
	window = max(0, now.Sub(m.began))
	if window > 0 {
		meanOpen = float64(m.openTime) / float64(window)
	}
	old, m.tally, m.began, m.openTime = m.tally, empty, now, 0
	return old, window, meanOpen
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d.Microseconds(), 0), histogramMaxUS)) // in range by construction
}

// observation is the window as an Observation. RequestRate counts requests when they arrive, so that the rates of a group
// sum to what is offered: under overload fewer finish. ErrorRate is over those that finished, and includes connections
// whose requests were moved elsewhere, over all attempts.
func (t *tally) observation(at time.Time, window time.Duration, meanOpen float64) quell.Observation {
	o := quell.Observation{At: at, WindowS: window.Seconds(), InFlight: &meanOpen}
	if window > 0 {
		rate := float64(max(0, t.arrived)) / window.Seconds() // one that arrived before the window may be moved in it
		o.RequestRate = &rate
	}
	if attempts := t.requests + t.moved; attempts > 0 {
		rate := float64(t.errors+t.moved) / float64(attempts)
		o.ErrorRate = &rate
	}
	if n := t.latency.TotalCount(); n > 0 {
		o.LatencyMS = t.latencySummary(n)
	}
	if t.connect.TotalCount() > 0 {
		o.TCP = map[string]float64{"connect_ms_p90": milliseconds(t.connect.ValueAtPercentile(90))}
	}
	return o
}

func (t *tally) latencySummary(n int64) *quell.Latency {
	mean := float64(t.sum) / float64(n) / float64(time.Millisecond)
	p := t.latency.ValueAtPercentilesSlice([]float64{50, 90, 95, 99})
	ms := make([]float64, len(p))
	for i, us := range p {
		ms[i] = milliseconds(us)
	}
	return &quell.Latency{Mean: &mean, P50: &ms[0], P90: &ms[1], P95: &ms[2], P99: &ms[3], N: int(n)}
}

func milliseconds(us int64) float64 { return float64(us) / 1000 }

// instanceMetrics are one instance's Prometheus series.
type instanceMetrics struct {
	byCode  map[string]prometheus.Counter
	latency prometheus.Observer
	moved   prometheus.Counter
}

func (m *instanceMetrics) observe(r result) {
	m.byCode[r.code].Inc()
	if r.counted {
		m.latency.Observe(r.took.Seconds())
	}
}
