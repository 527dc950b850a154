package atomicfile

import (
	"errors"

	"golang.org/x/sys/unix"
)

func exchange(path, with string) error {
	err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, with, unix.RENAME_EXCHANGE)
	if err == unix.EINVAL { // the file system does not know the flag
		return errors.ErrUnsupported
	}
	return err // ENOSYS and ENOTSUP are errors.ErrUnsupported
}
