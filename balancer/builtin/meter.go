package builtin

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell/balancer/measure"
)

// result is how a request ended. The result counts for the last instance that was tried.
type result struct {
	class    string          // of the request; "" if classes are not measured
	code     string          // class of the status, or "aborted" if the response was incomplete
	verdict  measure.Verdict // what the request counts as
	took     time.Duration   // from the request's arrival to the last byte, or to the first one if the objective is about that
	endless  bool            // requestSettled was called
	answered bool            // that, or requestAnswered
}

// meter measures one instance. If the instance moves to another address, it gets a new backend but keeps its meter.
type meter struct {
	mu        sync.Mutex
	began     time.Time // start of the current window
	tally     *measure.Tally
	open      int64
	openSince time.Time // openTime includes the time of open requests until then
	openTime  time.Duration

	metrics *instanceMetrics
}

func newMeter(now time.Time, m *instanceMetrics, classes ...string) *meter {
	return &meter{began: now, openSince: now, tally: measure.New(classes...), metrics: m}
}

func (m *meter) requestSent(now time.Time, class string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account(now)
	m.open++
	m.arrived(class, 1)
}

// arrived counts requests that were given to the instance; a negative number takes them back.
func (m *meter) arrived(class string, n int64) {
	m.tally.Arrived += n
	if class != "" {
		m.tally.Class(class).Arrived += n
	}
}

func (m *meter) requestMoved(now time.Time, class string) {
	m.metrics.moved.Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account(now)
	m.open--
	m.arrived(class, -1)
	m.tally.Moved++
}

// requestSettled says that a request became a stream or an upgraded connection. It is no longer an open request, however long it lasts.
func (m *meter) requestSettled(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account(now)
	m.open--
	m.tally.Answered++
}

// requestAnswered says that the answer to a request begins.
func (m *meter) requestAnswered() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tally.Answered++
}

func (m *meter) requestDone(now time.Time, r result) {
	m.metrics.observe(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account(now)
	if !r.endless {
		m.open--
	}
	switch {
	case r.verdict == measure.Nothing:
		m.arrived(r.class, -1)
	case !r.answered:
		m.tally.Answered++
	}
	m.tally.Finish(r.verdict, r.class, r.took)
}

func (m *meter) connected(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tally.Connect(took)
}

// account adds the time that requests have been open, so that the window's mean number of open requests is exact. Callers read the clock
// before they take the lock, so a later call may come with an earlier time.
func (m *meter) account(now time.Time) {
	if now.Before(m.openSince) {
		return
	}
	m.openTime += time.Duration(m.open) * now.Sub(m.openSince)
	m.openSince = now
}

// rotate ends the window and starts the next one with an empty tally. It returns the old tally, the length of its window, and the mean
// number of open requests in that window.
func (m *meter) rotate(now time.Time, empty *measure.Tally) (old *measure.Tally, window time.Duration, meanOpen float64) {
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

// instanceMetrics are one instance's Prometheus series.
type instanceMetrics struct {
	byCode  map[string]prometheus.Counter
	latency prometheus.Observer
	moved   prometheus.Counter
	shed    prometheus.Counter
}

func (m *instanceMetrics) observe(r result) {
	m.byCode[r.code].Inc()
	switch r.verdict {
	case measure.Response:
		m.latency.Observe(r.took.Seconds())
	case measure.Shed, measure.Limited:
		m.shed.Inc()
	}
}
