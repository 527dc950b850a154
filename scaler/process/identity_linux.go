package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// identify returns what distinguishes a process from every other with the same pid: the boot id and its start time in
// clock ticks, field 22 of /proc/PID/stat. A process that exited but was not reaped counts as dead. The error is
// os.ErrProcessDone if there is no such process.
func identify(pid int) (identity string, dead bool, err error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return failedLook(pid, err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return failedLook(pid, err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false, fmt.Errorf("reading the boot id: %w", err)
	}
	identity = fmt.Sprintf("%s/%d", strings.TrimSpace(string(boot)), stat.Starttime)
	return identity, stat.State == "Z" || stat.State == "X", nil
}

func failedLook(pid int, err error) (string, bool, error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return "", true, os.ErrProcessDone
	}
	return "", false, fmt.Errorf("looking at process %d: %w", pid, err)
}

// awaitExit returns when a child has exited, without reaping it: until it is reaped no other process can get its pid.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
