package middleware

import (
	"io/fs"
	"os"
	"syscall"

	"github.com/quellhq/quell/internal/atomicfile"
)

// draft writes a candidate for the file, with the file's owner, permissions and attributes. Before it has them, only this process's user
// can read it.
func (f *file) draft(content string) (candidate string, err error) {
	info, err := os.Lstat(f.path)
	if err != nil {
		return "", err
	}
	candidate = f.beside("new")
	return candidate, atomicfile.WriteWith(candidate, []byte(content), 0o600, func(file *os.File) error {
		if err := keepOwner(file, info); err != nil {
			return err
		}
		if err := keepAttributes(file, f.path); err != nil {
			return err
		}
		return file.Chmod(info.Mode().Perm())
	})
}

// keepOwner gives an open file the owner of another one.
func keepOwner(file *os.File, of fs.FileInfo) error {
	has, err := file.Stat()
	if err != nil {
		return err
	}
	mine, ok := has.Sys().(*syscall.Stat_t)
	wanted, known := of.Sys().(*syscall.Stat_t)
	if !ok || !known || mine.Uid == wanted.Uid && mine.Gid == wanted.Gid {
		return nil
	}
	return file.Chown(int(wanted.Uid), int(wanted.Gid))
}
