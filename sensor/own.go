package sensor

import (
	"errors"
	"time"

	"github.com/quellhq/quell"
)

// ownAccount holds the counters of an instance's own control group at one moment. These counters include nothing that a neighbour does: the
// tenant of a virtual machine sees no more.
type ownAccount struct {
	groupAccount
	layout *groupLayout
	cores  float64 // what quotas and sets of processors leave it, with those of the groups above it; 0: neither limits it
}

// readOwn reads the group. Of the quotas that stop it, only the group's own is reported: neighbours may use up the quota of a group above.
// If it returns both an account and an error, the error is about values that the account lacks.
func (c *cgroupAccount) readOwn(now time.Time) (*ownAccount, error) {
	layout, err := c.layout()
	if err != nil {
		return nil, err
	}
	tasks := newTaskReader(c.root)
	account, partial := readGroup(layout, now, tasks)
	if account == nil {
		return nil, c.failed(partial)
	}
	own := &ownAccount{groupAccount: *account, layout: layout}
	if own.cores, err = layout.room(account.quota); err != nil {
		return nil, c.failed(err)
	}
	if own.quotaReading, err = layout.leastQuota(layout.cpu); err != nil {
		return nil, c.failed(err)
	}
	if err := errors.Join(partial, tasks.err()); err != nil {
		return own, c.failed(err)
	}
	return own, nil
}

// room returns the group's capacity on a machine of that many processors. A quota may exceed the machine, and a set may name processors
// that are offline.
func (a *ownAccount) room(processors float64) float64 {
	if a.cores == 0 {
		return processors
	}
	return min(a.cores, processors)
}

// until returns what the group did between two moments. cores is the group's capacity. machine is the observation of the whole machine
// over the same time; it tells how much of the group's processors the hypervisor took. waiting is how many tasks waited for disks on
// average, nil if that is not known.
func (before *ownAccount) until(after *ownAccount, machine *quell.Observation, cores float64, waiting *float64) (*quell.Observation,
	error) {
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
	if waiting != nil {
		obs.CPU.IOWait = new(min(idle, *waiting/cores))
	}
	return obs, nil
}
