package local

import "time"

// thread is the clocks of the OS thread that probes.
type thread interface {
	// now is a clock that only runs forward.
	now() time.Duration
	// used is the thread's own processor time.
	used() time.Duration
	// waited is how long the thread has been ready to run and had no processor.
	waited() (time.Duration, error)
	// nap sleeps in the kernel, with nothing of the program in between when it ends.
	nap(d time.Duration)
	close() error
}
