package scenario

import (
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Judge compares the requests of one run with the objective, by the rules that Result describes. Requests may be added in any
// order. It stores every response time (8 bytes each), so that its percentiles are exact.
type Judge struct {
	opts    JudgeOptions
	windows []tally
}

// JudgeOptions are the rules by which a run is judged. All fields must be above zero.
type JudgeOptions struct {
	SLO      quell.SLO
	Duration time.Duration // of the run; requests that were meant to be sent later are not judged
	Judging
}

// Sample is one request as its client measured it.
type Sample struct {
	Intended time.Duration // when it was meant to be sent, since the start of the run
	Finished time.Duration // when the last byte of the answer arrived, or the request failed
	Instance string        // the instance that answered; empty if unknown
	Latency  time.Duration // from Intended to the last byte; ignored if it failed
	Failed   bool
}

// Window is the result of one judge window.
type Window struct {
	Start    time.Duration
	Length   time.Duration // the last window of a run may be shorter
	Violated bool
	Failed   int64              // requests that failed
	MetricMS map[string]float64 // the objective's metric, by instance; only instances with enough requests in the window
}

// Verdict is the part of a Result that Judge computes.
type Verdict struct {
	Requests  int64 // including failed ones
	Errors    int64
	LatencyMS quell.Latency // of the requests that did not fail
	SLO       SLOResult
	Windows   []Window
}

// tally collects the requests of one window.
type tally struct {
	latencies map[string][]time.Duration // by instance; without failed requests
	failed    int64
}

// NewJudge returns a judge without requests.
func NewJudge(opts JudgeOptions) *Judge {
	count := (opts.Duration + opts.Window - 1) / opts.Window
	return &Judge{opts: opts, windows: make([]tally, count)}
}

// Add counts a request in the window in which it was meant to be sent.
func (j *Judge) Add(s Sample) {
	if s.Intended < 0 || s.Intended >= j.opts.Duration {
		return
	}
	t := &j.windows[s.Intended/j.opts.Window]
	if s.Failed {
		t.failed++
		return
	}
	if t.latencies == nil {
		t.latencies = map[string][]time.Duration{}
	}
	t.latencies[s.Instance] = append(t.latencies[s.Instance], s.Latency)
}

// Verdict judges the requests added so far, over the whole duration of the run.
func (j *Judge) Verdict() Verdict {
	v := Verdict{
		SLO:     SLOResult{Metric: j.opts.SLO.Metric, ThresholdMS: j.opts.SLO.ThresholdMS()},
		Windows: make([]Window, len(j.windows)),
	}
	var all []time.Duration
	var violated time.Duration
	for i, t := range j.windows {
		v.Errors += t.failed
		for _, latencies := range t.latencies {
			all = append(all, latencies...)
		}
		v.Windows[i] = j.window(i)
		if v.Windows[i].Violated {
			violated += v.Windows[i].Length
		}
	}
	v.Requests = int64(len(all)) + v.Errors
	v.LatencyMS = Summarize(all)
	v.SLO.RequestsOver = v.Errors + int64(len(all)-within(all, j.opts.SLO.Threshold))
	v.SLO.ViolationS = violated.Seconds()
	v.SLO.ViolationShare = violated.Seconds() / j.opts.Duration.Seconds()
	return v
}

func (j *Judge) window(i int) Window {
	start := time.Duration(i) * j.opts.Window
	t := &j.windows[i]
	w := Window{
		Start: start, Length: min(j.opts.Window, j.opts.Duration-start),
		Failed: t.failed, Violated: t.failed > 0, MetricMS: map[string]float64{},
	}
	for instance, latencies := range t.latencies {
		if len(latencies) < j.opts.Requests {
			continue
		}
		summary := Summarize(latencies)
		w.MetricMS[instance], _ = summary.Of(j.opts.SLO.Metric)
		if w.MetricMS[instance] > j.opts.SLO.ThresholdMS() {
			w.Violated = true
		}
	}
	return w
}

// Summarize returns the mean and the exact percentiles of the latencies, in milliseconds. The p-th percentile is the smallest latency
// such that at least p percent of all are not longer. Without latencies, no statistic is set. It sorts its argument.
func Summarize(latencies []time.Duration) quell.Latency {
	n := len(latencies)
	if n == 0 {
		return quell.Latency{}
	}
	slices.Sort(latencies)
	var sum float64
	for _, l := range latencies {
		sum += milliseconds(l)
	}
	mean := sum / float64(n)
	rank := func(percent int) *float64 {
		ms := milliseconds(latencies[(percent*n+99)/100-1])
		return &ms
	}
	return quell.Latency{Mean: &mean, P50: rank(50), P90: rank(90), P95: rank(95), P99: rank(99), N: n}
}

// within counts the latencies that are not longer than the threshold. They must be sorted.
func within(latencies []time.Duration, threshold time.Duration) int {
	n, _ := slices.BinarySearch(latencies, threshold+1)
	return n
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Reactions returns, in seconds, the median and the maximum of the times from each mark to the first applied change after it. A mark
// without a later change does not count. The result is nil if no mark counts. Both lists must be in order of time.
func Reactions(marks, changes []time.Duration) *Reaction {
	var seconds []float64
	for _, mark := range marks {
		next, _ := slices.BinarySearch(changes, mark+1)
		if next < len(changes) {
			seconds = append(seconds, (changes[next] - mark).Seconds())
		}
	}
	if len(seconds) == 0 {
		return nil
	}
	slices.Sort(seconds)
	n := len(seconds)
	return &Reaction{Median: (seconds[(n-1)/2] + seconds[n/2]) / 2, Max: seconds[n-1]}
}
