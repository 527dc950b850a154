package sensor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/quellhq/quell"
)

// Memory measures the service's own utilisation of the memory's bandwidth. Few machines count that traffic: it needs resctrl, access to the
// machine itself and a configured capacity. On all other machines the utilisation of the processors is used instead, so Memory must be
// sampled after CPU.
type Memory struct {
	opts     Options
	capacity *float64 // bytes per second, as configured
	last     *memoryReading
}

type memoryReading struct {
	at    time.Time
	bytes uint64
}

// NewMemory returns a sensor of the memory's traffic.
func NewMemory(o Options) (*Memory, error) {
	capacity, err := o.configured(quell.Memory)
	return &Memory{opts: o, capacity: capacity}, err
}

// Name is "memory".
func (m *Memory) Name() string { return "memory" }

// trafficFiles count the bytes between a cache and the memory.
const trafficFiles = "sys/fs/resctrl/mon_data/mon_L3_*/mbm_total_bytes"

// Substitute returns why the processors' utilisation is used instead of the memory's; "" if the memory's traffic is measured.
func (m *Memory) Substitute() string {
	files, _ := fs.Glob(m.opts.Root, trafficFiles) // no error: the pattern is valid
	switch {
	case m.opts.Cgroup != "":
		return "of a control group alone the kernel counts no memory traffic"
	case len(files) == 0:
		return "the kernel counts no memory traffic (resctrl)"
	case m.capacity == nil:
		return "agent.capacity.memory is not set"
	}
	return ""
}

// Sample implements Sensor.
func (m *Memory) Sample(now time.Time, obs *quell.Observation) error {
	before := m.last
	m.last = nil
	if m.Substitute() != "" {
		if used, ok := obs.Utilization[quell.CPU]; ok {
			obs.Utilization[quell.Memory] = used
		}
		return nil
	}
	sum, err := m.read()
	if err != nil {
		return err
	}
	m.last = &memoryReading{now, sum}
	if before == nil {
		return nil
	}
	seconds := now.Sub(before.at).Seconds()
	if seconds <= 0 || sum < before.bytes {
		return errors.New("the counters of memory traffic, or the clock, went back: reading skipped")
	}
	return setUtilization(obs, quell.Memory, float64(sum-before.bytes)/seconds, *m.capacity, "bytes/s")
}

// read returns the sum of the traffic of all caches.
func (m *Memory) read() (sum uint64, err error) {
	files, _ := fs.Glob(m.opts.Root, trafficFiles)
	for _, file := range files {
		text, err := fs.ReadFile(m.opts.Root, file)
		if err != nil {
			return 0, fmt.Errorf("reading memory traffic: %w", err)
		}
		n, err := parseCount(string(bytes.TrimSpace(text)))
		if err != nil { // the hardware sometimes says "Unavailable" or "Error"
			return 0, fmt.Errorf("memory traffic in /%s: %w", file, err)
		}
		sum += n
	}
	return sum, nil
}
