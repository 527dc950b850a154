package sim

import (
	"math"

	"github.com/quellhq/quell/lab/scenario"
)

// ejection is Envoy's outlier detection in front of the group; scenario.EjectionRules describes it. It is nil in a run without detection.
type ejection struct{ rules scenario.EjectionRules }

// monitor is what the outlier detection knows of an instance.
type monitor struct {
	failures         int // in a row
	finished, failed int // in the present interval
	ejected          bool
	at               float64 // time of its last ejection
	returned         float64 // time of its last return
	times            int     // the base time of an ejection is multiplied by this
}

// newEjection sets up the detection if the run has one, and limits how long requests may take.
func (s *simulation) newEjection() {
	s.patience = clientTimeout
	rules, on := s.Run.Ejection.Rules()
	if !on {
		return
	}
	s.ejection = &ejection{rules}
	if rules.Timeout > 0 {
		s.patience = min(s.patience, rules.Timeout.Seconds())
	}
}

// beginSweeps schedules the ends of the detection's intervals. The first interval is cut to a random length.
func (s *simulation) beginSweeps() {
	if s.ejection != nil {
		s.w.agenda.add(s.boot+s.rng.Float64()*s.ejection.rules.Interval.Seconds(), s.sweep)
	}
}

// timesOut says whether the balancer gives up requests before clients do.
func (s *simulation) timesOut() bool { return s.ejection != nil && s.patience < clientTimeout }

// heard counts a request to an instance that ended, and ejects the instance after too many failures in a row.
func (s *simulation) heard(in *instance, failed bool) {
	if s.ejection == nil {
		return
	}
	m := &in.monitor
	m.finished++
	if !failed {
		m.failures = 0
		return
	}
	m.failed++
	if m.failures++; m.failures == s.ejection.rules.Consecutive && !m.ejected {
		s.eject(in)
		m.failures = 0
	}
}

// sweep does what the detection does at the end of an interval.
func (s *simulation) sweep() {
	rules := &s.ejection.rules
	s.w.agenda.add(s.w.now+rules.Interval.Seconds(), s.sweep)
	var known []*instance
	for _, in := range s.balanced() {
		if in.monitor.ejected {
			s.readmit(in)
		} else {
			known = append(known, in)
		}
	}
	s.bySuccess(known)
	s.byFailures(known)
	for _, in := range s.balanced() {
		m := &in.monitor
		m.finished, m.failed = 0, 0
		if !m.ejected && m.times > 0 && s.w.now-m.returned >= rules.Interval.Seconds() {
			m.times--
		}
	}
}

// balanced lists the instances that the balancer knows.
func (s *simulation) balanced() (list []*instance) {
	for _, in := range s.members {
		if in.shown && !in.draining {
			list = append(list, in)
		}
	}
	return list
}

// bySuccess ejects instances whose share of successes is too far below the mean of all.
func (s *simulation) bySuccess(known []*instance) {
	rules := &s.ejection.rules
	var judged []*instance
	var sum, squares float64
	for _, in := range known {
		if in.monitor.finished >= rules.SuccessRequests {
			judged = append(judged, in)
			sum += in.monitor.succeeded()
		}
	}
	if len(judged) < rules.MinimumHosts {
		return
	}
	mean := sum / float64(len(judged))
	for _, in := range judged {
		squares += math.Pow(in.monitor.succeeded()-mean, 2)
	}
	least := mean - rules.Deviations*math.Sqrt(squares/float64(len(judged)))
	for _, in := range judged {
		if in.monitor.succeeded() < least {
			s.eject(in)
		}
	}
}

// byFailures ejects instances whose share of failures reaches the threshold. It does not compare instances.
func (s *simulation) byFailures(known []*instance) {
	rules := &s.ejection.rules
	if rules.FailurePercent == 0 {
		return
	}
	var judged []*instance
	for _, in := range known {
		if !in.monitor.ejected && in.monitor.finished >= rules.FailureRequests {
			judged = append(judged, in)
		}
	}
	if len(judged) < rules.MinimumHosts {
		return
	}
	for _, in := range judged {
		if 100*(1-in.monitor.succeeded()) >= float64(rules.FailurePercent) {
			s.eject(in)
		}
	}
}

// succeeded is the share of successes among the requests of the interval.
func (m *monitor) succeeded() float64 { return 1 - float64(m.failed)/float64(m.finished) }

// eject takes an instance out of the balancing, unless too many instances would then be ejected.
func (s *simulation) eject(in *instance) {
	rules := &s.ejection.rules
	all, out := s.balanced(), 1
	for _, other := range all {
		if other.monitor.ejected {
			out++
		}
	}
	if 100*out > rules.MostPercent*len(all) {
		return
	}
	m := &in.monitor
	m.ejected, m.at = true, s.w.now
	if float64(m.times)*rules.Base.Seconds() < (rules.Longest + rules.Base).Seconds() {
		m.times++
	}
	s.balancer.set(s.members)
	s.changed()
}

// readmit ends an instance's ejection if it has lasted long enough.
func (s *simulation) readmit(in *instance) {
	rules, m := &s.ejection.rules, &in.monitor
	if s.w.now-m.at < min(float64(m.times)*rules.Base.Seconds(), rules.Longest.Seconds()) {
		return
	}
	m.ejected, m.returned, m.failures = false, s.w.now, 0
	s.balancer.set(s.members)
	s.changed()
}
