package experiment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/scenario"
)

// LockRun takes the folder of a scenario's run below dir for this process, until release or the process's end. One that
// somebody else plays into is a *quell.UserError.
func LockRun(dir string, index int, run scenario.Run) (release func() error, err error) {
	folder := runDir(dir, index, run)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("making the run's folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("taking the run's folder: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = &quell.UserError{Err: fmt.Errorf("another `quell lab run` is playing into %s: wait for it, or give this one another --out", folder)}
		}
		return nil, errors.Join(err, file.Close())
	}
	return file.Close, nil
}
