package sensor

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// taskTimes are how long a task has run, and how long it has waited in run queues, since it began.
type taskTimes struct{ run, wait time.Duration }

// parseTaskSchedstat reads /proc/PID/schedstat: processor time, time in run queues, both in nanoseconds, and the number of turns.
func parseTaskSchedstat(text []byte) (taskTimes, error) {
	run, rest, _ := bytes.Cut(bytes.TrimSpace(text), []byte(" "))
	wait, turns, ok := bytes.Cut(rest, []byte(" "))
	if !ok || len(turns) == 0 || bytes.ContainsAny(turns, " \n\t") {
		return taskTimes{}, fmt.Errorf("schedstat: want 3 numbers, got %q", text)
	}
	ran, errRun := strconv.ParseUint(string(run), 10, 63)
	waited, errWait := strconv.ParseUint(string(wait), 10, 63)
	if err := errors.Join(errRun, errWait); err != nil {
		return taskTimes{}, fmt.Errorf("schedstat: %w", err)
	}
	return taskTimes{run: time.Duration(ran), wait: time.Duration(waited)}, nil
}

// parseSchedstat reads /proc/schedstat and returns the time that tasks spent in run queues, in seconds, summed over processors. This time
// is the eighth number of lines like "cpu0 0 0 0 0 0 0 RUN WAIT TURNS", in nanoseconds.
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
