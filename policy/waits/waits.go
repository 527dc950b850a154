package waits

import (
	"fmt"
	"math"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/setting"
)

// Settings are the settings of waits.
type Settings struct {
	Window time.Duration // waiting is averaged over it: the weight of a value falls to 37% after this time
	Report float64       // a group is reported if it waits this fraction of the time in which it wants to run
}

var Spec = policy.HostSpec[Settings]{
	Name: "waits", About: "reports how long each control group waits for a processor, and for whom; changes nothing",
	Defaults: Settings{Window: time.Minute, Report: 0.1},
	Keys: func(s *Settings) setting.Table {
		return setting.Table{
			setting.Opt("window", setting.Duration(&s.Window).Between(time.Second, 24*time.Hour),
				"time over which waiting is averaged; the weight of a value falls to 37% after one window"),
			setting.Opt("report", setting.Share(&s.Report).Above(0).Between(0, 1),
				"a group is named when it waits this share of the time it wants to run, until it waits half of that"),
		}
	},
	Memory: policy.Empty[memory],
	Decide: decide,
}

// memory is what waits remembers: sums of seconds with exponential decay.
type memory struct {
	Groups map[string]group `json:"groups,omitempty"`
	Others float64          `json:"others_s,omitempty"` // processor time of processes outside all groups
}

// group holds the sums of one group.
type group struct {
	policy.Waited
	Cause string `json:"cause,omitempty"` // the reported cause; empty if the group waits too little for a report
}

// decide reports which control groups wait for processors, and why. Its plans change nothing.
func decide(s *quell.Snapshot, set Settings, st *policy.State) quell.Plan {
	mem := policy.Remembered[memory](st)
	if s.Machine == nil || s.Machine.Sched == nil || s.Machine.CPU == nil || s.Machine.WindowS <= 0 {
		return quell.Plan{Reasons: []quell.Reason{{Code: "machine_unread",
			Text: "the machine's processor times are not known: nothing can be said of its groups"}}}
	}
	machine := policy.MachineShare{Run: s.Machine.Sched.RunS, Stolen: s.Machine.CPU.Steal * s.Machine.Sched.Cores * s.Machine.WindowS}
	kept := math.Exp(-s.Machine.WindowS / set.Window.Seconds())
	groups := make(map[string]group, len(s.Instances))
	rest := machine.Run
	for _, in := range s.Instances {
		was := mem.Groups[in.ID]
		was.Waited = was.Times(kept)
		if in.Observation != nil && in.Observation.Sched != nil {
			was.Waited = was.Plus(machine.Split(in.Observation))
			rest -= in.Observation.Sched.RunS
		}
		groups[in.ID] = was
	}
	mem.Others = kept*mem.Others + max(0, rest)
	mem.Groups = groups
	return mem.plan(s, set)
}

// next returns the cause to report: the largest part, if the group waits at least the fraction report. A reported cause stays until the
// waiting has halved or another cause is a quarter larger, so that two equal causes do not alternate.
func (w group) next(report float64) string {
	if w.Cause != "" {
		report /= 2
	}
	if w.Sum() < report*w.Wanted() {
		return ""
	}
	const clearly = 1.25
	top := w.Largest()
	if now := w.Of(w.Cause); now > 0 && w.Of(top) < clearly*now {
		return w.Cause
	}
	return top
}

// plan builds the report from the memory.
func (mem *memory) plan(s *quell.Snapshot, set Settings) quell.Plan {
	plan := quell.Plan{Waits: map[string]quell.Waits{}}
	blind := 0
	for _, in := range s.Instances {
		w := mem.Groups[in.ID]
		if w.Wanted() < policy.MinUse*set.Window.Seconds() {
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
func (mem *memory) told(group string) quell.Waits {
	w := mem.Groups[group]
	told := w.Shares()
	if !w.Blind {
		told.Neighbour = mem.neighbourOf(group)
	}
	return told
}

// neighbourOf returns the neighbouring group that ran most, or "" if processes outside all groups ran more.
func (mem *memory) neighbourOf(group string) (name string) {
	most := mem.Others
	for id, w := range mem.Groups {
		if id != group && w.Run > 0 && (w.Run > most || w.Run == most && name != "" && id < name) {
			name, most = id, w.Run
		}
	}
	return name
}

// text describes how a group waited, the largest part first.
func (w group) text(window time.Duration, neighbour string) string {
	told := w.Shares()
	told.Neighbour = neighbour
	return fmt.Sprintf("waited %.1f%% of the time it wanted to run, over %s: %s", 100*w.Sum()/w.Wanted(), setting.FormatDuration(window),
		told.Parts())
}
