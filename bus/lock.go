package bus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/quellhq/quell/internal/lockfile"
)

// lockName is a file with a lock that keeps two servers from using one store; NATS itself does not prevent that. The
// lock ends with its process in every case; the file stays.
const lockName = "bus.lock"

// freeSpace is what must be writable at the start, in bytes; with less space the store cannot be opened.
const freeSpace = 64 << 10

type dirLock struct{ file *os.File }

func lockDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, lockName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the bus cannot write to its store: %w", err)
	}
	if err := lockfile.Hold(file); err != nil {
		return nil, errors.Join(lockError(dir, err), file.Close())
	}
	if err := tryWrite(file); err != nil {
		return nil, errors.Join(writeError(dir, err), file.Close())
	}
	return &dirLock{file}, nil
}

func lockError(dir string, err error) error {
	if errors.Is(err, lockfile.ErrHeld) {
		return fmt.Errorf("the bus store %s is in use by a running process; stop it, or ask it through its bus URL", dir)
	}
	return fmt.Errorf("lock the bus store %s: %w", dir, err)
}

func tryWrite(file *os.File) error {
	if _, err := file.WriteAt(make([]byte, freeSpace), 0); err != nil {
		return errors.Join(err, file.Truncate(0))
	}
	return errors.Join(file.Sync(), file.Truncate(0))
}

func writeError(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("the disk under the bus store %s is full; free some space: %w", dir, err)
	}
	return fmt.Errorf("the bus cannot write to its store %s: %w", dir, err)
}

func (l *dirLock) release() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("unlock the bus store: %w", err)
	}
	return nil
}
