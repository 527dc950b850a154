// Package sensor reads a machine: how much the instance itself uses of its resources, and the kernel's figures of pressure on them.
//
// Every file is read below an injected root, so the same code reads a live machine (os.DirFS("/")), a fake tree in a test and the synthetic
// files of an emulated host. The procfs library needs the path of a mounted file system and does not export its parsers, so this package
// parses the few formats itself.
package sensor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Sensor measures one part of an observation.
type Sensor interface {
	// Name is short and stable: it labels a metric.
	Name() string
	// Sample adds what was measured since the previous call to obs. A sensor of differences adds nothing on its first call and on the call
	// after a failure. An error that only the user can fix wraps *quell.UserError.
	Sample(now time.Time, obs *quell.Observation) error
}

// Failure is one sensor that could not be read. If the machine does not offer it, the error is *Unavailable.
type Failure struct {
	Sensor string
	Err    error
}

// Options say where and how the machine is read.
type Options struct {
	// Root holds the machine's proc and sys, as os.DirFS("/") does.
	Root fs.FS
	// Interface is the network interface to watch; empty means the one of the default route, or the only one that has routes.
	Interface string
	// Capacity replaces detected capacities: of network in bit/s, of cpu in cores. The capacities of disk (operations/s) and memory
	// (bytes/s) are never detected.
	Capacity map[quell.Resource]float64
	// Link is what the provider publishes of the network of this machine's type.
	Link Link
	// DiskBytes is how many bytes the disk can read and write per second; 0 means unknown.
	DiskBytes float64
	// Wanted are the resources other than network and cpu whose utilisation is measured.
	Wanted []quell.Resource
	// Cgroup is the control group that runs the service: OwnCgroup, or a path below the hierarchy. If it is empty, the processor time and
	// the pressure of the whole machine count as the service's.
	Cgroup string
	// Exclude returns the bytes that the probe server has sent so far; they do not count as the service's traffic. Nil excludes nothing.
	Exclude func() uint64
	// Events counts events of the processors, as KernelEvents does. Nil: none are counted.
	Events OpenEvents
	// More are additional sensors of this machine, such as those of its probes.
	More []Sensor
}

// New returns the sensors of network, cpu, pressure and tcp, and those that o asks for. A capacity that is not a positive number is a
// *quell.UserError.
func New(o Options) (*Set, error) {
	network, errNetwork := NewNetwork(o)
	cpu, errCPU := NewCPU(o)
	if err := errors.Join(errNetwork, errCPU); err != nil {
		return nil, err
	}
	set := []Sensor{network, cpu, NewTCP(o)}
	if o.Cgroup == "" { // else cpu reports the group's own pressure
		set = append(set, NewPressure(o))
	}
	if slices.Contains(o.Wanted, quell.Disk) || o.Capacity[quell.Disk] > 0 || o.DiskBytes > 0 {
		disk, err := NewDisk(o)
		if err != nil {
			return nil, err
		}
		set = append(set, disk)
	}
	var memory *Memory
	if slices.Contains(o.Wanted, quell.Memory) || o.Capacity[quell.Memory] > 0 {
		var err error
		memory, err = NewMemory(o)
		if err != nil {
			return nil, err
		}
		set = append(set, memory)
	}
	set = append(set, NewTop(o, memory))
	if o.Events != nil {
		set = append(set, NewCounters(o))
	}
	return NewSet(append(set, o.More...)...), nil
}

// Set samples several sensors like one. It is not safe for concurrent use.
type Set struct {
	sensors []Sensor
	last    time.Time
}

// NewSet returns a set of the given sensors. They are sampled in that order.
func NewSet(sensors ...Sensor) *Set { return &Set{sensors: sensors} }

// Names returns the names of the sensors.
func (s *Set) Names() (names []string) {
	for _, one := range s.sensors {
		names = append(names, one.Name())
	}
	return names
}

// Sample returns what was measured since the previous call, and the sensors that failed; the others are not affected. The first call only
// sets the starting point: its observation has no window.
func (s *Set) Sample(now time.Time) (quell.Observation, []Failure) {
	obs := quell.Observation{At: now.UTC()}
	if !s.last.IsZero() {
		obs.WindowS = max(0, now.Sub(s.last).Seconds())
	}
	s.last = now
	var failures []Failure
	for _, sensor := range s.sensors {
		if err := sensor.Sample(now, &obs); err != nil {
			failures = append(failures, Failure{Sensor: sensor.Name(), Err: err})
		}
	}
	return obs, failures
}

// Subsample lets the sensors look at what comes and goes between two samples. The more often it is called, the more accurate they are.
func (s *Set) Subsample() {
	for _, one := range s.sensors {
		if g, ok := one.(interface{ Subsample() }); ok {
			g.Subsample()
		}
	}
}

// Close closes the sensors that keep something open.
func (s *Set) Close() error {
	var errs []error
	for _, sensor := range s.sensors {
		if c, ok := sensor.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// Substitute returns why the processors' utilisation is used instead of the memory's, "" if it is not.
func (s *Set) Substitute() string {
	for _, one := range s.sensors {
		if m, ok := one.(*Memory); ok {
			return m.Substitute()
		}
	}
	return ""
}

// Doubt returns why the capacity of the network may be wrong, "" if nothing speaks against it.
func (s *Set) Doubt() string {
	for _, one := range s.sensors {
		if n, ok := one.(*Network); ok {
			return n.Doubt()
		}
	}
	return ""
}

// Interface returns the network interface that was read last, and its capacity in bit/s; "" if there is none.
func (s *Set) Interface() (name string, capacity float64) {
	for _, one := range s.sensors {
		if n, ok := one.(*Network); ok {
			return n.Interface()
		}
	}
	return "", 0
}

// configured returns the capacity of a resource in the options, nil if it is to be detected.
func (o Options) configured(r quell.Resource) (*float64, error) {
	v, ok := o.Capacity[r]
	if !ok {
		return nil, nil
	}
	if !(v > 0) || math.IsInf(v, 0) {
		return nil, &quell.UserError{Err: fmt.Errorf("agent.capacity.%s: %v is no capacity: give a positive number, or leave it out to have "+
			"it detected", r, v)}
	}
	return &v, nil
}

// setUtilization stores used / capacity, both in the given unit. A value a little above 1 comes from a burst or from coarse clocks. A value
// above 2 is an error: the capacity must be wrong.
func setUtilization(obs *quell.Observation, r quell.Resource, used, capacity float64, unit string) error {
	const absurd = 2
	if used > absurd*capacity {
		return &quell.UserError{Err: fmt.Errorf("agent.capacity.%s: %.4g %s are used of a capacity of %.4g: set the true capacity", r, used, unit,
			capacity)}
	}
	quell.Put(&obs.Utilization, r, used/capacity)
	return nil
}
