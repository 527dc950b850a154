//go:build !linux

package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// identify returns what distinguishes a process from every other with the same pid: the second of its start. A
// process that exited but was not reaped counts as dead. The error is os.ErrProcessDone if there is no such process.
func identify(pid int) (identity string, dead bool, err error) {
	out, err := exec.Command("ps", "-o", "stat=,lstart=", "-p", strconv.Itoa(pid)).Output()
	state, started, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	var exit *exec.ExitError
	switch {
	case state == "" && (err == nil || errors.As(err, &exit)):
		return "", true, os.ErrProcessDone
	case err != nil:
		return "", false, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	return strings.TrimSpace(started), strings.HasPrefix(state, "Z"), nil
}

// awaitExit returns when a child has exited, without reaping it: until it is reaped no other process can get its pid.
func awaitExit(pid int) {
	for {
		if _, dead, _ := identify(pid); dead {
			return
		}
		time.Sleep(lookEvery)
	}
}
