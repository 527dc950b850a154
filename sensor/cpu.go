package sensor

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/quellhq/quell"
)

// CPU measures how the processors spent the window, and the service's own use of them: user and system time over
// the capacity in cores.
type CPU struct {
	root  fs.FS
	cores *float64 // as configured
	last  *cpuTicks
}

// NewCPU returns a sensor of all processors below o.Root.
func NewCPU(o Options) (*CPU, error) {
	cores, err := o.configured(quell.CPU)
	if err != nil {
		return nil, err
	}
	return &CPU{root: o.Root, cores: cores}, nil
}

// Name is "cpu".
func (c *CPU) Name() string { return "cpu" }

// Sample implements Sensor.
func (c *CPU) Sample(_ time.Time, obs *quell.Observation) error {
	before := c.last
	c.last = nil // a failure below primes anew: a reading covers exactly one window
	text, err := fs.ReadFile(c.root, "proc/stat")
	if err != nil {
		return fmt.Errorf("reading processor times: %w", err)
	}
	after, err := parseStat(text)
	if err != nil {
		return fmt.Errorf("parsing /proc/stat: %w", err)
	}
	c.last = &after
	if before == nil {
		return nil
	}
	spent, err := before.until(after)
	if err != nil {
		return err
	}
	obs.CPU = &spent
	present := float64(after.cores)
	capacity := present
	if c.cores != nil {
		capacity = *c.cores
	}
	return setUtilization(obs, quell.CPU, (spent.User+spent.System)*present, capacity, "cores")
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
		// The kernel only estimates these two, and lets them go back a little.
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
