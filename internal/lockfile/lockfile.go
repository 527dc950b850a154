// Package lockfile gives one process exclusive use of a file or a folder. A lock ends with its process in any case.
package lockfile

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld says that another holder has the lock.
var ErrHeld = errors.New("held by somebody else")

// Hold locks an open file until it is closed. It does not wait: a file that is held is ErrHeld.
func Hold(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrHeld
	}
	return err
}

// A killed process may leave a child between fork and exec, which holds a copy of the descriptor until it runs its own program: Take asks
// for the lock for so long.
const (
	outlast = time.Second
	retry   = 10 * time.Millisecond
)

// Take makes a file if it is missing and holds it until release, which leaves the file. The error is ErrHeld, after a second in which
// another holder did not give it up, or what opening or locking it said.
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
	// The lock is given back explicitly: the same children may hold it after the file is closed.
	return func() error { return errors.Join(unix.Flock(int(file.Fd()), unix.LOCK_UN), file.Close()) }, nil
}
