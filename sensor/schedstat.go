package sensor

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// taskTimes are how long a task has run and how long it has waited in run queues, since it began.
type taskTimes struct{ run, wait time.Duration }

// parseTaskSchedstat reads /proc/PID/schedstat: processor time, time in run queues, both in nanoseconds, and the number of turns.
func parseTaskSchedstat(text []byte) (taskTimes, error) {
	fields := bytes.Fields(text)
	if len(fields) != 3 {
		return taskTimes{}, fmt.Errorf("schedstat: want 3 numbers, got %q", text)
	}
	run, errRun := strconv.ParseUint(string(fields[0]), 10, 63)
	wait, errWait := strconv.ParseUint(string(fields[1]), 10, 63)
	if err := errors.Join(errRun, errWait); err != nil {
		return taskTimes{}, fmt.Errorf("schedstat: %w", err)
	}
	return taskTimes{time.Duration(run), time.Duration(wait)}, nil
}

// parseSchedstat reads /proc/schedstat and returns the time that tasks spent in run queues, in seconds, summed over processors. That is the
// eighth number of lines like "cpu0 0 0 0 0 0 0 RUN WAIT TURNS", in nanoseconds.
func parseSchedstat(text []byte) (seconds float64, err error) {
	const column = 8
	found := false
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) == 0 || !bytes.HasPrefix(fields[0], []byte("cpu")) {
			continue
		}
		if len(fields) <= column {
			return 0, fmt.Errorf("schedstat: want at least %d numbers after %s, got %d", column, fields[0], len(fields)-1)
		}
		ns, err := strconv.ParseUint(string(fields[column]), 10, 63)
		if err != nil {
			return 0, fmt.Errorf("schedstat: %w", err)
		}
		seconds += float64(ns) / 1e9
		found = true
	}
	if !found {
		return 0, errors.New("schedstat: no line of a processor")
	}
	return seconds, nil
}
