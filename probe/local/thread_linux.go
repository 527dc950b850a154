package local

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// osThread is the OS thread that made it. Call its methods only on that thread.
type osThread struct {
	schedstat int // file descriptor
	text      [64]byte
}

func openThread() (thread, error) {
	const path = "/proc/thread-self/schedstat"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("the kernel does not tell how long a thread waits for a processor (%s: %w)", path, err)
	}
	t := &osThread{schedstat: fd}
	if _, err := t.waited(); err != nil {
		return nil, errors.Join(err, t.close())
	}
	// With this timer slack, sleeps end on time. If the kernel refuses the setting, sleeps end up to 50 us late.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	return t, nil
}

func (t *osThread) now() time.Duration  { return clock(unix.CLOCK_MONOTONIC) }
func (t *osThread) used() time.Duration { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

// clock reads a clock that every Linux has, so there is no error.
func clock(id int32) time.Duration {
	var at unix.Timespec
	_ = unix.ClockGettime(id, &at)
	return time.Duration(at.Nano())
}

// waited reads the second number of the thread's schedstat, in nanoseconds.
func (t *osThread) waited() (time.Duration, error) {
	n, err := unix.Pread(t.schedstat, t.text[:], 0)
	if err != nil {
		return 0, fmt.Errorf("reading how long a thread waits for a processor: %w", err)
	}
	fields := bytes.Fields(t.text[:n])
	if len(fields) < 2 {
		return 0, fmt.Errorf("schedstat: want 3 numbers, got %q", t.text[:n])
	}
	ns, err := strconv.ParseUint(string(fields[1]), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("schedstat: %w", err)
	}
	return time.Duration(ns), nil
}

func (t *osThread) nap(d time.Duration) {
	end := unix.NsecToTimespec(int64(t.now() + d))
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &end, nil) == unix.EINTR {
	}
}

// processors returns on how many processors this thread may run now. Go itself counts them only when the process starts.
func processors() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return runtime.NumCPU() // more processors than the set can hold
	}
	return max(1, set.Count())
}

func (t *osThread) close() error { return unix.Close(t.schedstat) }
