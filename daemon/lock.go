package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/lockfile"
)

// lockData makes the data folder and locks it for this controller. The lease identifies installations by this folder,
// so two controllers with one folder would both get the lease. The lock ends with the process.
func lockData(folder string) (release func() error, err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("making the data folder: %w", err)
	}
	path := filepath.Join(folder, "controller.lock")
	release, err = lockfile.Take(path, 0o600)
	if errors.Is(err, lockfile.ErrHeld) {
		return nil, fmt.Errorf("a controller runs already with the data folder %s: give this one another, or stop that one", folder)
	}
	if err != nil {
		return nil, fmt.Errorf("taking the data folder: %w", err)
	}
	atomicfile.LikeFolder(path) // root may have made it, for `quell release`
	return release, nil
}
