// Package redline finds how much load one instance carries within the objective, by raising its share of the traffic step by step. It stops
// before the objective breaks, and when anything else happens. It is pure: the caller sets the shares, and puts them back.
package redline

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// Options of a test. All are required.
type Options struct {
	Instance string
	SLO      quell.SLO
	Risk     float64 // the share of the service's requests that may miss the objective because of the test
}

const (
	settle    = 1    // periods after a change of the share that are not used
	patience  = 5    // periods in which a share must take effect
	minLevel  = 2    // periods of a level
	maxLevel  = 12   // likewise, if they have few requests
	enough    = 400  // requests at which a level ends
	few       = 20   // requests that a period needs to be used
	nearly    = 0.94 // of the capacity: a level beyond it is the last
	ceiling   = 0.85 // of the threshold: the metric that a next level may be predicted to reach
	sure      = 0.6  // of the threshold: below it, the line alone does not end the test
	least     = 0.04 // of the rate: the smallest step
	most      = 0.15 // of the rate: the largest step, as it is expected from the steps before
	mostShare = 0.97 // the others must stay in use
	foreign   = 0.3  // increase of severity that counts as a neighbour
	failing   = 0.01 // error rate that ends the test
	surprise  = 1.35 // by how much a metric may exceed what the load explains, in addition to its noise
)

// Period is what is known at the end of a sampling period.
type Period struct {
	Snapshot *quell.Snapshot
	Severity *float64 // of the instance, as the policy sees it; nil: not known
}

// Move is what is to be done after a period.
type Move struct {
	Share float64 // the share to set, or to renew, for the next period
	Done  bool    // the test is over: the share of before is to be put back
	Level *Level  // a level that has just been completed
}

// Level is a share at which the instance was measured.
type Level struct {
	Share       float64                    `json:"share"`
	Rate        float64                    `json:"rate"` // requests per second
	Utilization map[quell.Resource]float64 `json:"utilization,omitempty"`
	MS          float64                    `json:"ms"` // the objective's metric
	Requests    int                        `json:"requests"`
	Seconds     float64                    `json:"seconds"`
	Periods     []*quell.Observation       `json:"-"` // what was measured in each of its periods
}

// Result is what a test found.
type Result struct {
	Instance    string         `json:"instance"`
	Why         string         `json:"why"`            // why it ended
	Interrupted bool           `json:"interrupted"`    // it ended because of something else than what it looked for
	Rate        *Interval      `json:"rate,omitempty"` // requests per second within the objective; absent: not known
	Use         *Interval      `json:"use,omitempty"`  // the same as utilisation of Resource
	Resource    quell.Resource `json:"resource,omitempty"`
	Reached     float64        `json:"reached"` // the highest rate that was measured
	ReachedUse  float64        `json:"reached_use,omitempty"`
	Requests    int            `json:"requests"` // of the whole service during the test
	Over        float64        `json:"over"`     // requests of the instance that missed the objective
	Levels      []Level        `json:"levels"`
}

// Test is a test in progress.
type Test struct {
	o        Options
	ready    []string // instances in rotation when it began
	severity *float64
	began    float64 // the share of before

	share   float64        // wanted now
	waited  int            // periods for the share to take effect
	settled int            // periods since it took effect
	silent  int            // periods without a reading
	slow    map[string]int // consecutive periods in which another instance missed the objective

	parts []part // of the levels
	at    part   // of the level in progress
	since part   // since the last step

	level   []sample
	use     map[quell.Resource]float64 // summed over the level's samples
	uses    map[quell.Resource]float64 // summed utilisation over all samples in which it is known
	rates   map[quell.Resource]float64 // summed rates of these
	seconds float64
	all     []sample
	periods []*quell.Observation
	result  Result
}

// New begins a test, or says why it cannot begin.
func New(o Options, p Period) (*Test, error) {
	in := find(p.Snapshot, o.Instance)
	switch {
	case o.SLO.Threshold <= 0:
		return nil, fmt.Errorf("the service has no objective: there is nothing to compare with")
	case in == nil:
		return nil, fmt.Errorf("no instance %q", o.Instance)
	case in.Held != nil:
		return nil, fmt.Errorf("%s is out of rotation by %s", in.ID, in.Held.By)
	case in.State != quell.Ready || in.Replaces != "":
		return nil, fmt.Errorf("%s is not ready: it is %s", in.ID, in.State)
	case in.Override != nil:
		return nil, fmt.Errorf("the share of %s is set by hand: quell override %s clear ends that", in.ID, in.ID)
	case in.Weight == nil || *in.Weight <= 0:
		return nil, fmt.Errorf("%s gets no requests", in.ID)
	}
	ready := rotation(p.Snapshot)
	if len(ready) < 2 {
		return nil, fmt.Errorf("%s is the only instance in rotation: it has all requests already", in.ID)
	}
	for _, other := range ready {
		if other.Override != nil {
			return nil, fmt.Errorf("the share of %s is set by hand: the test needs shares that the policy sets", other.ID)
		}
	}
	if s, ok := metric(in, o.SLO); ok && s.ms > o.SLO.ThresholdMS() {
		return nil, fmt.Errorf("%s misses the objective already: %.3g ms", in.ID, s.ms)
	}
	return &Test{o: o, ready: idsOf(ready), severity: p.Severity, began: *in.Weight, share: *in.Weight, slow: map[string]int{},
		use: map[quell.Resource]float64{}, uses: map[quell.Resource]float64{}, rates: map[quell.Resource]float64{},
		result: Result{Instance: o.Instance}}, nil
}

func find(s *quell.Snapshot, id string) *quell.Instance {
	for i := range s.Instances {
		if s.Instances[i].ID == id {
			return &s.Instances[i]
		}
	}
	return nil
}

// rotation lists the instances that get requests, by their IDs.
func rotation(s *quell.Snapshot) (list []*quell.Instance) {
	for i := range s.Instances {
		if in := &s.Instances[i]; in.State == quell.Ready && in.Held == nil && in.Replaces == "" {
			list = append(list, in)
		}
	}
	slices.SortFunc(list, func(a, b *quell.Instance) int { return strings.Compare(a.ID, b.ID) })
	return list
}

func idsOf(list []*quell.Instance) []string {
	ids := make([]string, len(list))
	for i, in := range list {
		ids[i] = in.ID
	}
	return ids
}

// metric returns what an instance did in the last period, and whether that is known and enough to judge by.
func metric(in *quell.Instance, slo quell.SLO) (s sample, ok bool) {
	o := in.Observation
	if o == nil || o.RequestRate == nil {
		return s, false
	}
	ms, ok := o.LatencyMS.Of(slo.Metric)
	if !ok || ms <= 0 || *o.RequestRate <= 0 || o.LatencyMS.N < few {
		return s, false
	}
	return sample{*o.RequestRate, ms, float64(o.LatencyMS.N)}, true
}

// Next looks at a period and says what to do.
func (t *Test) Next(p Period) Move {
	in := find(p.Snapshot, t.o.Instance)
	if why := t.disturbed(p, in); why != "" {
		return t.end(why, true)
	}
	t.count(p.Snapshot, in)
	leapt := t.leapt(p.Snapshot)
	s, known := metric(in, t.o.SLO)
	switch {
	case !known:
		if t.silent++; t.silent > patience {
			return t.end(fmt.Sprintf("%s has too few requests, or its response times are not known", in.ID), true)
		}
		return Move{Share: t.share}
	case t.unexplained(s) != "":
		return t.end(t.unexplained(s), true)
	case leapt != "":
		return t.end(leapt, true)
	case t.risky():
		return t.end("as many requests missed the objective as may be risked", false)
	case s.ms > t.o.SLO.ThresholdMS() && t.settled > 0:
		t.take(in, s)
		return t.end("the objective was reached", false)
	}
	t.silent = 0
	if math.Abs(*in.Weight-t.share) > 0.01*t.share {
		if t.waited++; t.waited > patience {
			return t.end("the balancer does not have the share that was set", true)
		}
		return Move{Share: t.share}
	}
	t.waited = 0
	if t.settled++; t.settled <= settle {
		return Move{Share: t.share}
	}
	t.take(in, s)
	t.at.add(p.Snapshot, in.ID)
	if n := requests(t.level); len(t.level) < minLevel || n < enough && len(t.level) < maxLevel {
		return Move{Share: t.share}
	}
	return t.climb(p.Snapshot)
}

// Stop ends a test from outside.
func (t *Test) Stop(why string) { t.end(why, true) }

func requests(samples []sample) (n float64) {
	for _, s := range samples {
		n += s.n
	}
	return n
}

// disturbed returns what else than the test has changed, "" if nothing has.
func (t *Test) disturbed(p Period, in *quell.Instance) string {
	switch {
	case in == nil:
		return t.o.Instance + " is gone"
	case in.Held != nil:
		return fmt.Sprintf("%s was taken out of rotation by %s", in.ID, in.Held.By)
	case in.State != quell.Ready:
		return fmt.Sprintf("%s is %s", in.ID, in.State)
	case in.Weight == nil:
		return in.ID + " is no longer at the balancer"
	}
	ready := rotation(p.Snapshot)
	if now := idsOf(ready); !slices.Equal(now, t.ready) {
		return fmt.Sprintf("the instances in rotation changed: %v, before %v", now, t.ready)
	}
	if t.severity != nil && p.Severity != nil && *p.Severity > *t.severity+foreign {
		return fmt.Sprintf("a neighbour arrived: the severity rose from %.2f to %.2f", *t.severity, *p.Severity)
	}
	if e := rateOf(in); e > failing {
		return fmt.Sprintf("%.1f%% of the requests of %s fail", 100*e, in.ID)
	}
	for _, other := range ready {
		if other.ID == in.ID {
			continue
		}
		if other.Override != nil {
			return "an operator set the share of " + other.ID
		}
		s, known := metric(other, t.o.SLO)
		if !known || s.ms <= t.o.SLO.ThresholdMS() {
			t.slow[other.ID] = 0
			continue
		}
		if t.slow[other.ID]++; t.slow[other.ID] > 1 {
			return other.ID + " misses the objective"
		}
	}
	return ""
}

func rateOf(in *quell.Instance) float64 {
	if in.Observation == nil || in.Observation.ErrorRate == nil {
		return 0
	}
	return *in.Observation.ErrorRate
}

// unexplained says that responses take much longer than the load explains, "" if they do not.
func (t *Test) unexplained(s sample) string {
	l, ok := fit(t.all)
	if !ok || l.free < 6 {
		return ""
	}
	expected := l.at(s.rate)
	if s.ms <= expected*(surprise+3*l.noise) {
		return ""
	}
	return fmt.Sprintf("a neighbour seems to have arrived: requests take %.3g ms, the load explains %.3g ms", s.ms, expected)
}

// count adds the period's requests to those of the test.
func (t *Test) count(snapshot *quell.Snapshot, in *quell.Instance) {
	for i := range snapshot.Instances {
		if o := snapshot.Instances[i].Observation; o != nil && o.LatencyMS != nil {
			t.result.Requests += o.LatencyMS.N
		}
	}
	if in.Observation != nil {
		t.result.Over += missed(in.Observation.LatencyMS, t.o.SLO)
	}
}

// missed estimates how many requests of a period missed the objective. For a percentile these are the requests above the threshold. The
// mean promises nothing of single requests: of a period whose mean is above the threshold it is the part of the response time that is too
// much.
func missed(l *quell.Latency, slo quell.SLO) float64 {
	if l == nil {
		return 0
	}
	limit, n := slo.ThresholdMS(), float64(l.N)
	if slo.Metric == quell.Mean {
		if l.Mean != nil && *l.Mean > limit {
			return n * (1 - limit / *l.Mean)
		}
		return 0
	}
	// Between two percentiles the logarithm of what is above falls linearly, as in an exponential tail.
	above, at := 1.0, 0.0
	for _, q := range []struct {
		above float64
		ms    *float64
	}{{0.5, l.P50}, {0.1, l.P90}, {0.05, l.P95}, {0.01, l.P99}} {
		switch {
		case q.ms == nil:
		case *q.ms > limit:
			return n * math.Exp(math.Log(above)+(limit-at)/(*q.ms-at)*(math.Log(q.above)-math.Log(above)))
		default:
			above, at = q.above, *q.ms
		}
	}
	if at == 0 {
		return 0
	}
	return n * math.Exp(limit/at*math.Log(above))
}

// risky returns whether the test has used up what it may risk. At least the requests of the first levels are counted as made.
func (t *Test) risky() bool {
	return t.result.Over > 0.8*t.o.Risk*math.Max(float64(t.result.Requests), 5*enough) && len(t.result.Levels) > 0
}

// take adds a period to the level.
func (t *Test) take(in *quell.Instance, s sample) {
	o := in.Observation
	t.level, t.all = append(t.level, s), append(t.all, s)
	t.seconds += o.WindowS
	t.periods = append(t.periods, o)
	t.result.Reached = math.Max(t.result.Reached, s.rate)
	for r, u := range o.Utilization {
		t.use[r] += u
		t.uses[r] += u
		t.rates[r] += s.rate
	}
}

// climb completes the level and chooses the next one.
func (t *Test) climb(snapshot *quell.Snapshot) Move {
	level := t.complete()
	now := level.Rate
	want := (1 + most) * now
	if l, ok := fit(t.all); ok && len(t.result.Levels) >= 2 {
		threshold := t.o.SLO.ThresholdMS()
		red := l.within(threshold)
		limit := (l.a - 1/(threshold*math.Min(ceiling, 1/(1+2*l.noise)))) / l.b
		near := level.MS >= sure*threshold
		if near && (now >= nearly*red.Value || now >= 0.98*limit) {
			m := t.end("the load is as near to the objective as it may come", false)
			m.Level = &level
			return m
		}
		want = math.Min(want, now+math.Max(0.6*(red.Value-now), least*now))
		if want = math.Min(want, limit); !near { // the line may be wrong: a small step shows more
			want = math.Max(want, (1+least)*now)
		}
	}
	total := now / math.Max(level.Share, 1e-9)
	if snapshot.ArrivalRate != nil {
		total = math.Max(*snapshot.ArrivalRate, now)
	}
	if level.Share > mostShare/1.02 {
		m := t.end(fmt.Sprintf("there is not enough load for more: the service gets %.3g requests/s", total), false)
		m.Level = &level
		return m
	}
	t.share, t.settled, t.since = t.next(level.Share, want/now), 0, part{}
	return Move{Share: t.share, Level: &level}
}

// complete ends the level.
func (t *Test) complete() Level {
	n := requests(t.level)
	level := Level{Share: t.share, Requests: int(n), Seconds: t.seconds, Periods: t.periods}
	for _, s := range t.level {
		level.Rate += s.rate / float64(len(t.level))
		level.MS += s.ms * s.n / n
	}
	for r, sum := range t.use {
		quell.Put(&level.Utilization, r, sum/float64(len(t.level)))
	}
	t.result.Levels, t.parts = append(t.result.Levels, level), append(t.parts, t.at)
	t.level, t.at, t.periods, t.seconds = nil, part{}, nil, 0
	clear(t.use)
	return level
}

func (t *Test) end(why string, interrupted bool) Move {
	if t.result.Why == "" {
		t.result.Why, t.result.Interrupted = why, interrupted
	}
	return Move{Share: t.began, Done: true}
}

// Result returns what is known so far.
func (t *Test) Result() Result {
	r := t.result
	l, ok := fit(t.all)
	if !ok || len(r.Levels) < 2 {
		return r
	}
	rate := l.within(t.o.SLO.ThresholdMS())
	r.Rate = &rate
	if r.Resource = t.busiest(); r.Resource != "" {
		perRequest := t.uses[r.Resource] / t.rates[r.Resource]
		r.Use, r.ReachedUse = new(rate.times(perRequest)), r.Reached*perRequest
	}
	return r
}

// busiest is the resource of which requests use most.
func (t *Test) busiest() (most quell.Resource) {
	for _, r := range slices.Sorted(maps.Keys(t.uses)) {
		if t.rates[r] > 0 && t.uses[r] > 0 && (most == "" || t.uses[r]/t.rates[r] > t.uses[most]/t.rates[most]) {
			most = r
		}
	}
	return most
}

// known is how far beyond the largest load that was measured the law of response times is relied on, as a factor.
const known = 1.5

// Text says what was found, for people.
func (r *Result) Text(slo quell.SLO) string {
	within := fmt.Sprintf("within %v", slo.Threshold)
	risk := 0.0
	if r.Requests > 0 {
		risk = 100 * r.Over / float64(r.Requests)
	}
	end := fmt.Sprintf("ended because %s; %.2f%% of %d requests missed the objective", r.Why, risk, r.Requests)
	const atLeast = "%s carries at least %.3g requests/s %s, which is as far as the test came; how much more is not known; %s"
	switch carried := r.carried(slo); {
	case r.Rate == nil && carried == 0:
		return fmt.Sprintf("%s: not known %s; %s", r.Instance, within, end)
	case r.Rate == nil:
		return fmt.Sprintf(atLeast, r.Instance, carried, within, end)
	case r.Rate.Value > known*r.Reached:
		return fmt.Sprintf(atLeast, r.Instance, r.Reached, within, end)
	case r.Use == nil:
		return fmt.Sprintf("%s carries %.3g requests/s %s (%.3g to %.3g; measured up to %.3g); %s", r.Instance, r.Rate.Value, within,
			r.Rate.Low, r.Rate.High, r.Reached, end)
	}
	return fmt.Sprintf("%s carries %.2f %s (%.2f to %.2f of its %s, %.3g requests/s; measured up to %.2f); %s", r.Instance, r.Use.Value,
		within, r.Use.Low, r.Use.High, r.Resource, r.Rate.Value, r.ReachedUse, end)
}

// carried is the highest rate of a level within the objective, 0 if there is none.
func (r *Result) carried(slo quell.SLO) (rate float64) {
	for _, l := range r.Levels {
		if l.MS <= slo.ThresholdMS() {
			rate = max(rate, l.Rate)
		}
	}
	return rate
}

// Lasts is for how long each share is to be set, so that it ends soon if it is not renewed.
func Lasts(sampling time.Duration) time.Duration {
	return max(3*sampling, 10*time.Second)
}
