package scenario

import (
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Judge compares the requests of one run with the objective, by the rules that quell.Result describes. Requests may
// be added in any order. It keeps every latency (8 bytes each), so that its percentiles are exact.
type Judge struct {
	opts    JudgeOptions
	windows []tally
}

// JudgeOptions says what a run is held against. All fields must be above zero.
type JudgeOptions struct {
	SLO      quell.SLO
	Duration time.Duration // of the run; requests meant for a later moment are not judged
	Judging
}

// Sample is one request as its client saw it.
type Sample struct {
	Intended time.Duration // when it was meant to be sent, since the start of the run
	Finished time.Duration // when its last byte arrived, or it failed
	Instance string        // that answered; empty if unknown
	Latency  time.Duration // from Intended to the last byte; ignored if it failed
	Failed   bool
}

// Window is the result of one judge window.
type Window struct {
	Start    time.Duration
	Length   time.Duration // the last window of a run may be shorter
	Violated bool
	Failed   int64              // requests that failed
	MetricMS map[string]float64 // the objective's metric at each instance with enough requests to count
}

// Verdict is the judged part of a Result.
type Verdict struct {
	Requests  int64 // failed ones included
	Errors    int64
	LatencyMS quell.Latency // of the requests that did not fail
	SLO       quell.SLOResult
	Windows   []Window
}

// tally collects the requests of a window.
type tally struct {
	latencies map[string][]time.Duration // by instance, of requests that did not fail
	failed    int64
}

// NewJudge returns a judge that has seen no request yet.
func NewJudge(opts JudgeOptions) *Judge {
	count := (opts.Duration + opts.Window - 1) / opts.Window
	return &Judge{opts: opts, windows: make([]tally, count)}
}

// Add counts one request in the window of its intended send time.
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

// Verdict judges what was added so far, over the whole run.
func (j *Judge) Verdict() Verdict {
	v := Verdict{
		SLO:     quell.SLOResult{Metric: j.opts.SLO.Metric, ThresholdMS: j.opts.SLO.ThresholdMS()},
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

// Summarize returns the mean and the exact percentiles of the latencies, in milliseconds: the p-th percentile is the
// smallest latency that at least p percent of them do not exceed. No latency, no statistic. It sorts its argument.
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

// within counts the latencies, in order, that are no longer than the threshold.
func within(latencies []time.Duration, threshold time.Duration) int {
	n, _ := slices.BinarySearch(latencies, threshold+1)
	return n
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Reactions returns the time, in seconds, from each mark to the first applied change after it: the median and the
// maximum. A mark without a later change has no reaction; without any the result is nil. Both lists are in order of
// time.
func Reactions(marks, changes []time.Duration) *quell.Reaction {
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
	return &quell.Reaction{Median: (seconds[(n-1)/2] + seconds[n/2]) / 2, Max: seconds[n-1]}
}
