package policy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/keys"
	"github.com/quellhq/quell/stats"
)

// ACSRule is how acs computes the next caps from slowdowns.
type ACSRule string

// The rules: damped multiplies caps and keeps their sum; literal adds as the paper's Eq. 7 and 8 do.
const (
	ACSDamped  ACSRule = "damped"
	ACSLiteral ACSRule = "literal"
)

// ACSMeans is what acs divides processor time by.
type ACSMeans string

// The means. Weights need groups that lie in the same group, because the kernel compares only their weights.
const (
	ACSAuto    ACSMeans = "auto" // weights if all groups lie in the same one, otherwise caps
	ACSWeights ACSMeans = "weights"
	ACSCaps    ACSMeans = "caps"
)

// ACSSettings are the settings of acs.
type ACSSettings struct {
	Rule      ACSRule
	By        ACSMeans
	Tolerance float64 // caps are adjusted while the largest slowdown exceeds the smallest by more than this, until it does by half of it
	Floor     float64 // least cap, as a fraction of the processors
	Cores     float64 // processors that the groups share; 0: all of the machine
	Gain      float64 // how much of a group's distance from the mean one step of the damped rule makes up for

	Window time.Duration // with weights, slowdowns are averaged over it: the weight of a value falls to 37% after this time
	Solo   time.Duration // how often each group that reports progress runs nearly alone, which tells its best rate; 0: never
}

var acsSpec = hostSpec[ACSSettings]{
	name: "acs", about: "divides processor time among control groups so that all are slowed down by the same factor",
	defaults: ACSSettings{Rule: ACSDamped, By: ACSAuto, Tolerance: 0.1, Floor: 0.02, Gain: 0.8, Window: 3 * time.Second},
	keys: func(s *ACSSettings) keys.Table {
		return keys.Table{
			keys.Opt("rule", keys.OneOf(&s.Rule, []ACSRule{ACSDamped, ACSLiteral}),
				"how slowdowns change caps: damped, or literal as in the paper, which always sets caps and seldom settles"),
			keys.Opt("by", keys.OneOf(&s.By, []ACSMeans{ACSAuto, ACSWeights, ACSCaps}),
				"what divides processor time: the groups' weights, caps, or auto: weights if all groups lie in the same group"),
			keys.Opt("tolerance", keys.Share(&s.Tolerance).Above(0).Between(0, 1),
				"caps change when the largest slowdown exceeds the smallest by more than this, until it does by half of it"),
			keys.Opt("floor", keys.Share(&s.Floor).Above(0).Between(0, 0.5), "least cap, as a share of the processors"),
			keys.Opt("gain", keys.Decimal(&s.Gain).Above(0).Between(0, 1),
				"part of a group's distance from the mean that one change makes up for; less is slower, and bears more noise and delay"),
			keys.Opt("cores", keys.Decimal(&s.Cores).Above(0).Between(0, 1e6),
				"how many processors the groups share; set it if a group above them has a quota").Or("all of the machine"),
			keys.Opt("window", keys.Duration(&s.Window).Between(0, time.Hour),
				"with weights, slowdowns are averaged over this time; more bears programs that work and sleep in turns, and is slower"),
			keys.Opt("solo", keys.Duration(&s.Solo).Between(0, 30*24*time.Hour),
				"how often each group that reports progress runs nearly alone for two periods, which tells its rate without neighbours").Or("never"),
		}
	},
	memory: empty[acsMemory],
	decide: decideACS,
}

// acsMemory is what acs remembers.
type acsMemory struct {
	Groups  map[string]acsGroup `json:"groups,omitempty"`
	Capping bool                `json:"capping,omitempty"` // the last plan had caps
	Even    bool                `json:"even,omitempty"`    // slowdowns were equal enough, and caps stay
	Calm    int                 `json:"calm,omitempty"`    // consecutive snapshots in which caps were not needed
	Solo    acsSolo             `json:"solo,omitzero"`     // the group that runs nearly alone
}

// acsGroup is what acs remembers of a control group.
type acsGroup struct {
	Part   float64 `json:"part,omitempty"`   // of the processors, when no group is idle; a fraction; 0: none was given yet
	Cap    float64 `json:"cap,omitempty"`    // cap of the last plan, in processors; 0: none
	Weight float64 `json:"weight,omitempty"` // of the last plan, relative to the kernel's usual one; 0: none
	Level  float64 `json:"level,omitempty"`  // slowdown times share, averaged
	Away   int     `json:"away,omitempty"`   // consecutive snapshots in which it was idle

	Best  float64         `json:"best,omitempty"` // most units of work per second that it reported
	Alone acsAlone        `json:"alone,omitzero"` // its rate when it ran nearly alone
	Model stats.Recursive `json:"model,omitzero"` // of its reported slowdown, by how long it waited (Eq. 5)
}

// Constants of acs.
const (
	acsIdle      = 0.02  // a group that wants less than this many processors is idle
	acsLeast     = 0.75  // smallest factor by which one step of the damped rule changes a cap
	acsMost      = 1.25  // largest one
	acsFull      = 0.95  // caps are needed only if the groups want this fraction of the processors
	acsCalm      = 3     // after this many snapshots without need, caps are lifted
	acsSlowest   = 1000  // largest slowdown that is told apart
	acsPlausible = 3.0   // a reported slowdown counts up to this many times that of scheduling
	acsSmoothing = 0.3   // weight of a new slowdown in the average, while caps or weights stay
	acsGone      = 2     // after this many idle snapshots, a group is idle for longer than a moment
	acsKept      = 0.999 // what is left of the best progress after one period: programs change
	acsForget    = 0.98  // weight that the model's rows keep in each period
	acsRows      = 20    // rows after which the model predicts
	acsRelated   = 0.5   // least correlation with which it does
	acsSpare     = 1.25  // a cap is at most this many times what its group wants, if others want the rest;
	acsSated     = 1.05  // this many times, if the group does not wait
)

// acsTenant is one control group in a decision.
type acsTenant struct {
	id        string
	share     float64
	before    acsGroup
	run, want float64 // processors: used, and what it would have used alone
	slowdown  float64 // 0: not known
	from      quell.SlowdownFrom
	idle      bool
	quota     float64 // in force, in processors; 0: none
	loose     bool    // it does not obey its cap
	bounded   bool    // somebody else's quota, which is smaller than its cap, stops it
	doubt     float64 // the reported slowdown, if it is not plausible
	rate      float64 // units of work per second that it reports; 0: none
	eased     float64 // by which factor the next weight changes the excess of the slowdown over 1; 0: not known
	blind     bool    // the kernel does not report how long it waits
	next      acsGroup
}

func (t *acsTenant) active() bool { return t.slowdown > 0 && !t.idle && !t.foreign() }

// foreign returns whether somebody else decides how much the group gets.
func (t *acsTenant) foreign() bool { return t.loose || t.bounded }

// level is what acs makes equal: the averaged slowdown, times the share.
func (t *acsTenant) level() float64 { return t.next.Level }

// hostCaps is one decision.
type hostCaps struct {
	set     ACSSettings
	mem     *acsMemory
	total   float64 // processors
	window  float64 // seconds
	tenants []acsTenant
	active  []*acsTenant
	weighs  bool    // by weights, not by caps
	free    float64 // processors that are left by groups that somebody else limits
	full    bool    // the groups want nearly all processors, or report that they are slowed down
}

// decideACS decides caps for the control groups of a machine so that all are slowed down equally (ACS, section IV-D).
func decideACS(s *quell.Snapshot, set ACSSettings, st *State) quell.Plan {
	mem := remembered[acsMemory](st)
	if s.Machine == nil || s.Machine.Sched == nil || s.Machine.WindowS <= 0 {
		return quell.Plan{Limits: mem.limits(), Reasons: []quell.Reason{{Code: "machine_unread",
			Text: "the machine's processor times are not known: caps stay as they are"}}}
	}
	d := &hostCaps{set: set, mem: mem, total: cmp.Or(set.Cores, s.Machine.Sched.Cores), window: s.Machine.WindowS}
	d.weighs = set.Rule != ACSLiteral && (set.By == ACSWeights || set.By == ACSAuto && siblings(s.Instances))
	d.look(s)
	why, alone := d.solo(s.At)
	if alone {
		return d.plan(why)
	}
	why = d.judge()
	switch {
	case !mem.Capping:
		d.lift()
	case set.Rule == ACSLiteral:
		d.literal()
	case d.weighs:
		d.weigh()
	default:
		d.damped()
	}
	return d.plan(why)
}

// siblings returns whether all groups are known to lie in the same group.
func siblings(groups []quell.Instance) bool {
	for _, in := range groups {
		if in.Within == "" || in.Within != groups[0].Within {
			return false
		}
	}
	return len(groups) > 0
}

// limits lists the caps of the last plan.
func (mem *acsMemory) limits() (list []quell.Limit) {
	for _, id := range slices.Sorted(maps.Keys(mem.Groups)) {
		if processors := mem.Groups[id].Cap; processors > 0 {
			list = append(list, quell.Limit{Instance: id, Resource: quell.CPU, Value: processors, Unit: "processors"})
		}
		if weight := mem.Groups[id].Weight; weight > 0 {
			list = append(list, quell.Limit{Instance: id, Resource: quell.CPU, Value: weight, Unit: quell.WeightUnit})
		}
	}
	return list
}

// look measures every group.
func (d *hostCaps) look(s *quell.Snapshot) {
	wanted := 0.0
	for _, in := range s.Instances {
		t := acsTenant{id: in.ID, share: 1, before: d.mem.Groups[in.ID]}
		t.next = t.before
		if in.Share != nil && *in.Share > 0 {
			t.share = *in.Share
		}
		if in.Observation != nil && in.Observation.Sched != nil {
			t.measure(in.Observation, d.total)
		}
		if d.mem.Solo.Group == "" {
			t.compare(in.Limits, d.total)
		}
		wanted += t.want
		d.full = d.full || t.from == quell.FromProgress && t.slowdown > 1+d.set.Tolerance
		d.tenants = append(d.tenants, t)
	}
	d.full = d.full || wanted >= acsFull*d.total
	fresh := d.fresh()
	for i := range d.tenants {
		d.tenants[i].average(fresh)
	}
	d.free = d.total
	for i := range d.tenants {
		switch t := &d.tenants[i]; {
		case t.active():
			d.active = append(d.active, t)
		case t.foreign():
			d.free = max(d.free-t.run, d.set.Floor*d.total)
		}
	}
}

// measure computes a group's slowdown. From scheduling, it comes from the time in which tasks were ready and did not run; Eq. 3 counts
// runnable and capped time.
//
// The kernel counts the time for which a quota stops a task as waiting, so throttled time is not added. It is used only if waiting is not
// reported or smaller.
func (t *acsTenant) measure(obs *quell.Observation, total float64) {
	sched, window := obs.Sched, cmp.Or(obs.WindowS, 1)
	wait, _, ok := waiting(obs, sched.RunS)
	t.blind = !ok
	if sched.ThrottledS != nil {
		wait = max(wait, *sched.ThrottledS)
	}
	t.run = sched.RunS / window
	ready := t.run + wait/window
	if ready <= 0 {
		t.idle = true
		return
	}
	scheduled := t.scheduled(sched, ready, total)
	t.idle = ready < acsIdle
	t.slowdown, t.from = scheduled, quell.FromScheduling
	if t.idle {
		return
	}
	reported, ok := t.reported(obs, scheduled)
	if !ok {
		t.foretell(scheduled)
		return
	}
	t.from = quell.FromProgress
	t.slowdown = max(1, reported)
	if most := scheduled * acsPlausible; t.slowdown > most && !t.blind {
		t.slowdown, t.doubt = most, reported
	}
	t.next.Model = t.before.Model.With([]float64{scheduled - 1}, t.slowdown, acsForget)
}

// scheduled computes the slowdown from scheduling, and what the group would have used alone. A task that waits for a part of the time would
// have done its work in the rest of it with a processor of its own. So alone the group would have used the sum of what its tasks would have
// used with a processor each, up to all processors. For a group that always wants to run, the slowdown is (run + wait) / run, at most all
// processors over run.
//
// If the kernel does not report tasks one by one, the group counts as one task that is ready all or nothing: the part of time that it lost
// is busy * (1 - run / most). busy is the part of time in which it wanted to run, and most is what it would have used then.
func (t *acsTenant) scheduled(sched *quell.Sched, ready, total float64) float64 {
	run := max(t.run, ready/acsSlowest) // a group that did not run at all
	if sched.FreeS != nil && sched.RunS > 0 {
		t.want = max(t.run, min(t.run**sched.FreeS/sched.RunS, total))
		return min(max(1, t.want/run), acsSlowest)
	}
	lost := max(0, min(1, ready)*(1-run/min(ready, total)))
	scheduled := 1 / (1 - min(lost, 1-1.0/acsSlowest))
	t.want = max(t.run, min(run*scheduled, total))
	return scheduled
}

// fresh is the weight of a new slowdown in a group's average. Readings of a moment in which one group ran nearly alone count for nothing.
// When a group has become idle, or busy again, what was before tells nothing of what is now.
func (d *hostCaps) fresh() float64 {
	switch {
	case d.mem.Solo.Group != "":
		return 0
	case slices.ContainsFunc(d.tenants, acsTenant.turned):
		return 1
	case d.mem.Even:
		return acsSmoothing
	case d.weighs && d.set.Window > 0:
		return 1 - math.Exp(-d.window/d.set.Window.Seconds())
	}
	return 1
}

// turned returns whether the group has just become idle for longer than a moment, or is busy again after that.
func (t acsTenant) turned() bool {
	return t.idle && t.before.Away+1 == acsGone || !t.idle && t.before.Away >= acsGone
}

// average updates the group's average level. It averages 1 / level, the rate of its work, so that the average over several periods is the
// time that the work took in all of them over its time alone. Idle periods do not count.
func (t *acsTenant) average(fresh float64) {
	if t.idle {
		t.next.Away++
		return
	}
	if t.slowdown == 0 { // it was not read
		return
	}
	t.next.Away, t.next.Level = 0, t.slowdown*t.share
	if before := t.before.Level; before > 0 {
		t.next.Level = 1 / ((1-fresh)/before + fresh/t.next.Level)
	}
}

// reported returns the slowdown by what the group reports of its work: the best rate that was seen over the present one. At the first
// report the best is the rate without the slowdown from scheduling. The rate of a moment in which the group ran nearly alone is better.
func (t *acsTenant) reported(obs *quell.Observation, scheduled float64) (slowdown float64, ok bool) {
	rate, told := obs.Counters[quell.CounterProgress]
	switch {
	case obs.Slowdown != nil:
		return *obs.Slowdown, true
	case !told || rate <= 0:
		return 0, false
	}
	t.rate = rate
	if alone := t.before.Alone.Rate; alone > 0 {
		return alone / rate, true
	}
	t.next.Best = max(rate, t.before.Best*acsKept)
	if t.before.Best == 0 {
		t.next.Best = rate * scheduled
	}
	return t.next.Best / rate, true
}

// foretell predicts the slowdown of a group that stopped reporting, from how long it waits (Eq. 5), if that was a good predictor before.
func (t *acsTenant) foretell(scheduled float64) {
	model := t.before.Model
	related, ok := model.Correlation()
	if !ok || related < acsRelated || model.Rows < acsRows {
		return
	}
	if y, ok := model.Predict([]float64{scheduled - 1}); ok {
		t.slowdown, t.from = max(1, min(y, scheduled*acsPlausible)), quell.FromModel
	}
}

// compare looks whether the last cap is in force, and whether a quota stops a group that has a weight.
func (t *acsTenant) compare(limits map[quell.Resource]float64, total float64) {
	const rounding = 1.05
	const shortest = 0.01 // of a processor: the kernel may round smaller quotas up
	t.quota = limits[quell.CPU]
	if t.before.Weight > 0 {
		t.bounded = t.quota > 0 && t.quota*rounding < total && t.run*rounding > t.quota
		return
	}
	if t.before.Cap <= shortest {
		return
	}
	t.loose = t.quota == 0 || t.quota > t.before.Cap*rounding
	t.bounded = !t.loose && t.quota < t.before.Cap/rounding && t.run*rounding > t.quota
}

// judge decides whether caps are needed, and whether they change.
func (d *hostCaps) judge() (why quell.Reason) {
	mem, tolerance := d.mem, d.set.Tolerance
	least, most := d.spread()
	uneven := len(d.active) > 1 && most > least*(1+tolerance)
	switch {
	case d.full && (mem.Capping || uneven):
		mem.Capping, mem.Calm = true, 0
	case mem.Capping:
		if mem.Calm++; mem.Calm > acsCalm {
			mem.Capping = false
		}
	}
	if !mem.Capping {
		mem.Even, mem.Calm = false, 0
		return quell.Reason{Code: "acs_calm", Text: fmt.Sprintf("no caps are needed: %s", d.wants())}
	}
	bound := 1 + tolerance/2
	if mem.Even {
		bound = 1 + tolerance
	}
	if mem.Even = most <= least*bound; mem.Even {
		return quell.Reason{Code: "acs_even", Text: fmt.Sprintf("slowdowns of %d groups are within the tolerance: caps keep their proportions",
			len(d.active))}
	}
	return quell.Reason{Code: "acs_uneven", Text: fmt.Sprintf("slowdowns of %d groups differ by a factor of %.2f: caps change", len(d.active),
		most/least)}
}

func (d *hostCaps) wants() string {
	sum := 0.0
	for i := range d.tenants {
		sum += d.tenants[i].want
	}
	return fmt.Sprintf("%d active groups want %.2f of %g processors", len(d.active), sum, d.total)
}

// spread returns the smallest and the largest level of the active groups; 1 and 1 if there are none.
func (d *hostCaps) spread() (least, most float64) {
	if len(d.active) == 0 {
		return 1, 1
	}
	least, most = math.Inf(1), 0
	for _, t := range d.active {
		least, most = min(least, t.level()), max(most, t.level())
	}
	return least, most
}

// lift removes all caps and weights. The groups' parts stay in the memory for the next time.
func (d *hostCaps) lift() {
	for i := range d.tenants {
		d.tenants[i].next.Cap, d.tenants[i].next.Weight = 0, 0
	}
}

// start gives groups that have no part yet the one that they use at present, and scales all parts so that their sum is 1. Groups that
// somebody else limits are left out.
func (d *hostCaps) start() {
	sum := 0.0
	for i := range d.tenants {
		t := &d.tenants[i]
		if t.foreign() {
			continue
		}
		if t.next.Part == 0 && t.want > 0 {
			t.next.Part = max(t.run/d.total, d.set.Floor)
		}
		sum += t.next.Part
	}
	for i := range d.tenants {
		if t := &d.tenants[i]; sum > 0 && !t.foreign() {
			t.next.Part /= sum
		}
	}
}

// mean is the mean level of the active groups: slowdown_avg of Eq. 7.
func (d *hostCaps) mean() float64 {
	sum := 0.0
	for _, t := range d.active {
		sum += t.level()
	}
	return sum / float64(len(d.active))
}

// literal changes caps as Eq. 7 and 8 say: cap += K (slowdown - avg) with K = |slowdown - avg| / avg, where 1 is the whole machine. Idle
// groups keep their caps.
func (d *hostCaps) literal() {
	d.start()
	for _, t := range d.active {
		if !d.mem.Even {
			avg := d.mean()
			off := t.level() - avg
			t.next.Part = min(max(t.next.Part+math.Abs(off)/avg*off, d.set.Floor), 1)
		}
	}
	for i := range d.tenants {
		if t := &d.tenants[i]; !t.foreign() {
			t.cap(t.next.Part*d.total, d.total)
		}
	}
}

// cap sets a cap of the next plan. A cap of the whole machine is none.
func (t *acsTenant) cap(processors, total float64) {
	t.next.Cap, t.next.Weight = 0, 0
	if processors > 0 && processors < total*(1-quell.SumTolerance) {
		t.next.Cap = processors
	}
}

// damped multiplies the caps of the active groups by level / avg, within bounds, and scales them so that they use the whole machine
// together, whatever idle groups had before (Algorithm 2 gives the share of a blocked machine away). Idle groups keep the cap that they
// will have when they come back.
func (d *hostCaps) damped() {
	d.start()
	parts := 0.0
	fractions := make([]fraction, len(d.active))
	bounds, least := 0.0, d.least()
	for i, t := range d.active {
		parts += t.next.Part
		want := t.next.Part
		if !d.mem.Even {
			want *= min(max(1+d.set.Gain*(t.level()/d.mean()-1), acsLeast), acsMost)
		}
		spare := acsSpare
		if t.slowdown <= 1+d.set.Tolerance/2 {
			spare = acsSated
		}
		fractions[i] = fraction{want, least, max(min(1, t.want*spare/d.free), least)}
		bounds += fractions[i].high
	}
	if bounds < 1 { // they want less than the machine has: nobody needs to be held back
		for i := range fractions {
			fractions[i].want, fractions[i].high = fractions[i].high, 1
		}
	}
	got := within(fractions)
	for i, t := range d.active {
		t.next.Part = got[i] * parts
		t.cap(got[i]*d.free, d.total)
	}
	for i := range d.tenants {
		if t := &d.tenants[i]; !t.active() && !t.foreign() {
			t.cap(t.next.Part*d.free, d.total)
		}
	}
}

// least is the smallest fraction that every active group can have.
func (d *hostCaps) least() float64 { return min(d.set.Floor, 1/float64(max(1, len(d.active)))) }

// within scales the wanted fractions by a common factor so that, within their bounds, they sum to 1.
func within(fractions []fraction) []float64 {
	got := make([]float64, len(fractions))
	sum := func(factor float64) (sum float64) {
		for i, f := range fractions {
			got[i] = min(max(factor*f.want, f.low), f.high)
			sum += got[i]
		}
		return sum
	}
	low, high := 0.0, 1.0
	for sum(high) < 1 && high < 1e12 {
		high *= 2
	}
	for range 100 {
		if middle := (low + high) / 2; sum(middle) < 1 {
			low = middle
		} else {
			high = middle
		}
	}
	sum(high)
	return got
}

// plan builds the plan, and stores what is remembered.
func (d *hostCaps) plan(why quell.Reason) quell.Plan {
	d.mem.Groups = make(map[string]acsGroup, len(d.tenants))
	plan := quell.Plan{Tenants: make(map[string]quell.Tenant, len(d.tenants)), Reasons: []quell.Reason{why}}
	var blind []string
	for i := range d.tenants {
		t := &d.tenants[i]
		d.mem.Groups[t.id] = t.next
		plan.Tenants[t.id] = t.told(d.total)
		if code, text := t.why(d.total); code != "" {
			plan.Reasons = append(plan.Reasons, quell.Reason{Code: code, Instance: t.id, Text: text})
		}
		if t.blind && t.from == quell.FromScheduling && !t.idle {
			blind = append(blind, t.id)
		}
	}
	if len(blind) > 0 {
		plan.Reasons = append(plan.Reasons, quell.Reason{Code: "acs_blind", Text: fmt.Sprintf("the kernel reports neither pressure nor waiting "+
			"in run queues: of %s only the waiting for caps is known; let them report their progress", strings.Join(blind, ", "))})
	}
	plan.Limits = d.mem.limits()
	return plan
}

// told is what the plan says of a group.
func (t *acsTenant) told(total float64) (told quell.Tenant) {
	told.Idle = t.idle
	if t.slowdown == 0 {
		return told
	}
	slowdown, want, predicted := t.slowdown, t.want, t.predicted(total)
	told.Slowdown, told.From, told.Wanted, told.Predicted = &slowdown, t.from, &want, &predicted
	return told
}

// predicted is the slowdown that is expected under the next cap or weight. Under a cap, the same work takes longer as the processors it
// gets become fewer.
func (t *acsTenant) predicted(total float64) float64 {
	if t.next.Weight > 0 && !t.foreign() {
		return t.under(t.slowdown)
	}
	processors := min(cmp.Or(t.next.Cap, total), t.want)
	if t.foreign() && t.quota > 0 {
		processors = min(t.quota, t.want)
	}
	return max(1, min(t.slowdown*t.run/processors, acsSlowest))
}

// why explains what happens to a group.
func (t *acsTenant) why(total float64) (code, text string) {
	switch {
	case t.loose:
		return "acs_not_capped", fmt.Sprintf("its cap of %.2f processors is not in force: it is left out", t.before.Cap)
	case t.bounded:
		return "acs_bounded", fmt.Sprintf("somebody else limits it to %.2f processors, less than it would get: it is left out", t.quota)
	case t.idle && t.next.Weight > 0:
		return "acs_idle", fmt.Sprintf("wants %.2f processors: the others get its share until it wants to run", t.want)
	case t.slowdown == 0 || t.idle && t.next.Cap == 0:
		return "", ""
	case t.idle:
		return "acs_idle", fmt.Sprintf("wants %.2f processors: the others get its share; up to %.2f processors are its own when it wants them",
			t.want, t.next.Cap)
	case t.doubt > 0:
		return "acs_doubt", fmt.Sprintf("reports a slowdown of %.2f, but its tasks waited so little that %.2f is used", t.doubt, t.slowdown)
	case t.next.Weight > 0:
		return "acs_weighted", fmt.Sprintf("slowdown %.2f (from %s): weight %.2f, expected slowdown %.2f", t.slowdown, t.from, t.next.Weight,
			t.predicted(total))
	case t.next.Cap == 0 && t.before.Cap == 0:
		return "", ""
	case t.next.Cap == 0:
		return "acs_freed", fmt.Sprintf("slowdown %.2f: no cap", t.slowdown)
	}
	return "acs_capped", fmt.Sprintf("slowdown %.2f (from %s): cap %.2f of %g processors, expected slowdown %.2f", t.slowdown, t.from,
		t.next.Cap, total, t.predicted(total))
}
