// Package budget keeps the error budget of a service: how much of its time, or of its requests, may miss the objective, how much did, and
// because of what. Pure: times are arguments, and a ledger is a value that the controller stores.
package budget

import (
	"cmp"

	"github.com/quellhq/quell"
)

// Cause is what made a service miss its objective.
type Cause string

// The causes. A miss counts for the first of them that applies, in the order of cause.
const (
	Neighbours Cause = "neighbours" // strangers' workloads on the machines
	OwnLoad    Cause = "own_load"   // more load than the instances carry
	OwnWork    Cause = "own_work"   // work of the machines that is no request
	Failures   Cause = "failures"   // failed instances or requests
	Releases   Cause = "releases"   // instances that are being replaced
	Unknown    Cause = "unknown"
)

// Causes lists all causes.
var Causes = []Cause{Neighbours, OwnLoad, OwnWork, Failures, Releases, Unknown}

// leastSample is how many response times of a period an instance needs to be judged by them alone, and how many requests if too many of
// them fail.
const leastSample = 10

// Verdict says how a period went.
type Verdict struct {
	Judged     bool    // enough response times were measured
	Unmeasured bool    // there were requests, and nothing measures the objective's statistic
	Requests   float64 // of the judged instances; if the service was down, all that arrived
	Over       float64 // of those, to instances that missed the objective
	Misses     []Miss  // the instances that missed it: first those that are judged alone, in the order of the snapshot
	Down       bool    // requests arrived, and no instance was ready
}

// Miss is an instance that missed the objective in a period.
type Miss struct {
	Instance *quell.Instance
	Times    float64 // its response time, as a multiple of the threshold; 0: not known, as if all its requests failed
	Own      float64 // the same of the instance alone, if it is judged together with others
	Requests float64
	Failing  bool // too many of its requests failed
}

func (m *Miss) worse(than *Miss) bool {
	if m.Failing != than.Failing {
		return m.Failing
	}
	return cmp.Or(cmp.Compare(m.Times, than.Times), cmp.Compare(m.Own, than.Own)) > 0
}

// Judge compares the ready instances of a snapshot with the objective. If each of them meets it, so does the service. Instances
// that are too small to be judged alone are judged together.
func Judge(service *quell.Service, s *quell.Snapshot) (v Verdict) {
	ready, seen := 0, false
	var small together
	for i := range s.Instances {
		in := &s.Instances[i]
		if in.State != quell.Ready || in.Held != nil {
			continue
		}
		ready++
		o := in.Observation
		if o == nil {
			continue
		}
		ms, measured := o.LatencyMS.Of(service.SLO.Metric)
		m := Miss{Instance: in, Times: ms / service.SLO.ThresholdMS(), Failing: fails(service, o.ErrorRate)}
		if m.Requests = requests(o, m.Failing); m.Requests < leastSample {
			small.add(m, measured)
			continue
		}
		seen = true
		v.judge(measured, m)
	}
	if small.requests >= leastSample {
		seen = true
		v.judge(small.measured > 0, small.judged(service)...)
	}
	v.Unmeasured = seen && !v.Judged
	if ready == 0 {
		v.Requests = offered(s) * service.Sampling.Seconds()
		v.Down = v.Requests > 0
		v.Judged = v.Down
	}
	return v
}

// fails returns whether too many requests fail.
func fails(service *quell.Service, errorRate *float64) bool {
	return service.Guard.ErrorRate > 0 && errorRate != nil && *errorRate > service.Guard.ErrorRate
}

// judge counts instances that are judged as one.
func (v *Verdict) judge(measured bool, as ...Miss) {
	for _, m := range as {
		if !measured && !m.Failing {
			return
		}
		v.Judged = true
		v.Requests += m.Requests
		if m.Failing || m.Times > 1 {
			v.Over += m.Requests
			v.Misses = append(v.Misses, m)
		}
	}
}

// together are instances with too few requests each.
type together struct {
	all                          []Miss
	requests, measured, response float64 // requests; those with a response time, and the sum of these, as multiples of the threshold
	failed                       float64
}

func (t *together) add(m Miss, measured bool) {
	if m.Requests == 0 {
		return
	}
	t.all, t.requests = append(t.all, m), t.requests+m.Requests
	if measured {
		t.measured, t.response = t.measured+m.Requests, t.response+m.Requests*m.Times
	}
	if o := m.Instance.Observation; o.ErrorRate != nil {
		t.failed += *o.ErrorRate * m.Requests
	}
}

// judged returns the instances as each is judged: by the mean of their response times and of their errors.
func (t *together) judged(service *quell.Service) []Miss {
	rate, times := t.failed/t.requests, 0.0
	if t.measured > 0 {
		times = t.response / t.measured
	}
	for i := range t.all {
		m := &t.all[i]
		m.Own, m.Times, m.Failing = m.Times, times, fails(service, &rate)
	}
	return t.all
}

// offered returns how many requests per second arrived, whether or not there was an instance for them. What instances got that are all gone
// may have been answered.
func offered(s *quell.Snapshot) float64 {
	if s.ArrivalRate == nil || len(s.Instances) == 0 {
		return s.Unserved
	}
	return *s.ArrivalRate + s.Unserved
}

// requests returns how many requests of its window an instance is judged by: those that have a response time. Of a failing instance all
// count, because a failed request has none.
func requests(o *quell.Observation, failing bool) (n float64) {
	if o.LatencyMS != nil {
		n = float64(o.LatencyMS.N)
	}
	if failing && o.RequestRate != nil {
		n = max(n, *o.RequestRate*o.WindowS)
	}
	return n
}

// Missed returns the part of a judged period that was missed: of its time, all or nothing; of its requests, those to instances that missed.
func (v *Verdict) Missed(of quell.BudgetOf) float64 {
	switch {
	case v.Down:
		return 1
	case of == quell.OfRequests && v.Requests > 0:
		return v.Over / v.Requests
	case len(v.Misses) > 0:
		return 1
	}
	return 0
}

// Causes divides the part of a period that was missed among its causes, by the plan that was made from the same snapshot. releasing says
// that instances are being replaced. Time counts for the instance that was slowest.
func (v *Verdict) Causes(of quell.BudgetOf, s *quell.Snapshot, plan *quell.Plan, releasing bool) map[Cause]float64 {
	missed := v.Missed(of)
	switch {
	case missed == 0:
		return nil
	case v.Down || len(v.Misses) == 0:
		return map[Cause]float64{Failures: missed}
	}
	f := facts{plan: plan, releasing: releasing}
	for i := range s.Instances {
		f.failed = f.failed || s.Instances[i].State == quell.Failed
	}
	for _, r := range plan.Reasons {
		f.short = f.short || r.Code == "capacity_short" || r.Code == "overload"
	}
	if of != quell.OfRequests {
		worst := &v.Misses[0]
		for i := range v.Misses {
			if m := &v.Misses[i]; m.worse(worst) {
				worst = m
			}
		}
		return map[Cause]float64{f.cause(worst): missed}
	}
	parts := map[Cause]float64{}
	for i := range v.Misses {
		parts[f.cause(&v.Misses[i])] += v.Misses[i].Requests / v.Requests
	}
	return parts
}

// facts are what is known of a period beside its misses.
type facts struct {
	plan                     *quell.Plan
	releasing, failed, short bool
}

const (
	// muchWork is the use of a resource from which on own work explains a miss.
	muchWork = 0.1
	// nearlyFull is the part of its capacity from which on an instance's load explains a miss.
	nearlyFull = 0.9
)

func (f *facts) cause(m *Miss) Cause {
	id, plan := m.Instance.ID, f.plan
	waits := plan.Waits[id].Cause
	switch {
	case m.Failing:
		return Failures
	case f.releasing || m.Instance.Replaces != "":
		return Releases
	case plan.OwnWork[id].Use >= muchWork:
		return OwnWork
	case plan.Severity[id] > 0 && plan.Cause[id] != "" || waits == quell.NeighboursCause || waits == quell.HypervisorCause:
		return Neighbours
	case f.failed:
		return Failures
	case f.short || plan.Used[id] >= nearlyFull:
		return OwnLoad
	}
	return Unknown
}
