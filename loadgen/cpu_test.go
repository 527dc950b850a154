package loadgen

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the processor time, user and system, that this process has used so far.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
