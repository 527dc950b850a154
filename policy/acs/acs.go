package acs

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/setting"
	"github.com/quellhq/quell/stats"
)

// Rule is how acs computes the next caps from slowdowns.
type Rule string

// The rules: damped multiplies caps and keeps their sum; literal adds as the paper's Eq. 7 and 8 do.
const (
	Damped  Rule = "damped"
	Literal Rule = "literal"
)

// Means is what acs divides processor time by.
type Means string

// The means.
const (
	Weights Means = "weights"
	Caps    Means = "caps"
)

// Settings are the settings of acs.
type Settings struct {
	Rule      Rule
	By        Means
	Tolerance float64 // caps are adjusted while the largest slowdown exceeds the smallest by more than this, until it does by half of it
	Floor     float64 // least cap, as a fraction of the processors
	Cores     float64 // processors that the groups share; 0: all of the machine
	Gain      float64 // how much of a group's distance from the mean one step of the damped rule makes up for

	Window time.Duration // with weights, slowdowns are averaged over it, or since the last change if that is shorter
	Solo   time.Duration // how often each group that reports progress runs nearly alone, which tells its best rate; 0: never
}

var Spec = policy.HostSpec[Settings]{
	Name: "acs", About: "divides processor time among control groups so that all are slowed down by the same factor",
	Defaults: Settings{Rule: Damped, By: Weights, Tolerance: 0.1, Floor: 0.02, Gain: 0.8, Window: 10 * time.Second},
	Keys: func(s *Settings) setting.Table {
		return setting.Table{
			setting.Opt("rule", setting.OneOf(&s.Rule, []Rule{Damped, Literal}),
				"how slowdowns change caps: damped, or literal as in the paper, which always sets caps and seldom settles"),
			setting.Opt("by", setting.OneOf(&s.By, []Means{Weights, Caps}),
				"what divides processor time: the groups' weights, which leave nothing unused, or caps"),
			setting.Opt("tolerance", setting.Share(&s.Tolerance).Above(0).Between(0, 1),
				"caps change when the largest slowdown exceeds the smallest by more than this, until it does by half of it"),
			setting.Opt("floor", setting.Share(&s.Floor).Above(0).Between(0, 0.5), "least cap, as a share of the processors"),
			setting.Opt("gain", setting.Decimal(&s.Gain).Above(0).Between(0, 1),
				"part of a group's distance from the mean that one change makes up for; less is slower, and bears more noise and delay"),
			setting.Opt("cores", setting.Decimal(&s.Cores).Above(0).Between(0, 1e6),
				"how many processors the groups share; set it if a group above them has a quota").Or("all of the machine"),
			setting.Opt("window", setting.Duration(&s.Window).Between(0, time.Hour),
				"with weights, slowdowns are averaged over this time; more bears programs that work and sleep in turns, and is slower"),
			setting.Opt("solo", setting.Duration(&s.Solo).Between(0, 30*24*time.Hour),
				"how often each group that reports progress runs nearly alone for two periods, which tells its rate without neighbours").Or("never"),
		}
	},
	Memory: policy.Empty[memory],
	Decide: decide,
}

// memory is what acs remembers.
type memory struct {
	Groups  map[string]group   `json:"groups,omitempty"`
	Around  map[string]float64 `json:"around,omitempty"`  // weights of the last plan for groups that groups lie in, by path
	Capping bool               `json:"capping,omitempty"` // the last plan had caps
	Even    bool               `json:"even,omitempty"`    // slowdowns were equal enough, and caps stay
	Calm    int                `json:"calm,omitempty"`    // consecutive snapshots in which caps were not needed
	Solo    acsSolo            `json:"solo,omitzero"`     // the group that runs nearly alone
}

// group is what acs remembers of a control group.
type group struct {
	Part    float64 `json:"part,omitempty"`    // of the processors, when no group is idle; a fraction; 0: none was given yet
	Cap     float64 `json:"cap,omitempty"`     // cap of the last plan, in processors; 0: none
	Held    float64 `json:"held,omitempty"`    // cap beside its weight, in processors; 0: none
	Missed  int     `json:"missed,omitempty"`  // consecutive snapshots in which it was not in force
	Unheld  bool    `json:"unheld,omitempty"`  // such a cap could not be set
	Weight  float64 `json:"weight,omitempty"`  // of the last plan, relative to the kernel's usual one; 0: none
	Level   float64 `json:"level,omitempty"`   // slowdown times share, averaged
	Counted int     `json:"counted,omitempty"` // slowdowns in that average since the group changed
	Off     int     `json:"off,omitempty"`     // consecutive slowdowns that were far above the average; negative: below
	Away    int     `json:"away,omitempty"`    // consecutive snapshots in which it was idle

	Unwaited float64         `json:"unwaited,omitempty"` // units of work per second that it would have reported without waiting, averaged
	Best     float64         `json:"best,omitempty"`     // most of these that were seen
	Alone    acsAlone        `json:"alone,omitzero"`     // its rate when it ran nearly alone
	Model    stats.Recursive `json:"model,omitzero"`     // of its reported slowdown, by how long it waited (Eq. 5)
}

// Constants of acs.
const (
	acsIdle = 0.02 // a group that wants less than this many processors is idle
	acsFull = 0.95 // caps are needed only if the groups want this fraction of the processors
	acsCalm = 3    // after this many snapshots without need, caps are lifted

	acsMissed = 1 // caps beside weights may miss so many snapshots in a row: an agent that starts again has lifted all
)

// tenant is one control group in a decision.
type tenant struct {
	id        string
	within    string // path of the group that it lies in; "": not known
	share     float64
	before    group
	run, want float64 // processors: used, and what it would have used alone
	slowdown  float64 // 0: not known
	from      quell.SlowdownFrom
	idle      bool
	quota     float64 // in force, in processors; 0: none
	loose     bool    // it does not obey its cap
	bounded   bool    // somebody else's quota, which is smaller than its cap, stops it
	doubt     float64 // the reported slowdown, if it is not plausible
	rate      float64 // units of work per second that it reports; 0: none
	periods   float64 // over which that was measured
	eased     float64 // by which factor the next weight changes the excess of the slowdown over 1; 0: not known
	blind     bool    // the kernel does not report how long it waits
	next      group
}

func (t *tenant) active() bool { return t.slowdown > 0 && !t.idle && !t.foreign() }

// foreign returns whether somebody else decides how much the group gets.
func (t *tenant) foreign() bool { return t.loose || t.bounded }

// level is what acs makes equal: the averaged slowdown, times the share.
func (t *tenant) level() float64 { return t.next.Level }

// hostCaps is one decision.
type hostCaps struct {
	set     Settings
	mem     *memory
	total   float64 // processors
	window  float64 // seconds
	tenants []tenant
	active  []*tenant
	weighs  bool    // by weights, not by caps
	free    float64 // processors that are left by groups that somebody else limits
	wanted  float64 // processors that the groups want
	full    bool    // the groups want nearly all processors, or report that they are slowed down
}

// decide decides caps for the control groups of a machine so that all are slowed down equally (ACS, section IV-D).
func decide(s *quell.Snapshot, set Settings, st *policy.State) quell.Plan {
	mem := policy.Remembered[memory](st)
	if s.Machine == nil || s.Machine.Sched == nil || s.Machine.WindowS <= 0 {
		return quell.Plan{Limits: mem.limits(), Reasons: []quell.Reason{{Code: "machine_unread",
			Text: "the machine's processor times or its control groups cannot be read: caps stay as they are"}}}
	}
	d := &hostCaps{set: set, mem: mem, total: cmp.Or(set.Cores, s.Machine.Sched.Cores), window: s.Machine.WindowS}
	d.weighs = set.Rule != Literal && set.By == Weights
	d.look(s)
	why, alone := d.solo(s.At)
	if alone {
		return d.plan(why)
	}
	why = d.judge()
	mem.Around = nil
	switch {
	case !mem.Capping:
		d.lift()
	case set.Rule == Literal:
		d.literal()
	case d.weighs:
		d.weigh()
	default:
		d.damped()
	}
	return d.plan(why)
}

// look measures every group.
func (d *hostCaps) look(s *quell.Snapshot) {
	for _, in := range s.Instances {
		t := tenant{id: in.ID, within: in.Within, share: 1, before: d.mem.Groups[in.ID]}
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
		if t.unknown() {
			t.slowdown = 0
		}
		d.wanted += t.want
		d.full = d.full || t.from == quell.FromProgress && t.slowdown > 1+d.set.Tolerance
		d.tenants = append(d.tenants, t)
	}
	d.full = d.full || d.wanted >= acsFull*d.total
	d.averageAll()
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

// compare looks whether the last cap is in force, and whether a quota stops a group that has a weight.
func (t *tenant) compare(limits map[quell.Resource]float64, total float64) {
	const rounding = 1.05
	const shortest = 0.01 // of a processor: the kernel may round smaller quotas up
	t.quota = limits[quell.CPU]
	if t.before.Weight > 0 && t.before.Cap == 0 {
		t.bounded = t.quota > 0 && t.quota*rounding < total && t.run*rounding > t.quota
		return
	}
	if t.before.Cap <= shortest {
		return
	}
	t.loose = t.quota == 0 || t.quota > t.before.Cap*rounding
	if t.before.Held > 0 && t.loose {
		t.loose = false
		if t.next.Missed++; t.next.Missed > acsMissed { // it is left to its weight alone
			t.next.Held, t.next.Missed, t.next.Unheld = 0, 0, true
		}
		return
	}
	t.next.Missed = 0
	t.bounded = !t.loose && t.quota < t.before.Cap/rounding && t.run*rounding > t.quota
}

// judge decides whether caps are needed, and whether they change.
func (d *hostCaps) judge() (why quell.Reason) {
	mem, tolerance := d.mem, d.set.Tolerance
	least, most := spread(d.active)
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
	return fmt.Sprintf("%d active groups want %.2f of %g processors", len(d.active), d.wanted, d.total)
}

// spread returns the smallest and the largest level of the active groups; 1 and 1 if there are none.
func spread(active []*tenant) (least, most float64) {
	if len(active) == 0 {
		return 1, 1
	}
	least, most = math.Inf(1), 0
	for _, t := range active {
		least, most = min(least, t.level()), max(most, t.level())
	}
	return least, most
}

// lift removes all caps and weights. The groups' parts stay in the memory for the next time.
func (d *hostCaps) lift() {
	for i := range d.tenants {
		next := &d.tenants[i].next
		next.Cap, next.Held, next.Unheld, next.Weight = 0, 0, false, 0
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
