// Package atomicfile writes files completely or not at all. A reader finds the old or the new content, also after a crash at any
// point. When a function returns, the file and its entry in the folder are on the disk. Files get exactly the requested
// permissions, whatever the umask is and whichever an older file had.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"
)

// Write creates a file or replaces the existing one. A symbolic link is replaced, not followed.
func Write(path string, data []byte, mode os.FileMode) error {
	return WriteWith(path, data, mode, func(*os.File) error { return nil })
}

// WriteNamed is like Write, for a path that a user gave. A symbolic link is followed, and its target is replaced. A device or a pipe is
// written into, which may block as the device does. A folder is refused.
func WriteNamed(path string, data []byte, mode os.FileMode) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		target, err := linked(path, mostLinks)
		if err != nil {
			return err
		}
		return Write(target, data, mode)
	case err != nil:
		return err
	case info.IsDir():
		return &fs.PathError{Op: "write", Path: path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		return writeInto(path, data)
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	return Write(target, data, mode)
}

// mostLinks bounds a chain of symbolic links, as Linux does.
const mostLinks = 40

// linked follows symbolic links to a file that need not exist.
func linked(path string, most int) (string, error) {
	to, err := os.Readlink(path)
	if err != nil { // no link, or nothing
		return path, nil
	}
	if most == 0 {
		return "", &fs.PathError{Op: "write", Path: path, Err: syscall.ELOOP}
	}
	if !filepath.IsAbs(to) {
		folder, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		to = filepath.Join(folder, to)
	}
	return linked(to, most-1)
}

// writeInto writes to a device or a pipe.
func writeInto(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

// WriteWith is like Write. Before the file gets its name, finish may give it another owner, other permissions or attributes. If finish
// fails, nothing is written.
func WriteWith(path string, data []byte, mode os.FileMode, finish func(*os.File) error) error {
	file, err := begin(path, data, mode)
	if err != nil {
		return err
	}
	if err = named(path, finish(file.File)); err == nil {
		err = file.CloseAtomicallyReplace()
	}
	if err != nil {
		return errors.Join(err, file.Cleanup())
	}
	return SyncFolder(path)
}

// Create creates a file. If there is one already it is not changed, and the error is os.ErrExist.
func Create(path string, data []byte, mode os.FileMode) error {
	file, err := begin(path, data, mode)
	if err != nil {
		return err
	}
	if err = file.Sync(); err == nil {
		err = os.Link(file.Name(), path)
	}
	if err = errors.Join(err, file.Cleanup()); err != nil {
		return err
	}
	return SyncFolder(path)
}

// Replace gives a file the name of another one, which it replaces. Both must be in one folder. The caller has synced the content.
func Replace(path, by string) error {
	if err := os.Rename(by, path); err != nil {
		return err
	}
	return SyncFolder(path)
}

// Remove removes a file, if there is one.
func Remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Exchange gives each of two files the other one's name in one step, so neither is lost. They may be of any type; links are not followed.
// After an error nothing has changed; it is errors.ErrUnsupported if the file system or this platform cannot do that. Exchange syncs
// nothing: see SyncFolder.
func Exchange(path, with string) error {
	if err := exchange(path, with); err != nil {
		return &os.LinkError{Op: "exchange", Old: path, New: with, Err: err}
	}
	return nil
}

// begin writes the content to a temporary file in the same folder.
func begin(path string, data []byte, mode os.FileMode) (*renameio.PendingFile, error) {
	file, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(mode))
	if err != nil {
		return nil, named(path, err)
	}
	if _, err := file.Write(data); err != nil {
		return nil, errors.Join(named(path, err), file.Cleanup())
	}
	return file, nil
}

// named replaces the temporary file's name in an error by that of the file.
func named(path string, err error) error {
	var of *fs.PathError
	if !errors.As(err, &of) {
		return err
	}
	return &fs.PathError{Op: of.Op, Path: path, Err: of.Err}
}

// LikeFolder gives a file or folder that root made to the owner of the folder that it is in: a service that runs as that user must be able
// to read what a person did for it with root's rights. Where that is not allowed, and for what belongs to somebody else, nothing changes.
func LikeFolder(path string) {
	if os.Geteuid() != 0 {
		return
	}
	mine, err := os.Lstat(path)
	folder, noFolder := os.Stat(filepath.Dir(path))
	if err != nil || noFolder != nil {
		return
	}
	now, known := mine.Sys().(*syscall.Stat_t)
	if owner, ok := folder.Sys().(*syscall.Stat_t); ok && known && now.Uid == 0 {
		_ = os.Lchown(path, int(owner.Uid), int(owner.Gid))
	}
}

// SyncFolder brings the entry of a file in its folder to the disk.
func SyncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
