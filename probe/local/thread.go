package local

import "time"

// thread reads the clocks of the OS thread that probes.
type thread interface {
	// now reads a clock that never goes back.
	now() time.Duration
	// used returns the thread's own processor time.
	used() time.Duration
	// waited returns how long the thread has been ready to run without a processor.
	waited() (time.Duration, error)
	// nap sleeps in the kernel, not in Go's scheduler, so that the thread continues as soon as the kernel wakes it.
	nap(d time.Duration)
	close() error
}
