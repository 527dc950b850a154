package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockData makes the data folder and takes it for this controller alone: the lease tells installations apart by it,
// so two controllers with one folder would both be given the lease. The lock ends with the process.
func lockData(folder string) (release func() error, err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("making the data folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(folder, "controller.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("taking the data folder: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("a controller runs already with the data folder %s: give this one another, or stop that one", folder)
		}
		return nil, errors.Join(err, file.Close())
	}
	return file.Close, nil
}
