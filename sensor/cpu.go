package sensor

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"time"

	"github.com/quellhq/quell"
)

// CPU measures how the processors spent the window, how the service's tasks ran and waited, and the service's own utilisation: user and
// system time over the capacity in cores. If a control group is set, all of these are that group's alone, and the capacity is the least of
// its quota, its set of processors, and the processors that are online.
type CPU struct {
	root  fs.FS
	cores *float64 // as configured
	group *cgroupAccount
	last  *cpuReading
	waits diskWaits
}

// cpuReading is the state of the accounts at one moment.
type cpuReading struct {
	at      time.Time
	machine *machineAccount
	group   *ownAccount // nil if the whole machine is the instance
}

// NewCPU returns a sensor of all processors below o.Root, or, if o.Cgroup is set, of that group's processor time.
func NewCPU(o Options) (*CPU, error) {
	cores, err := o.configured(quell.CPU)
	if err != nil {
		return nil, err
	}
	c := &CPU{root: o.Root, cores: cores}
	if o.Cgroup == "" {
		return c, nil
	}
	if o.Cgroup != OwnCgroup && path.Clean(o.Cgroup) != o.Cgroup || o.Cgroup != OwnCgroup && !path.IsAbs(o.Cgroup) {
		return nil, &quell.UserError{Err: fmt.Errorf("agent.cgroup: %q is not a control group: give %s, or a path below the hierarchy as in "+
			"/system.slice/web.service", o.Cgroup, OwnCgroup)}
	}
	c.group = &cgroupAccount{root: o.Root, name: o.Cgroup}
	return c, nil
}

// Name is "cpu".
func (c *CPU) Name() string { return "cpu" }

// Subsample counts the control group's tasks that wait for disks. Without a few calls between two samples, the iowait of a group is
// unknown.
func (c *CPU) Subsample() {
	if c.last != nil && c.last.group != nil {
		c.waits.look(c.last.group.layout)
	}
}

// Sample implements Sensor.
func (c *CPU) Sample(now time.Time, obs *quell.Observation) error {
	before, waiting := c.last, c.waits.take()
	c.last = nil // after a failure below, the next call only sets the starting point: a reading covers exactly one window
	after, partial, err := c.read(now)
	if err != nil {
		return err
	}
	c.last = after
	if before == nil {
		return partial
	}
	own, err := c.between(before, after, waiting)
	if err != nil {
		return errors.Join(partial, err)
	}
	if err := setUtilization(obs, quell.CPU, own.Sched.RunS/own.WindowS, own.Sched.Cores, "cores"); err != nil {
		return errors.Join(partial, err)
	}
	obs.CPU, obs.Sched = own.CPU, own.Sched
	if c.group != nil {
		obs.Pressure = own.Pressure
	}
	for name, value := range own.Counters {
		quell.Put(&obs.Counters, name, value)
	}
	return partial
}

// between returns what the instance did between two readings. waiting is how many tasks of its group waited for disks.
func (c *CPU) between(before, after *cpuReading, waiting *float64) (*quell.Observation, error) {
	window := after.at.Sub(before.at)
	if window <= 0 {
		return nil, errors.New("no time passed since the last reading: reading skipped")
	}
	own, err := before.machine.until(after.machine, after.at, window)
	if err != nil {
		return nil, err
	}
	cores := own.Sched.Cores
	if c.group != nil {
		cores = math.Max(before.group.room(cores), after.group.room(cores)) // a quota that was lowered meanwhile held for only a part of it
	}
	if c.cores != nil {
		cores = *c.cores
	}
	if c.group != nil {
		return before.group.until(after.group, own, cores, waiting)
	}
	own.Sched.Cores = cores
	return own, nil
}

// read reads all accounts. partial is an error about a part of them that is missing.
func (c *CPU) read(now time.Time) (reading *cpuReading, partial, err error) {
	reading = &cpuReading{at: now}
	if reading.machine, partial = readProcessors(c.root); reading.machine == nil {
		return nil, nil, partial
	}
	if c.group == nil {
		return reading, partial, nil
	}
	if reading.group, err = c.group.readOwn(now); reading.group == nil {
		return nil, nil, errors.Join(partial, err)
	}
	return reading, errors.Join(partial, err), nil
}

// until returns the fractions of the time between two readings.
func (before cpuTicks) until(after cpuTicks) (quell.CPUTime, error) {
	if after.user < before.user || after.system < before.system || after.steal < before.steal {
		return quell.CPUTime{}, errors.New("processor times went back: reading skipped")
	}
	spent := cpuTicks{
		user:   after.user - before.user,
		system: after.system - before.system,
		steal:  after.steal - before.steal,
		// The kernel only estimates these two, so they may go back a little.
		idle:   after.idle - min(before.idle, after.idle),
		iowait: after.iowait - min(before.iowait, after.iowait),
	}
	total := float64(spent.total())
	if total == 0 {
		return quell.CPUTime{}, errors.New("no processor time passed since the last reading: reading skipped")
	}
	ioWait := float64(spent.iowait) / total
	return quell.CPUTime{
		User:   float64(spent.user) / total,
		System: float64(spent.system) / total,
		IOWait: &ioWait,
		Steal:  float64(spent.steal) / total,
	}, nil
}
