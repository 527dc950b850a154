package sim

import "time"

// Window is one judge window of a run. A statistic is absent if it had too few requests.
type Window struct {
	Start    time.Duration // since measuring started
	Length   time.Duration
	Requests int64 // that did not fail
	Failed   int64
	Over     int64    // requests that did not fail but took longer than the threshold
	MeanMS   *float64 // over all instances
	WorstMS  *float64 // the objective's metric at the worst of the instances with enough requests
	Violated bool
	ByMS     map[int]float64 // the objective's metric of each instance with requests; the first that was started is 0
}

// window describes a ledger before it is dropped.
func (a *account) window(l *ledger, start, length time.Duration, violated bool) Window {
	w := Window{Start: start, Length: length, Failed: l.failed, Over: l.over, Violated: violated, ByMS: map[int]float64{}}
	var sum time.Duration
	for i := range l.instances {
		t := &l.instances[i]
		w.Requests += int64(t.n)
		if sum += t.sum; t.n == 0 {
			continue
		}
		metric := t.metric(a.opts.SLO.Metric)
		w.ByMS[i] = metric
		if t.n < a.opts.Requests {
			continue
		}
		if w.WorstMS == nil || metric > *w.WorstMS {
			w.WorstMS = &metric
		}
	}
	if w.Requests > 0 {
		mean := milliseconds(sum) / float64(w.Requests)
		w.MeanMS = &mean
	}
	return w
}
