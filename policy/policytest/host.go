package policytest

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

// OnHost is a snapshot of a machine's groups over ten seconds.
func OnHost(cores, run, stolen float64, groups ...quell.Instance) *quell.Snapshot {
	at := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	for i := range groups {
		groups[i].State = quell.Ready
		if o := groups[i].Observation; o != nil {
			o.At, o.WindowS = at, 10
		}
	}
	return &quell.Snapshot{At: at, Host: "h", Instances: groups, Machine: &quell.Observation{
		At: at, WindowS: 10, CPU: &quell.CPUTime{User: run / cores / 10, Steal: stolen / cores / 10},
		Sched: &quell.Sched{Cores: cores, RunS: run},
	}}
}

// Waiter is a group whose tasks' waiting times are known; itself is the processor time of one task.
func Waiter(id string, run, wait, itself, throttled float64) quell.Instance {
	return quell.Instance{ID: id, Observation: &quell.Observation{Sched: &quell.Sched{RunS: run, WaitS: &wait, TaskRunS: &itself,
		ThrottledS: &throttled}}}
}

// Pressed is a group whose processor pressure (PSI) is known.
func Pressed(id string, run, some, full float64) quell.Instance {
	return quell.Instance{ID: id, Observation: &quell.Observation{
		Pressure: map[string]float64{"cpu": some, quell.PressureFull: full}, Sched: &quell.Sched{RunS: run},
	}}
}

// Blind is a group whose waiting the kernel does not report.
func Blind(id string, run, throttled float64) quell.Instance {
	return quell.Instance{ID: id, Observation: &quell.Observation{Sched: &quell.Sched{RunS: run, ThrottledS: &throttled}}}
}

func DrawHost(t *rapid.T) *quell.Snapshot {
	seconds := func(most float64, name string) float64 { return rapid.Float64Range(0, most).Draw(t, name) }
	var groups []quell.Instance
	for i := range rapid.IntRange(0, 4).Draw(t, "groups") {
		id := fmt.Sprintf("g%d", i)
		run, throttled := seconds(20, "run"), seconds(20, "throttled")
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			groups = append(groups, Waiter(id, run, seconds(1000, "wait"), seconds(25, "itself"), throttled))
		case 1:
			some := seconds(1, "some")
			groups = append(groups, Pressed(id, run, some, some*seconds(1, "full")))
		case 2:
			groups = append(groups, Blind(id, run, throttled))
		default:
			groups = append(groups, quell.Instance{ID: id})
		}
	}
	return OnHost(2, seconds(15, "machine"), seconds(5, "stolen"), groups...)
}

// Shares writes the reported parts of a group's waiting as text, in tenths of a percent; an absent part is a dash.
func Shares(w quell.Waits) string {
	var parts []string
	for _, p := range []*float64{w.Share, w.Own, w.Quota, w.Neighbours, w.Hypervisor} {
		if p == nil {
			parts = append(parts, "-")
			continue
		}
		parts = append(parts, fmt.Sprintf("%.1f", 100**p))
	}
	return strings.TrimSpace(strings.Join(parts, " ") + " " + w.Neighbour)
}
