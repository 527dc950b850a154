package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/keys"
)

// WaitsSettings are the settings of waits.
type WaitsSettings struct {
	Window time.Duration // waiting is averaged over it: the weight of a value falls to 37% after this time
	Report float64       // a group is reported if it waits this fraction of the time in which it wants to run
}

var waitsSpec = hostSpec[WaitsSettings]{
	name: "waits", about: "reports how long each control group waits for a processor, and for whom; changes nothing",
	defaults: WaitsSettings{Window: time.Minute, Report: 0.1},
	keys: func(s *WaitsSettings) keys.Table {
		return keys.Table{
			keys.Opt("window", keys.Duration(&s.Window).Between(time.Second, 24*time.Hour),
				"time over which waiting is averaged; the weight of a value falls to 37% after one window"),
			keys.Opt("report", keys.Share(&s.Report).Above(0).Between(0, 1),
				"a group is named when it waits this share of the time it wants to run, until it waits half of that"),
		}
	},
	memory: empty[waitsMemory],
	decide: decideWaits,
}

// waitsMemory is what waits remembers: sums of seconds with exponential decay.
type waitsMemory struct {
	Groups map[string]waitsOf `json:"groups,omitempty"`
	Others float64            `json:"others_s,omitempty"` // processor time of processes outside all groups
}

// waitsOf holds the sums of one group, in seconds.
type waitsOf struct {
	Run        float64 `json:"run_s"`
	Own        float64 `json:"own_s"`
	Quota      float64 `json:"quota_s"`
	Neighbours float64 `json:"neighbours_s"`
	Hypervisor float64 `json:"hypervisor_s"`
	Blind      bool    `json:"blind,omitempty"` // at the last reading the kernel did not report how long its tasks waited
	Cause      string  `json:"cause,omitempty"` // the reported cause; empty if the group waits too little for a report
}

// decideWaits reports which control groups wait for processors, and why. Its plans change nothing.
func decideWaits(s *quell.Snapshot, set WaitsSettings, st *State) quell.Plan {
	mem := remembered[waitsMemory](st)
	if s.Machine == nil || s.Machine.Sched == nil || s.Machine.CPU == nil || s.Machine.WindowS <= 0 {
		return quell.Plan{Reasons: []quell.Reason{{Code: "machine_unread",
			Text: "the machine's processor times are not known: nothing can be said of its groups"}}}
	}
	machine := machineShare{run: s.Machine.Sched.RunS, stolen: s.Machine.CPU.Steal * s.Machine.Sched.Cores * s.Machine.WindowS}
	kept := math.Exp(-s.Machine.WindowS / set.Window.Seconds())
	groups := make(map[string]waitsOf, len(s.Instances))
	rest := machine.run
	for _, in := range s.Instances {
		was := mem.Groups[in.ID].times(kept)
		if in.Observation != nil && in.Observation.Sched != nil {
			was = was.plus(machine.split(in.Observation))
			rest -= in.Observation.Sched.RunS
		}
		groups[in.ID] = was
	}
	mem.Others = kept*mem.Others + max(0, rest)
	mem.Groups = groups
	return mem.plan(s, set)
}

// machineShare is what a machine's processors did in a window, in seconds.
type machineShare struct {
	run    float64 // user and system time of all processes
	stolen float64 // taken by the hypervisor while something wanted to run
}

// split divides a group's waiting time among its causes. First it subtracts the time for which a quota stopped the group, at most the whole
// waiting time. Of the remainder, the hypervisor's part is its share of the busy time. The rest is divided between the group's other tasks
// and its neighbours in proportion to the processor time that they got.
func (m machineShare) split(obs *quell.Observation) waitsOf {
	sched := obs.Sched
	m.run = max(m.run, sched.RunS) // the machine's clock ticks are coarser than a group's account
	w := waitsOf{Run: sched.RunS}
	if m.run > 0 {
		w.Hypervisor = m.stolen * sched.RunS / m.run // its share of what was stolen from running tasks
	}
	quota := 0.0
	if sched.ThrottledS != nil {
		quota = *sched.ThrottledS
	}
	wait, ownShare, ok := waiting(obs, m.run)
	if !ok {
		w.Quota, w.Blind = quota, true
		return w
	}
	w.Quota = min(wait, quota)
	wait -= w.Quota
	if busy := m.run + m.stolen; busy > 0 {
		stolen := wait * m.stolen / busy
		w.Hypervisor += stolen
		wait = max(0, wait-stolen) // rounding may take a little more than there is
	}
	w.Own = wait * ownShare
	w.Neighbours = wait - w.Own
	return w
}

// waiting returns how many seconds a group's tasks waited, and in which fraction (own) of that time processors ran other tasks of the same
// group instead of its neighbours' tasks. run is the processor time of the whole machine. ok is false if the kernel does not report this.
func waiting(obs *quell.Observation, run float64) (seconds, own float64, ok bool) {
	sched := obs.Sched
	if sched.WaitS != nil {
		// A task never waits for itself. It waits for the other tasks of its group and for neighbours' tasks.
		itself := 0.0
		if sched.TaskRunS != nil {
			itself = min(*sched.TaskRunS, sched.RunS)
		}
		if run > itself {
			own = (sched.RunS - itself) / (run - itself)
		}
		return *sched.WaitS, own, true
	}
	some, ok := obs.Pressure["cpu"]
	if !ok {
		return 0, 0, false
	}
	// During full pressure no task of the group ran, so the group did not wait for its own tasks.
	if full := obs.Pressure[quell.PressureFull]; some > full && run > 0 {
		own = (some - full) / some * sched.RunS / run
	}
	return some * obs.WindowS, own, true
}

func (w waitsOf) times(x float64) waitsOf {
	w.Run, w.Own, w.Quota, w.Neighbours, w.Hypervisor = x*w.Run, x*w.Own, x*w.Quota, x*w.Neighbours, x*w.Hypervisor
	return w
}

func (w waitsOf) plus(v waitsOf) waitsOf {
	w.Run, w.Own, w.Quota = w.Run+v.Run, w.Own+v.Own, w.Quota+v.Quota
	w.Neighbours, w.Hypervisor, w.Blind = w.Neighbours+v.Neighbours, w.Hypervisor+v.Hypervisor, v.Blind
	return w
}

func (w waitsOf) waited() float64 { return w.Own + w.Quota + w.Neighbours + w.Hypervisor }

func (w waitsOf) wanted() float64 { return w.Run + w.waited() }

// The causes of waiting. A reason's code is "waits_" followed by the cause.
const (
	ownCause        = "own"
	quotaCause      = "quota"
	neighboursCause = "neighbours"
	hypervisorCause = "hypervisor"
)

// cause is one part of a group's waiting.
type cause struct {
	name, words string
	seconds     float64
}

func (w waitsOf) causes() []cause {
	return []cause{
		{quotaCause, "its own quota", w.Quota}, {neighboursCause, "neighbours on this machine", w.Neighbours},
		{ownCause, "its own load", w.Own}, {hypervisorCause, "the hypervisor", w.Hypervisor},
	}
}

// next returns the cause to report: the largest part, if the group waits at least the fraction report. A reported cause stays until the
// waiting has halved or another cause is a quarter larger, so that two equal causes do not alternate.
func (w waitsOf) next(report float64) string {
	if w.Cause != "" {
		report /= 2
	}
	if w.waited() < report*w.wanted() {
		return ""
	}
	const clearly = 1.25
	list := w.causes()
	top := slices.MaxFunc(list, func(a, b cause) int { return cmp.Compare(a.seconds, b.seconds) })
	if i := slices.IndexFunc(list, func(c cause) bool { return c.name == w.Cause }); i >= 0 && top.seconds < clearly*list[i].seconds {
		return w.Cause
	}
	return top.name
}

// leastUse is how many processors a group must want, on average over the window, before its waiting is reported. In an idle group, the
// sums of waiting and running decay at the same rate, so their ratio would never change.
const leastUse = 0.01

// plan builds the report from the memory.
func (mem *waitsMemory) plan(s *quell.Snapshot, set WaitsSettings) quell.Plan {
	plan := quell.Plan{Waits: map[string]quell.Waits{}}
	blind := 0
	for _, in := range s.Instances {
		w := mem.Groups[in.ID]
		if w.wanted() < leastUse*set.Window.Seconds() {
			w.Cause = ""
			mem.Groups[in.ID] = w
			continue
		}
		w.Cause = w.next(set.Report)
		mem.Groups[in.ID] = w
		told := mem.told(in.ID)
		plan.Waits[in.ID] = told
		if w.Blind {
			blind++
		}
		if w.Cause != "" {
			plan.Reasons = append(plan.Reasons, quell.Reason{Code: "waits_" + w.Cause, Instance: in.ID, Text: w.text(set.Window, told.Neighbour)})
		}
	}
	if len(plan.Waits) == 0 {
		plan.Waits = nil
	}
	if blind > 0 {
		plan.Reasons = append(plan.Reasons, quell.Reason{Code: "waits_unknown", Text: fmt.Sprintf(
			"for %d of %d groups the kernel reports neither pressure nor waiting in run queues: only waiting for quota and hypervisor is known",
			blind, len(s.Instances))})
	}
	return plan
}

// told returns the waiting of a group as fractions of the time in which it wanted to run.
func (mem *waitsMemory) told(group string) quell.Waits {
	w := mem.Groups[group]
	share := func(seconds float64) *float64 { seconds /= w.wanted(); return &seconds }
	told := quell.Waits{Quota: share(w.Quota), Hypervisor: share(w.Hypervisor)}
	if !w.Blind {
		told.Share, told.Own, told.Neighbours = share(w.waited()), share(w.Own), share(w.Neighbours)
		told.Neighbour = mem.neighbourOf(group)
	}
	return told
}

// neighbourOf returns the neighbouring group that ran most, or "" if processes outside all groups ran more.
func (mem *waitsMemory) neighbourOf(group string) (name string) {
	most := mem.Others
	for id, w := range mem.Groups {
		if id != group && w.Run > 0 && (w.Run > most || w.Run == most && name != "" && id < name) {
			name, most = id, w.Run
		}
	}
	return name
}

// text describes how a group waited, the largest part first.
func (w waitsOf) text(window time.Duration, neighbour string) string {
	wanted := w.wanted()
	list := w.causes()
	slices.SortStableFunc(list, func(a, b cause) int { return cmp.Compare(b.seconds, a.seconds) })
	var parts []string
	for _, c := range list {
		if c.seconds < 0.001*wanted {
			continue
		}
		if c.name == neighboursCause && neighbour != "" {
			c.words += ", most of them " + neighbour
		}
		parts = append(parts, fmt.Sprintf("%.1f%% for %s", 100*c.seconds/wanted, c.words))
	}
	return fmt.Sprintf("waited %.1f%% of the time it wanted to run, over %s: %s", 100*w.waited()/wanted, keys.FormatDuration(window),
		strings.Join(parts, "; "))
}
