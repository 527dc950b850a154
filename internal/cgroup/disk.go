package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// DiskBytes returns what the processes in a group's folder have read from disks plus what they have written to them, in bytes. It counts
// only processes that are there now, so the sum falls when one ends. root is the machine's file system.
func DiskBytes(root fs.FS, folder string) (sum uint64, err error) {
	pids, err := fs.ReadFile(root, path.Join(folder, "cgroup.procs"))
	if err != nil {
		return 0, err
	}
	for _, pid := range strings.Fields(string(pids)) {
		bytes, err := ProcessBytes(root, pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) { // the process has just ended
			continue
		}
		if err != nil {
			return 0, err
		}
		sum += bytes
	}
	return sum, nil
}

// ProcessBytes returns what a process has read from disks plus what it has written to them, in bytes.
func ProcessBytes(root fs.FS, pid string) (sum uint64, err error) {
	text, err := fs.ReadFile(root, path.Join("proc", pid, "io"))
	if err != nil {
		return 0, err
	}
	if sum, err = parseIO(string(text)); err != nil {
		return 0, fmt.Errorf("process %s: %w", pid, err)
	}
	return sum, nil
}

// parseIO reads /proc/PID/io and returns the bytes read from disks plus those written to disks.
func parseIO(text string) (sum uint64, err error) {
	const most = 1 << 53
	found := 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name != "read_bytes" && name != "write_bytes" {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 63)
		if err == nil && n > most {
			err = fmt.Errorf("%d is out of range", n)
		}
		if err != nil {
			return 0, fmt.Errorf("io: %w", err)
		}
		sum += n
		found++
	}
	if found != 2 {
		return 0, errors.New("io has no read_bytes and write_bytes")
	}
	return sum, nil
}
