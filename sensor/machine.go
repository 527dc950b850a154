package sensor

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/quellhq/quell"
)

// machineAccount holds a machine's counters at one moment.
type machineAccount struct {
	ticks    cpuTicks
	wait     *float64 // seconds that tasks spent in run queues; nil if the kernel does not report it
	pressure map[string]stall
}

func readMachine(root fs.FS) (*machineAccount, error) {
	m, err := readProcessors(root)
	if m == nil {
		return nil, err
	}
	var errPressure error
	m.pressure, errPressure = readStalls(root, "proc/pressure", "")
	return m, errors.Join(errPressure, err)
}

// readProcessors reads a machine's counters except those of pressure. If it returns both an account and an error, the error is about values
// that the account lacks.
func readProcessors(root fs.FS) (*machineAccount, error) {
	text, err := fs.ReadFile(root, "proc/stat")
	if err != nil {
		return nil, fmt.Errorf("reading processor times: %w", err)
	}
	m := &machineAccount{}
	if m.ticks, err = parseStat(text); err != nil {
		return nil, fmt.Errorf("parsing /proc/stat: %w", err)
	}
	text, errSched := fs.ReadFile(root, "proc/schedstat")
	if errors.Is(errSched, fs.ErrNotExist) {
		return m, nil
	}
	if errSched == nil {
		var wait float64
		if wait, errSched = parseSchedstat(text); errSched == nil {
			m.wait = &wait
		}
	}
	return m, errSched
}

// until returns what the machine did between two moments.
func (before *machineAccount) until(after *machineAccount, now time.Time, window time.Duration) (*quell.Observation, error) {
	spent, err := before.ticks.until(after.ticks)
	if err != nil {
		return nil, err
	}
	cores := float64(after.ticks.cores)
	all := cores * window.Seconds()
	user, system := spent.User*all, spent.System*all
	obs := &quell.Observation{
		At: now.UTC(), WindowS: window.Seconds(), CPU: &spent, Pressure: pressureBetween(before.pressure, after.pressure, window),
		Utilization: map[quell.Resource]float64{quell.CPU: spent.User + spent.System},
		Sched:       &quell.Sched{Cores: cores, RunS: user + system, UserS: &user, SystemS: &system},
	}
	if before.wait != nil && after.wait != nil && *after.wait >= *before.wait {
		obs.Sched.WaitS = new(*after.wait - *before.wait)
	}
	return obs, nil
}
