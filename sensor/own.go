package sensor

import (
	"bytes"
	"errors"
	"io/fs"
	"time"

	"github.com/quellhq/quell"
)

// ownAccount holds the counters of an instance's own control group at one moment. These counters include nothing that a neighbour does: the
// tenant of a virtual machine sees no more.
type ownAccount struct {
	groupAccount
	cores float64 // the least quota of the group and of those above it; 0: none
}

// readOwn reads the group. Of the quotas that stop it, only the group's own is reported: neighbours may use up the quota of a group above.
// If it returns both an account and an error, the error is about values that the account lacks.
func (c *cgroupAccount) readOwn(now time.Time) (*ownAccount, error) {
	layout, err := c.layout()
	if err != nil {
		return nil, err
	}
	tasks := newTaskReader(c.root)
	if tasks.disks = accountsDelays(c.root); tasks.disks {
		tasks.own = ownTasks(c.root)
	}
	account, partial := readGroup(layout, now, tasks)
	if account == nil {
		return nil, c.failed(partial)
	}
	own := &ownAccount{groupAccount: *account, cores: account.quota}
	if own.quotaReading, err = layout.leastQuota(layout.cpu); err != nil {
		return nil, c.failed(err)
	}
	if err := errors.Join(partial, tasks.err()); err != nil {
		return own, c.failed(err)
	}
	return own, nil
}

// accountsDelays returns whether the kernel counts how long each task waits for disks.
func accountsDelays(root fs.FS) bool {
	text, err := fs.ReadFile(root, "proc/sys/kernel/task_delayacct")
	return err == nil && string(bytes.TrimSpace(text)) == "1"
}

// ownTasks lists the tasks of this process.
func ownTasks(root fs.FS) map[string]bool {
	entries, _ := fs.ReadDir(root, "proc/self/task") // without them, all tasks count
	own := make(map[string]bool, len(entries))
	for _, e := range entries {
		own[e.Name()] = true
	}
	return own
}

// until returns what the group did between two moments. cores is the group's capacity. machine is the observation of the whole machine
// over the same time; it tells how much of the group's processors the hypervisor took.
func (before *ownAccount) until(after *ownAccount, machine *quell.Observation, cores float64) (*quell.Observation, error) {
	window := after.at.Sub(before.at)
	obs, err := before.groupAccount.until(&after.groupAccount, after.at, window)
	if err != nil {
		return nil, err
	}
	obs.Sched.Cores, obs.Sched.Group = cores, true
	whole, s := cores*window.Seconds(), obs.Sched
	if s.UserS == nil || s.SystemS == nil {
		return obs, nil
	}
	user := 1.0
	if sum := *s.UserS + *s.SystemS; sum > 0 {
		user = *s.UserS / sum // in ticks; the processor time is exact
	}
	obs.CPU = &quell.CPUTime{User: s.RunS * user / whole, System: s.RunS * (1 - user) / whole}
	idle := max(0, 1-obs.CPU.User-obs.CPU.System)
	if run := max(machine.Sched.RunS, s.RunS); run > 0 {
		stolen := machine.CPU.Steal * machine.Sched.Cores * machine.WindowS
		obs.CPU.Steal = min(idle, stolen*s.RunS/run/whole)
		idle -= obs.CPU.Steal
	}
	if waited := before.disk(after, obs.Pressure, window); waited != nil {
		share := min(idle, *waited/whole)
		obs.CPU.IOWait = &share
	}
	return obs, nil
}

// disk returns how long the group's tasks waited for disks, in seconds; nil if the kernel does not report it. Pressure is the time in
// which at least one task waited. The agent's own tasks do not count: its probes of the disk wait nearly all the time. Neither does a
// task that is said to have waited for longer than the window: Linux 6.18 was seen to add times that were none.
func (before *ownAccount) disk(after *ownAccount, pressure map[string]float64, window time.Duration) *float64 {
	if some, ok := pressure["io"]; ok {
		seconds := some * window.Seconds()
		return &seconds
	}
	if !before.disks || !after.disks || before.tasks == nil || after.tasks == nil {
		return nil
	}
	var sum time.Duration
	for id, now := range after.tasks {
		then, known := before.tasks[id]
		if waited := now.disk - then.disk; known && now.run >= then.run && waited >= 0 && waited <= window+tick {
			sum += waited
		}
	}
	seconds := sum.Seconds()
	return &seconds
}
