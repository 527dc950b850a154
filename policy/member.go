package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// member is an instance as a policy sees it: readings in the policy's resources, filled up from memory. Amounts without a resource are in
// utilisation of the group's first one.
type member struct {
	*quell.Instance
	position int           // in the snapshot
	mem      InstanceState // becomes part of the next State

	senses   []sense  // one for each resource that the policy goes by
	use      float64  // U_m, the instance's own utilisation
	capacity float64  // U_m^max, the least that its resources leave
	left     float64  // what neighbours leave it
	carry    float64  // utilisation at the least threshold that the group can keep: capacity, or more under overload
	counted  float64  // as much of the capacity as the instance may be given
	limiter  string   // what bounds that, where it is no resource
	fixed    *float64 // its share, where a person set it
	uncut    float64  // what a fast policy leaves of its share: 1 where it cuts nothing
	share    float64  // the weight that the plan gives it; at first the present one
	wanted   float64  // share before the guard

	binds     uint8 // the resource that leaves the least capacity
	fresh     bool  // there is an observation that is not stale
	overdue   bool  // its capacity has been unknown for too long to wait for it
	protected bool
	hasUse    bool
	failing   bool // answers with errors: it must not gain weight
	stays     bool // ready, and not removed by the plan
	kept      bool // stale: its share is not the policy's
}

// sense is what is known of an instance in one resource, in utilisation of that one.
type sense struct {
	use         float64 // U_m
	severity    float64 // SF_m, calibration included
	measured    float64 // the same without it
	interfering float64 // U_int
	capacity    float64 // U_m^max, as far as this resource goes

	hasUse, hasSeverity bool
	numb                bool // no severity for longer than a reading may be old
	out                 bool // not told for too long, while another one is: it does not count
	otherwise           bool // probed in another way than the models were made by, so that its probes tell no severity
	held                bool // the severity is held from before
}

// known says whether the capacity can be told as far as this resource goes.
func (s *sense) known() bool { return s.hasUse && s.hasSeverity }

// bound is what is known in the resource that binds.
func (m *member) bound() *sense { return &m.senses[m.binds] }

// weight is the fraction of traffic sent there now.
func (m *member) weight() float64 {
	if m.Weight == nil {
		return 0
	}
	return *m.Weight
}

func (m *member) age() time.Duration {
	if m.AgeS == nil {
		return 0
	}
	return time.Duration(*m.AgeS * float64(time.Second))
}

// inService says whether it is to take requests: ready, and not taken out by a person.
func (m *member) inService() bool { return m.State == quell.Ready && m.Held == nil }

// rated says whether enough is known of the instance to tell its capacity: every resource that counts for it.
func (m *member) rated() bool {
	for i := range m.senses {
		if s := &m.senses[i]; !s.out && !s.known() {
			return false
		}
	}
	return true
}

// mayGain says whether the plan can send it more: not what answers with errors, nor where a person set the share.
func (m *member) mayGain() bool { return !m.failing && m.fixed == nil }

// perceive takes the observation in and fills gaps with the last readings.
func (m *member) perceive(in *Input) {
	var memory [maxContended]Felt
	felt := memory[:len(in.contended)]
	m.mem.of(in.contended, felt)
	if m.fresh = isFresh(in, m.Observation); m.fresh {
		for i := range felt {
			m.senses[i].otherwise = felt[i].take(in, &in.contended[i], m.Observation)
		}
		m.failing = isFailing(in, m.Instance)
	}
	numb := m.fresh
	for i := range felt {
		numb = m.senses[i].recall(in, &felt[i]) && numb
	}
	m.fresh = m.fresh && !numb
	m.uncut = m.Factor.Left(in.Snapshot.At)
	m.mem.keep(in.contended, felt)
	if in.between {
		return
	}
	m.wait(in, numb)
	m.count(in.Service.Guard.StaleAfter)
}

// maxContended is how many resources there are at most.
const maxContended = 4

// recall takes the last readings over, and says whether severity has been missing for too long.
func (s *sense) recall(in *Input, felt *Felt) (numb bool) {
	if u := felt.Utilization; u != nil {
		s.use, s.hasUse = *u, true
	}
	if sf := felt.Severity; sf != nil {
		s.severity, s.measured, s.hasSeverity, s.held = *sf, *sf, true, felt.Held > 0
	}
	s.numb = felt.isNumb(in)
	return s.numb
}

// defaultPatience is for how many snapshots an instance is waited for where guard.stale_after is 0.
const defaultPatience = 3

// patience is for how many snapshots an instance is waited for.
func (in *Input) patience() int { return cmp.Or(in.Service.Guard.StaleAfter, defaultPatience) }

// wait counts the snapshots in which a policy that goes by capacity does not know all of a ready instance. After as many as a reading may
// be old, nothing waits for it: resources that it did not tell are left out, and if it told none it counts as stale.
func (m *member) wait(in *Input, numb bool) {
	m.mem.Unprobed = false
	if !m.inService() || !in.byCapacity {
		m.mem.UnratedFor = 0
		return
	}
	reports := isFresh(in, m.Observation)
	m.mem.Unprobed = numb
	if in.several() && reports && !numb {
		m.leaveOut(func(s *sense) bool { return s.numb })
	}
	if m.rated() {
		m.mem.UnratedFor = 0
		return
	}
	m.mem.UnratedFor++
	if int(m.mem.UnratedFor) <= in.patience() {
		return
	}
	if m.leaveOut(func(s *sense) bool { return !s.known() }) {
		return
	}
	m.fresh, m.overdue = false, true
	m.mem.Unprobed = reports && !m.hasSeverity()
}

// leaveOut takes resources out of the judgement of an instance, if others remain.
func (m *member) leaveOut(missing func(*sense) bool) bool {
	remains := slices.ContainsFunc(m.senses, func(s sense) bool { return !s.out && !missing(&s) })
	for i := range m.senses {
		s := &m.senses[i]
		s.out = s.out || remains && missing(s)
	}
	return remains
}

func (m *member) hasSeverity() bool {
	return slices.ContainsFunc(m.senses, func(s sense) bool { return s.hasSeverity })
}

// misses is what an instance has not told for too long.
func (m *member) misses() string {
	switch {
	case m.mem.Unprobed:
		return "severity"
	case m.overdue && m.hasSeverity():
		return "utilisation"
	}
	return "reading"
}

func isFresh(in *Input, o *quell.Observation) bool {
	if o == nil {
		return false
	}
	after := in.Service.Guard.StaleAfter
	return after == 0 || in.Snapshot.At.Sub(o.At) <= time.Duration(after)*in.Service.Sampling
}

// isNumb says whether a policy that decides by severity has had none for longer than a reading may be old: the machine
// still reports, but nobody probes it.
func (f *Felt) isNumb(in *Input) bool {
	after := in.Service.Guard.StaleAfter
	return in.feels && after > 0 && f.SeverityAt != nil && in.Snapshot.At.Sub(*f.SeverityAt) > time.Duration(after)*in.Service.Sampling
}

// isFailing says whether an instance in service answers with too many errors.
func isFailing(in *Input, i *quell.Instance) bool {
	most, rate := in.Service.Guard.ErrorRate, i.Observation.ErrorRate
	return most > 0 && rate != nil && *rate > most && i.Weight != nil
}

// take stores a fresh observation's utilisation and severity. A severity that is present wins over the probe. It returns whether
// the probe was of another kind than the models were made by, so that it tells nothing.
func (f *Felt) take(in *Input, c *contended, o *quell.Observation) (otherwise bool) {
	at := o.At
	if u, ok := o.Utilization[c.resource]; ok {
		f.Utilization = &u
	}
	if sf, ok := o.Severity[c.resource]; ok {
		f.Severity, f.SeverityAt, f.Significant = &sf, &at, sf > 0
		f.Passed, f.Held = 0, 0
		return false
	}
	probe, ok := o.Probe[c.resource]
	if !ok || c.baseline == nil || f.Utilization == nil {
		return false
	}
	if !c.baseline.By().Alike(probe.By) {
		return true
	}
	if f.isNumb(in) {
		f.Passed, f.Held = 0, 0 // what was felt before a gap holds nothing
	}
	confirm := int32(in.confirm)
	sf, significant := c.baseline.Severity(*f.Utilization, probe, f.Significant && f.Passed > confirm)
	f.SeverityAt = &at
	if !f.holds(significant, confirm) {
		f.Severity, f.Significant = &sf, significant
	}
	return false
}

// holds counts a probe reading, and says whether it is to be passed over. Interference that was felt in confirm + 1
// readings in a row is gone only when it is missing in as many: probes are few, and one lucky window must not give an
// instance back all its load.
func (f *Felt) holds(significant bool, confirm int32) bool {
	switch {
	case significant:
		f.Passed, f.Held = min(f.Passed+1, confirm+1), 0
	case f.Passed > confirm && f.Held < confirm:
		f.Held++
		return true
	default:
		f.Passed, f.Held = 0, 0
	}
	return false
}

// count keeps the guard's counters of snapshots spent failed and stale. An instance without any observation turns
// stale after as many snapshots as an observation may be old in periods.
func (m *member) count(staleAfter int) {
	mem := &m.mem
	if m.State == quell.Failed && m.Held == nil {
		mem.FailedFor++
	} else {
		mem.FailedFor = 0
	}
	switch {
	case !m.inService() || m.fresh || staleAfter == 0 && !m.overdue:
		mem.SilentFor, mem.StaleFor, mem.StaleWeight = 0, 0, nil
	case m.Observation == nil && mem.SilentFor < staleAfter && !m.overdue:
		mem.SilentFor++
	default:
		mem.StaleFor++
	}
	if !m.inService() {
		mem.Joined, mem.Clamped = false, nil
	} else if m.weight() > 0 {
		mem.Joined = true
	}
}
