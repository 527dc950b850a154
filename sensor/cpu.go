package sensor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/quellhq/quell"
)

// CPU measures how the processors spent the window, and the service's own utilisation: user and system time over the capacity in cores. If
// a control group is set, only that group's processor time counts, and the capacity is the group's quota.
type CPU struct {
	root  fs.FS
	cores *float64 // as configured
	group *cgroupAccount
	last  *cpuReading
}

// cpuReading is the state of the accounts at one moment.
type cpuReading struct {
	ticks cpuTicks
	group *groupReading
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

// Sample implements Sensor.
func (c *CPU) Sample(now time.Time, obs *quell.Observation) error {
	before := c.last
	c.last = nil // after a failure below, the next call only sets the starting point: a reading covers exactly one window
	after, err := c.read(now)
	if err != nil {
		return err
	}
	c.last = after
	if before == nil {
		return nil
	}
	spent, err := before.ticks.until(after.ticks)
	if err != nil {
		return err
	}
	obs.CPU = &spent
	capacity := float64(after.ticks.cores)
	used := (spent.User + spent.System) * capacity
	if c.group != nil {
		if used, err = before.group.report(after.group, obs); err != nil {
			return err
		}
		if after.group.quota > 0 {
			capacity = after.group.quota
		}
	}
	if c.cores != nil {
		capacity = *c.cores
	}
	return setUtilization(obs, quell.CPU, used, capacity, "cores")
}

func (c *CPU) read(now time.Time) (*cpuReading, error) {
	text, err := fs.ReadFile(c.root, "proc/stat")
	if err != nil {
		return nil, fmt.Errorf("reading processor times: %w", err)
	}
	ticks, err := parseStat(text)
	if err != nil {
		return nil, fmt.Errorf("parsing /proc/stat: %w", err)
	}
	reading := &cpuReading{ticks: ticks}
	if c.group != nil {
		reading.group, err = c.group.read(now)
	}
	return reading, err
}

// report returns how many processors the group used between two readings, and for how long its quota stopped it.
func (before *groupReading) report(after *groupReading, obs *quell.Observation) (cores float64, err error) {
	cores, throttled, err := before.until(after)
	if err == nil && throttled != nil {
		if obs.Counters == nil {
			obs.Counters = map[string]float64{}
		}
		obs.Counters[CounterThrottled] = *throttled
	}
	return cores, err
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
	return quell.CPUTime{
		User:   float64(spent.user) / total,
		System: float64(spent.system) / total,
		IOWait: float64(spent.iowait) / total,
		Steal:  float64(spent.steal) / total,
	}, nil
}
