//go:build unix

package connlimit

import (
	"math"
	"syscall"
)

// Files is the process's limit of open files, 0 if there is none. The Go runtime has raised it to the hard limit.
func Files() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return 0
	}
	return int(limit.Cur)
}
