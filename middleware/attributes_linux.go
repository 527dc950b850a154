package middleware

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const accessList = "system.posix_acl_access"

// keepAttributes gives an open file the access list and the SELinux label of another one.
func keepAttributes(file *os.File, of string) error {
	for _, name := range []string{accessList, "security.selinux"} {
		if err := keepAttribute(int(file.Fd()), of, name); err != nil {
			return fmt.Errorf("copying the attribute %s of %s: %w", name, of, err)
		}
	}
	return nil
}

func keepAttribute(fd int, of, name string) error {
	wanted, err := attribute(func(to []byte) (int, error) { return unix.Getxattr(of, name, to) })
	if err != nil {
		return err
	}
	has, err := attribute(func(to []byte) (int, error) { return unix.Fgetxattr(fd, name, to) })
	switch {
	case err != nil || bytes.Equal(has, wanted):
		return err
	case wanted != nil:
		return unix.Fsetxattr(fd, name, wanted, 0)
	case name == accessList: // the file has the folder's default list
		return unix.Fremovexattr(fd, name)
	}
	return nil
}

// attribute reads an attribute; nil if the file has none.
func attribute(get func(to []byte) (int, error)) ([]byte, error) {
	value := make([]byte, 64<<10) // the largest value that Linux allows
	n, err := get(value)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	return value[:max(n, 0)], err
}
