package sim

import (
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// account judges a run by the rules of scenario.Judge, in memory that does not grow with the run: a window's response times are dropped
// when its last request has ended. Percentiles of the whole run come from a histogram, within 0.1%. Requests must arrive in the order of
// their intended times.
type account struct {
	opts    scenario.JudgeOptions
	watch   func(Window) // may be nil
	windows []*ledger    // the open windows; the first of them has the number in first
	first   int
	spare   []*ledger

	requests, errors int64
	over             int64 // requests that did not fail but took longer than the threshold
	violated         time.Duration
	sum              float64 // ms
	all              *hdrhistogram.Histogram
}

// ledger collects the requests of one window.
type ledger struct {
	open      int64
	failed    int64
	over      int64 // took longer than the threshold
	instances []tally
}

// tally is one instance's part of a window.
type tally struct {
	n         int
	sum       time.Duration
	latencies []time.Duration // kept only if the objective is a percentile
}

func newAccount(o scenario.JudgeOptions) *account {
	return &account{opts: o, all: hdrhistogram.New(1, int64(time.Hour), 3)}
}

// arrive counts a new request. It returns the number of the request's window, or unjudged.
func (a *account) arrive(intended time.Duration) (window int) {
	if intended < 0 || intended >= a.opts.Duration {
		return unjudged
	}
	number := int(intended / a.opts.Window)
	for a.first+len(a.windows) <= number {
		a.windows = append(a.windows, a.newLedger())
	}
	a.windows[number-a.first].open++
	if len(a.windows) > 1 {
		a.settle(number)
	}
	return number
}

// unjudged stands for the window of requests that are not judged, because they are meant to be sent before or after the measured time.
const unjudged = -1

func (a *account) newLedger() *ledger {
	if n := len(a.spare); n > 0 {
		l := a.spare[n-1]
		a.spare = a.spare[:n-1]
		return l
	}
	return &ledger{}
}

// end counts a request that ended at an instance, or failed.
func (a *account) end(window, instance int, latency time.Duration, failed bool) {
	if window == unjudged {
		return
	}
	l := a.windows[window-a.first]
	l.open--
	a.requests++
	if failed {
		l.failed++
		a.errors++
		return
	}
	if instance >= len(l.instances) {
		l.instances = append(l.instances, make([]tally, instance+1-len(l.instances))...)
	}
	t := &l.instances[instance]
	t.n++
	t.sum += latency
	if a.opts.SLO.Metric != quell.Mean {
		t.latencies = append(t.latencies, latency)
	}
	if latency > a.opts.SLO.Threshold {
		a.over++
		l.over++
	}
	_ = a.all.RecordValue(min(max(1, int64(latency)), int64(time.Hour))) // cannot fail: the value is in range
	a.sum += milliseconds(latency)
}

// settle judges the windows that are over: they are before the current window and have no open requests.
func (a *account) settle(current int) {
	over := 0
	for ; over < len(a.windows) && a.first < current && a.windows[over].open == 0; over++ {
		l := a.windows[over]
		start := time.Duration(a.first) * a.opts.Window
		length, violated := min(a.opts.Window, a.opts.Duration-start), a.violates(l)
		if violated {
			a.violated += length
		}
		if a.watch != nil {
			a.watch(a.window(l, start, length, violated))
		}
		l.failed, l.over = 0, 0
		for i := range l.instances {
			l.instances[i] = tally{latencies: l.instances[i].latencies[:0]}
		}
		a.spare = append(a.spare, l)
		a.first++
	}
	a.windows = slices.Delete(a.windows, 0, over)
}

func (a *account) violates(l *ledger) bool {
	if l.failed > 0 {
		return true
	}
	for i := range l.instances {
		if t := &l.instances[i]; t.n >= a.opts.Requests && t.metric(a.opts.SLO.Metric) > a.opts.SLO.ThresholdMS() {
			return true
		}
	}
	return false
}

func (t *tally) metric(m quell.Metric) float64 {
	if m == quell.Mean {
		return milliseconds(t.sum) / float64(t.n)
	}
	summary := scenario.Summarize(t.latencies)
	v, _ := summary.Of(m)
	return v
}

// verdict judges the requests that have ended so far. Windows with open requests are left out.
func (a *account) verdict() scenario.Verdict {
	a.settle(a.first + len(a.windows))
	v := scenario.Verdict{Requests: a.requests, Errors: a.errors, SLO: scenario.SLOResult{
		Metric: a.opts.SLO.Metric, ThresholdMS: a.opts.SLO.ThresholdMS(),
		ViolationS: a.violated.Seconds(), ViolationShare: a.violated.Seconds() / a.opts.Duration.Seconds(),
		RequestsOver: a.errors + a.over,
	}}
	if n := a.requests - a.errors; n > 0 {
		mean := a.sum / float64(n)
		at := func(percent float64) *float64 {
			ms := milliseconds(time.Duration(a.all.ValueAtQuantile(percent)))
			return &ms
		}
		v.LatencyMS = quell.Latency{Mean: &mean, P50: at(50), P90: at(90), P95: at(95), P99: at(99), N: int(n)}
	}
	return v
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
