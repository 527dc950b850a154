package sensor

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// cpuTicks is processor time since boot, summed over all cores, in kernel ticks.
type cpuTicks struct {
	user, system, idle, iowait, steal uint64
	cores                             int
}

func (t cpuTicks) total() uint64 { return t.user + t.system + t.idle + t.iowait + t.steal }

// parseStat reads /proc/stat. Low-priority time counts as user time, interrupts as system time. A guest's time is already part of user
// time.
func parseStat(text []byte) (cpuTicks, error) {
	var ticks cpuTicks
	found := false
	for i, line := range bytes.Split(text, []byte("\n")) {
		if !bytes.HasPrefix(line, []byte("cpu")) {
			continue
		}
		fields := bytes.Fields(line)
		if string(fields[0]) != "cpu" {
			ticks.cores++
			continue
		}
		v, err := parseTicks(fields[1:])
		if err != nil {
			return cpuTicks{}, fmt.Errorf("line %d: %w", i+1, err)
		}
		ticks.user, ticks.system, ticks.idle, ticks.iowait, ticks.steal = v[0]+v[1], v[2]+v[5]+v[6], v[3], v[4], v[7]
		found = true
	}
	if !found || ticks.cores == 0 {
		return cpuTicks{}, errors.New("no line for all processors, or none for a single one")
	}
	return ticks, nil
}

// parseTicks reads user, nice, system, idle, iowait, irq, softirq and steal; further columns are ignored.
func parseTicks(fields [][]byte) (v [8]uint64, err error) {
	const mostTicks = 1 << 56 // far above real values; keeps every sum below from overflowing
	if len(fields) < len(v) {
		return v, fmt.Errorf("want at least %d columns of processor time, got %d", len(v), len(fields))
	}
	for i := range v {
		if v[i], err = strconv.ParseUint(string(fields[i]), 10, 64); err != nil {
			return v, err
		}
		if v[i] > mostTicks {
			return v, fmt.Errorf("processor time %d is out of range", v[i])
		}
	}
	return v, nil
}
