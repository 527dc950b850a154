package builtin

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell/balancer/measure"
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
	tally     *measure.Tally
	open      int64
	openSince time.Time // until when openTime is accounted
	openTime  time.Duration

	metrics *instanceMetrics
}

func newMeter(now time.Time, m *instanceMetrics) *meter {
	return &meter{began: now, openSince: now, tally: measure.New(), metrics: m}
}

func (m *meter) requestSent(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account(now)
	m.open++
	m.tally.Arrived++
}

func (m *meter) requestMoved(now time.Time) {
	m.metrics.moved.Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account(now)
	m.open--
	m.tally.Arrived--
	m.tally.Moved++
}

func (m *meter) requestDone(now time.Time, r result) {
	m.metrics.observe(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account(now)
	m.open--
	m.tally.Requests++
	if r.failed {
		m.tally.Errors++
	}
	if r.counted {
		m.tally.Latency(r.took)
	}
}

func (m *meter) connected(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tally.Connect(took)
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
}

func (m *instanceMetrics) observe(r result) {
	m.byCode[r.code].Inc()
	if r.counted {
		m.latency.Observe(r.took.Seconds())
	}
}
