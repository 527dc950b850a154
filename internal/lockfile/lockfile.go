// Package lockfile gives one process exclusive use of a file or a folder. A lock ends with its process, however the process ends.
package lockfile

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld says that another holder has the lock.
var ErrHeld = errors.New("held by somebody else")

// Hold locks an open file until it is closed. It does not wait: if the file is already locked, the error is ErrHeld.
func Hold(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrHeld
	}
	return err
}

// If a process is killed between fork and exec of a child, the child keeps a copy of the locked descriptor until its exec. So Take
// tries again for this long.
const (
	outlast = time.Second
	retry   = 10 * time.Millisecond
)

// Take makes a file if it is missing and holds it until release, which leaves the file. If another holder does not release it
// within a second, the error is ErrHeld; other errors are those of opening or locking the file.
func Take(path string, perm os.FileMode) (release func() error, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, perm)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(outlast)
	for err = Hold(file); errors.Is(err, ErrHeld) && time.Now().Before(deadline); err = Hold(file) {
		time.Sleep(retry)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	// Unlock explicitly, because such children may hold the lock after the file is closed.
	return func() error { return errors.Join(unix.Flock(int(file.Fd()), unix.LOCK_UN), file.Close()) }, nil
}
