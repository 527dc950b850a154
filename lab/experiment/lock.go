package experiment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/lockfile"
	"github.com/quellhq/quell/lab/scenario"
)

// LockRun locks the folder of one run below dir, until release is called or this process ends. If another process has locked it, the
// error is a *quell.UserError.
func LockRun(dir string, index int, run scenario.Run) (release func() error, err error) {
	folder := runDir(dir, index, run)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("making the run's folder: %w", err)
	}
	release, err = lockfile.Take(filepath.Join(folder, "lock"), 0o644)
	if errors.Is(err, lockfile.ErrHeld) {
		return nil, &quell.UserError{Err: fmt.Errorf("another `quell lab run` is playing into %s: wait for it, or give this one another --out",
			folder)}
	}
	if err != nil {
		return nil, fmt.Errorf("taking the run's folder: %w", err)
	}
	return release, nil
}
