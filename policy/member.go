package policy

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Member is an instance as a policy sees it: its readings in the policy's resources; missing ones are filled from memory. Loads and
// capacities of the whole instance are in utilisation of the policy's first resource.
type Member struct {
	*quell.Instance
	Position int            // in the snapshot
	mem      *InstanceState // what is remembered of it; becomes part of the next State

	Senses  []Sense   // one for each resource of the policy
	Rates   []float64 // by resource: the load in units of the group's first resource, for each unit of this one on this instance
	Use     float64   // U_m, the instance's own utilisation
	Fixed   *float64  // its share, if a person set it
	Uncut   float64   // factor of a fast policy: 1 if there is no cut
	Settled float64   // its present share, scaled for shares that people set and instances that joined or left

	// What a policy finds that goes by capacity; plans explain it.
	Capacity   float64       // U_m^max, the effective capacity: the lowest of those by its resources
	Left       float64       // utilisation that its neighbours leave it
	Carry      float64       // utilisation at the lowest threshold that the group can keep: the capacity, or more under overload
	Usable     float64       // the capacity, or the part of it that a margin leaves
	MarginMS   float64       // how far below the threshold predictions must stay because of that margin
	Counted    float64       // the part of the usable capacity that the instance may be given
	Limiter    string        // what limits counted, if it is not a resource
	Binds      uint8         // the resource with the lowest capacity
	Credited   []TokenBucket // its credits
	Uncredited float64       // capacity if credits did not matter
	ByCredits  bool          // credits limit the capacity

	Now  *Crowds // of the group; nil: the models do not describe it as a station
	Able bool    // within the threshold without load, if the group is a station

	Planned float64 // the weight in the plan; at first the present one
	wanted  float64 // the share that the policy wants, before the guard

	late time.Duration // starting for longer than an instance may take; 0: it is not

	Fresh     bool // there is an observation that is not stale
	overdue   bool // its capacity has been unknown for so long that the policy no longer waits for it
	Protected bool
	HasUse    bool
	Failing   bool // it answers with errors and must not gain weight
	stays     bool // ready, and not removed by the plan
	kept      bool // stale: the policy does not set its share
}

// Sense is what is known about one resource of an instance. Amounts are utilisations of that resource.
type Sense struct {
	Use         float64 // U_m, for requests
	Own         float64 // the instance's own use that is not for the service's requests
	Others      float64 // the part of own that is for other services' requests
	Severity    float64 // SF_m after calibration
	Measured    float64 // SF_m before calibration
	Interfering float64 // U_int
	Supposed    float64 // U_int as it is told to people
	Capacity    float64 // U_m^max by this resource
	Waits       float64 // how long requests may wait, as a multiple of their service time (model.Station.Patience)

	Taken *float64 // U_int, if the instance's own waiting told it; severity follows from it then

	hasUse, HasSeverity bool
	Stale               bool // no severity was reported for longer than a reading may be old
	Out                 bool // not reported for too long, although another resource was: it is left out of the judgement
	otherwise           bool // probed in another way than the models were made with, so that the probes give no severity
	held                bool // the severity is an earlier one, because the newest reading alone does not end it
	Clear               bool // the severity is not confirmed yet, and is as unlikely to be chance as several confirming readings
	unconfirmed         bool // it was felt in too few windows so far
}

// Suspected returns whether the neighbours that were felt are too few, or were felt too briefly, to be told from chance.
func (s *Sense) Suspected() bool {
	return s.unconfirmed && !s.Clear || s.Interfering < model.SignificantUse
}

// known returns whether the capacity by this resource can be computed.
func (s *Sense) known() bool { return s.hasUse && s.HasSeverity }

// Bound returns what is known about the resource that limits the instance's capacity.
func (m *Member) Bound() *Sense { return &m.Senses[m.Binds] }

// WeightNow returns the instance's present share of the traffic.
func (m *Member) WeightNow() float64 {
	if m.Weight == nil {
		return 0
	}
	return *m.Weight
}

// Requests returns the instance's requests per second, and whether it got any in a window that is not stale.
func (m *Member) Requests() (perSecond float64, known bool) {
	if !m.Fresh || m.Observation.RequestRate == nil || *m.Observation.RequestRate <= 0 {
		return 0, false
	}
	return *m.Observation.RequestRate, true
}

// Measured returns the response time of the instance's newest window in milliseconds, and of how many requests it is. It is false if that
// window is stale, has no value of the metric, or had fewer than MinSample requests.
func (m *Member) Measured(metric quell.Metric) (ms float64, requests int, known bool) {
	if !m.Fresh || m.Observation.LatencyMS == nil || m.Observation.LatencyMS.N < MinSample {
		return 0, 0, false
	}
	ms, known = m.Observation.LatencyMS.Of(metric)
	return ms, m.Observation.LatencyMS.N, known
}

func (m *Member) Age() time.Duration {
	if m.AgeS == nil {
		return 0
	}
	return time.Duration(*m.AgeS * float64(time.Second))
}

// InService returns whether the instance can get requests: it is ready, and no person took it out of rotation.
func (m *Member) InService() bool { return m.State == quell.Ready && m.Held == nil }

// rated returns whether the instance's capacity can be computed: every resource that counts is known.
func (m *Member) rated() bool {
	for i := range m.Senses {
		if s := &m.Senses[i]; !s.Out && !s.known() {
			return false
		}
	}
	return true
}

// MayGain returns whether the plan can send the instance more load. It cannot if the instance answers with errors or if a
// person set its share.
func (m *Member) MayGain() bool { return !m.Failing && m.Fixed == nil }

// perceive reads the instance's observation, and fills gaps with the last readings.
func (m *Member) perceive(in *Input) {
	var memory [MaxContended]Felt
	felt := memory[:len(in.Contended)]
	m.mem.of(in.Contended, felt)
	if m.Fresh = isFresh(in, m.Observation); m.Fresh {
		for i := range felt {
			r := in.Contended[i].Resource
			m.Senses[i].Own, m.Senses[i].Others = m.Observation.OwnWork[r], m.Observation.Others[r]
			m.Senses[i].otherwise, m.Senses[i].Clear = felt[i].take(in, in.Contended[i].Of(m.Type), m.Observation)
		}
		m.Failing = isFailing(in, m.Instance)
	}
	unprobed := m.Fresh
	for i := range felt {
		unprobed = m.Senses[i].recall(in, &felt[i]) && unprobed
	}
	m.Fresh = m.Fresh && !unprobed
	m.Uncut = m.Factor.Left(in.Snapshot.At)
	m.mem.keep(in.Contended, felt)
	if in.between {
		return
	}
	m.wait(in, unprobed)
	m.count(in.Service.Guard.StaleAfter)
}

// MaxContended is the largest number of resources.
const MaxContended = 4

// recall copies the last readings from felt, and returns whether severity has been missing for too long.
func (s *Sense) recall(in *Input, felt *Felt) (unprobed bool) {
	if u := felt.Utilization; u != nil {
		s.Use, s.hasUse = *u, true
	}
	if sf := felt.Severity; sf != nil {
		s.Severity, s.Measured, s.HasSeverity, s.held = *sf, *sf, true, felt.Held > 0
		s.Taken, s.unconfirmed = felt.Taken, felt.Passed > 0 && felt.Passed <= int32(in.Confirm)
	}
	s.Stale = felt.isUnprobed(in)
	return s.Stale
}

// DefaultPatience is for how many snapshots a policy waits for an instance's readings if guard.stale_after is 0.
const DefaultPatience = 3

// patience returns for how many snapshots a policy waits for an instance's readings.
func (in *Input) patience() int { return cmp.Or(in.Service.Guard.StaleAfter, DefaultPatience) }

// wait counts the snapshots in which a policy that uses capacity lacks readings of a ready instance. After patience of them the policy no
// longer waits: it judges the instance without the missing resources, or, if all are missing, takes it for stale.
func (m *Member) wait(in *Input, unprobed bool) {
	m.mem.Unprobed = false
	if !m.InService() || !in.byCapacity {
		m.mem.UnratedFor = 0
		return
	}
	reports := isFresh(in, m.Observation)
	m.mem.Unprobed = unprobed
	if in.Several() && reports && !unprobed {
		m.leaveOut(func(s *Sense) bool { return s.Stale })
	}
	if m.rated() {
		m.mem.UnratedFor = 0
		return
	}
	m.mem.UnratedFor++
	if int(m.mem.UnratedFor) <= in.patience() {
		return
	}
	if m.leaveOut(func(s *Sense) bool { return !s.known() }) {
		return
	}
	m.Fresh, m.overdue = false, true
	m.mem.Unprobed = reports && !m.hasSeverity()
}

// leaveOut takes resources for which missing is true out of the judgement of an instance, if at least one other remains. It returns whether
// one remains.
func (m *Member) leaveOut(missing func(*Sense) bool) bool {
	remains := slices.ContainsFunc(m.Senses, func(s Sense) bool { return !s.Out && !missing(&s) })
	for i := range m.Senses {
		s := &m.Senses[i]
		s.Out = s.Out || remains && missing(s)
	}
	return remains
}

func (m *Member) hasSeverity() bool {
	return slices.ContainsFunc(m.Senses, func(s Sense) bool { return s.HasSeverity })
}

// misses lists the resources that an instance has not reported for too long.
func (m *Member) misses() string {
	switch {
	case m.mem.Unprobed:
		return "severity"
	case m.overdue && m.hasSeverity():
		return "utilisation"
	}
	return "reading"
}

// whyUnprobed says why there is no severity: what the agent's probes reported, or else what to look at.
func (m *Member) whyUnprobed() string {
	if o := m.Observation; o != nil && len(o.ProbeFailed) > 0 {
		var list []string
		for _, r := range slices.Sorted(maps.Keys(o.ProbeFailed)) {
			list = append(list, string(r)+": "+o.ProbeFailed[r])
		}
		return "Its agent reports: " + strings.Join(list, "; ")
	}
	return "Is its probe port open, and the prober's token right?"
}

func isFresh(in *Input, o *quell.Observation) bool {
	if o == nil {
		return false
	}
	after := in.Service.Guard.StaleAfter
	return after == 0 || in.Snapshot.At.Sub(o.At) <= time.Duration(after)*in.Service.Sampling
}

// isUnprobed returns whether a policy that uses severity has had none for longer than a reading may be old: the machine
// still reports, but nobody probes it.
func (f *Felt) isUnprobed(in *Input) bool {
	after := in.Service.Guard.StaleAfter
	return in.feels && after > 0 && f.SeverityAt != nil && in.Snapshot.At.Sub(*f.SeverityAt) > time.Duration(after)*in.Service.Sampling
}

// isFailing returns whether an instance in service fails or refuses too many requests.
func isFailing(in *Input, i *quell.Instance) bool {
	most := in.Service.Guard.ErrorRate
	return most > 0 && i.Weight != nil && failed(i.Observation)+Refused(i.Observation) > most
}

// Arrived returns how many requests an instance got in an observation's window; 0 if nobody says.
func Arrived(o *quell.Observation) float64 {
	if o.RequestRate == nil {
		return 0
	}
	return *o.RequestRate * o.WindowS
}

// failed returns which fraction of an instance's requests failed.
func failed(o *quell.Observation) float64 { return OrNone(o.ErrorRate) }

// Refused returns which fraction of them it refused to protect itself.
func Refused(o *quell.Observation) float64 { return OrNone(o.ShedRate) }

// OrNone returns a fraction, 0 if it is absent.
func OrNone(fraction *float64) float64 {
	if fraction == nil {
		return 0
	}
	return *fraction
}

// take stores the utilisation and severity of a fresh observation. If the observation has both a severity and a probe, the severity is
// used. otherwise is true if the probe cannot be used, because the models were made with probes of another kind. clear is true if the
// severity is not confirmed yet and so high that it needs no confirmation.
func (f *Felt) take(in *Input, c *Contended, o *quell.Observation) (otherwise, clear bool) {
	read := new(struct { // in one piece of memory
		at      time.Time
		use, sf float64
	})
	read.at = o.At
	at := &read.at
	use, ok := o.ForRequests(c.Resource)
	if ok {
		read.use, f.Utilization = use, &read.use
	}
	if sf, ok := o.Severity[c.Resource]; ok {
		read.sf = sf
		f.Severity, f.SeverityAt, f.Significant, f.Taken = &read.sf, at, sf > 0, nil
		f.Passed, f.Held, f.FoundAt = 0, 0, 0
		return false, false
	}
	if taken, ok := f.infer(c, o); ok {
		return false, f.believe(in, c, taken, at)
	}
	probe, ok := o.Probe[c.Resource]
	if !ok || c.Baseline == nil || f.Utilization == nil {
		return false, false
	}
	if !c.Baseline.By().Alike(probe.By) {
		return true, false
	}
	if f.isUnprobed(in) {
		f.Passed, f.Held, f.FoundAt = 0, 0, 0 // readings from before a gap do not count
	}
	confirm := int32(in.Confirm)
	sf, significant := c.Baseline.Severity(*f.Utilization, probe, f.Significant && f.Passed > confirm)
	f.SeverityAt = at
	clear = significant && f.Passed <= confirm && c.Baseline.Clear(*f.Utilization, probe, in.Confirm+1)
	if !f.holds(significant, confirm, f.evidence(c.Resource)) {
		f.Severity, f.Significant, f.Taken = &sf, significant, nil
	}
	return false, clear
}

// minEvidence is the least evidence of a reading without interference, so that an instance without load gets some load again.
const minEvidence = 0.1

// evidence returns how much a reading without interference says against interference that was found before, from 0 to 1. A disk that
// neighbours use in part answers single operations as fast as a free one: what shows the neighbours is the queue behind the instance's own
// operations. So a reading counts in proportion to its own use. A link or a processor makes single probes wait, too.
func (f *Felt) evidence(r quell.Resource) float64 {
	if r != quell.Disk || *f.Utilization >= f.FoundAt {
		return 1
	}
	return max(minEvidence, *f.Utilization/f.FoundAt)
}

const (
	// enoughWork is the processor time, in seconds, in which an instance's tasks wait often enough to tell the neighbours' use by themselves.
	enoughWork = 0.1
	// firstWork is the part of enoughWork with which the waiting is asked for the first time: tasks that have just started wait for each
	// other.
	firstWork = 0.5
	// clearlyTaken is the least use of the processors by neighbours that needs no confirmation.
	clearlyTaken = 0.25
)

// infer returns the neighbours' use of the instance's processors if its own waiting tells it. All its tasks wait, so that is known better
// than from the few probes of a period. The less the tasks ran, the less the new value counts beside the last one.
func (f *Felt) infer(c *Contended, o *quell.Observation) (taken float64, ok bool) {
	if c.Resource != quell.CPU || c.Baseline == nil || c.Predictor == nil || f.Utilization == nil {
		return 0, false
	}
	taken, ok = c.Baseline.NeighboursUse(*f.Utilization, o)
	if !ok {
		return 0, false
	}
	worked := o.Sched.RunS / enoughWork
	if f.Taken == nil {
		return taken, worked >= firstWork
	}
	return *f.Taken + min(1, worked)*(taken-*f.Taken), true
}

// believe stores the neighbours' use and the severity that follows from it. clear is true as for take.
func (f *Felt) believe(in *Input, c *Contended, taken float64, at *time.Time) (clear bool) {
	significant := taken >= model.SignificantUse
	if !significant {
		taken = 0
	}
	f.SeverityAt = at
	clear = taken >= clearlyTaken && f.Passed <= int32(in.Confirm)
	if !f.holds(significant, int32(in.Confirm), 1) {
		sf := c.Predictor.SeverityAt(*f.Utilization, taken)
		f.Severity, f.Significant, f.Taken = &sf, significant, &taken
	}
	return clear
}

// holds counts a probe reading, and returns whether the last severity is kept. Interference that was found in confirm + 1
// consecutive readings counts as gone only when it is missing in as many, because there are few probes, and one lucky window
// must not give an instance its whole load back. A reading without interference counts by its evidence.
func (f *Felt) holds(significant bool, confirm int32, evidence float64) bool {
	if significant {
		f.Passed, f.Held, f.FoundAt = min(f.Passed+1, confirm+1), 0, max(f.FoundAt, *f.Utilization)
		return false
	}
	f.Held += evidence
	if f.Passed > confirm && f.Held < float64(confirm)+1 {
		return true
	}
	f.Passed, f.Held, f.FoundAt = 0, 0, 0
	return false
}

// count updates the guard's counters of failed and stale snapshots. An instance without any observation becomes stale after
// staleAfter snapshots; an observation may be as many periods old.
func (m *Member) count(staleAfter int) {
	mem := m.mem
	if m.State == quell.Failed && m.Held == nil {
		mem.FailedFor++
	} else {
		mem.FailedFor = 0
	}
	switch {
	case !m.InService() || m.Fresh || staleAfter == 0 && !m.overdue:
		mem.SilentFor, mem.StaleFor, mem.StaleWeight = 0, 0, nil
	case m.Observation == nil && mem.SilentFor < staleAfter && !m.overdue:
		mem.SilentFor++
	default:
		mem.StaleFor++
	}
	if !m.InService() {
		mem.Joined, mem.Clamped = false, nil
	} else if m.WeightNow() > 0 {
		mem.Joined = true
	}
}

// IsNew returns whether an instance has had no share yet.
func (m *Member) IsNew() bool { return m.WeightNow() == 0 && !m.mem.Joined }

// WithOwn returns what neighbours, who take the given part, or work of the machine that is no request, take of the resource.
func (s *Sense) WithOwn(neighbours float64) float64 {
	return math.Max(neighbours, math.Min(s.Own, 1-s.Use))
}

// Neighbours returns the neighbours' utilisation U_int. If the instance's own waiting told it, a correction of severity can only raise it.
func (s *Sense) Neighbours(predictor *model.Predictor) float64 {
	switch {
	case s.Taken == nil:
		return predictor.Interfering(s.Use, s.Severity)
	case s.Severity > s.Measured:
		return math.Max(*s.Taken, predictor.Interfering(s.Use, s.Severity))
	}
	return *s.Taken
}
