package policy

import (
	"cmp"
	"time"

	"github.com/quellhq/quell"
)

// member is an instance as a policy sees it: readings in the policy's resource, filled up from memory.
type member struct {
	*quell.Instance
	position  int           // in the snapshot
	mem       InstanceState // becomes part of the next State
	fresh     bool          // there is an observation that is not stale
	overdue   bool          // its capacity has been unknown for too long to wait for it
	protected bool

	use    float64 // U_m, the instance's own utilisation
	hasUse bool

	severity    float64 // SF_m, calibration included
	hasSeverity bool

	interfering float64 // U_int
	capacity    float64 // U_m^max
	carry       float64 // utilisation at the least threshold that the group can keep: capacity, or more under overload
	counted     float64 // as much of it as the instance may be given

	otherwise bool     // probed in another way than the models were made by, so that its probes tell no severity
	failing   bool     // answers with errors: it must not gain weight
	fixed     *float64 // its share, where a person set it
	share     float64  // the weight that the plan gives it; at first the present one
	wanted    float64  // share before the guard
	stays     bool     // ready, and not removed by the plan
	kept      bool     // stale: its share is not the policy's
}

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

// rated says whether enough is known of the instance to tell its capacity.
func (m *member) rated() bool { return m.hasUse && m.hasSeverity }

// mayGain says whether the plan can send it more: not what answers with errors, nor where a person set the share.
func (m *member) mayGain() bool { return !m.failing && m.fixed == nil }

// perceive takes the observation in and fills gaps with the last readings.
func (m *member) perceive(in Input) {
	m.fresh = isFresh(in, m.Observation)
	if m.fresh {
		m.remember(in)
		m.failing = isFailing(in, m.Instance)
		m.fresh = !m.numb(in)
	}
	if u := m.mem.Utilization; u != nil {
		m.use, m.hasUse = *u, true
	}
	if sf := m.mem.Severity; sf != nil {
		m.severity, m.hasSeverity = *sf, true
	}
	m.wait(in)
	m.count(in.Service.Guard.StaleAfter)
}

// defaultPatience is for how many snapshots an instance is waited for where guard.stale_after is 0.
const defaultPatience = 3

// patience is for how many snapshots an instance is waited for.
func (in *Input) patience() int { return cmp.Or(in.Service.Guard.StaleAfter, defaultPatience) }

// wait counts the snapshots in which a policy that goes by capacity knows none of a ready instance. After as many as a reading may
// be old, nothing waits for it: it then counts as stale.
func (m *member) wait(in Input) {
	m.mem.Unprobed = false
	if !m.inService() || in.Predictor == nil {
		m.mem.UnratedFor = 0
		return
	}
	reports := isFresh(in, m.Observation)
	m.mem.Unprobed = reports && m.numb(in)
	if m.rated() {
		m.mem.UnratedFor = 0
		return
	}
	m.mem.UnratedFor++
	if m.mem.UnratedFor > in.patience() {
		m.fresh, m.overdue = false, true
		m.mem.Unprobed = reports && !m.hasSeverity
	}
}

// misses is what an instance has not told for too long.
func (m *member) misses() string {
	switch {
	case m.mem.Unprobed:
		return "severity"
	case m.overdue && m.hasSeverity:
		return "utilisation"
	}
	return "reading"
}

func isFresh(in Input, o *quell.Observation) bool {
	if o == nil {
		return false
	}
	after := in.Service.Guard.StaleAfter
	return after == 0 || in.Snapshot.At.Sub(o.At) <= time.Duration(after)*in.Service.Sampling
}

// numb says whether a policy that decides by severity has had none for longer than a reading may be old: the machine
// still reports, but nobody probes it.
func (m *member) numb(in Input) bool {
	after := in.Service.Guard.StaleAfter
	return in.feels && after > 0 && m.mem.SeverityAt != nil && in.Snapshot.At.Sub(*m.mem.SeverityAt) > time.Duration(after)*in.Service.Sampling
}

// isFailing says whether an instance in service answers with too many errors.
func isFailing(in Input, i *quell.Instance) bool {
	most, rate := in.Service.Guard.ErrorRate, i.Observation.ErrorRate
	return most > 0 && rate != nil && *rate > most && i.Weight != nil
}

// remember stores a fresh observation's utilisation and severity. A severity that is present wins over the probe.
func (m *member) remember(in Input) {
	o, mem, resource := m.Observation, &m.mem, in.senses.Resource
	at := o.At
	if u, ok := o.Utilization[resource]; ok {
		mem.Utilization = &u
	}
	if sf, ok := o.Severity[resource]; ok {
		mem.Severity, mem.SeverityAt, mem.Significant = &sf, &at, sf > 0
		mem.Felt, mem.Held = 0, 0
		return
	}
	probe, ok := o.Probe[resource]
	if !ok || in.Baseline == nil || mem.Utilization == nil {
		return
	}
	if m.otherwise = !in.Baseline.By().Alike(probe.By); m.otherwise {
		return
	}
	if m.numb(in) {
		mem.Felt, mem.Held = 0, 0 // what was felt before a gap holds nothing
	}
	confirm := in.senses.Confirm
	sf, significant := in.Baseline.Severity(*mem.Utilization, probe, mem.Significant && mem.Felt > confirm)
	mem.SeverityAt = &at
	if !mem.holds(significant, confirm) {
		mem.Severity, mem.Significant = &sf, significant
	}
}

// holds counts a probe reading, and says whether it is to be passed over. Interference that was felt in confirm + 1
// readings in a row is gone only when it is missing in as many: probes are few, and one lucky window must not give an
// instance back all its load.
func (mem *InstanceState) holds(significant bool, confirm int) bool {
	switch {
	case significant:
		mem.Felt, mem.Held = min(mem.Felt+1, confirm+1), 0
	case mem.Felt > confirm && mem.Held < confirm:
		mem.Held++
		return true
	default:
		mem.Felt, mem.Held = 0, 0
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
