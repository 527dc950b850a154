// Package include reads and changes a file of an upstream's servers, which nginx's configuration includes. What a change does not name
// stays as it is: comments, white space, other directives, and other parameters of servers.
package include

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/quellhq/quell/internal/atomicfile"
)

// File is a file as it was read.
type File struct {
	Text    string
	Servers []*Server // each address once
	path    string
	mode    os.FileMode
}

// Read reads a file. A missing file has no servers.
func Read(path string) (*File, error) {
	f := &File{path: path, mode: 0o644}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading nginx's servers: %w", err)
	}
	if info, err := os.Stat(path); err == nil {
		f.mode = info.Mode().Perm()
	}
	f.Text = string(text)
	list, err := parse(f.Text)
	if err == nil {
		f.Servers, err = servers(list)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Replace writes another text and puts it to use. If that fails the old text is put back, unless somebody has changed the file meanwhile.
func (f *File) Replace(text string, use func() error) error {
	if err := f.put(text); err != nil {
		return fmt.Errorf("writing nginx's servers: %w", err)
	}
	err := use()
	if err == nil {
		return nil
	}
	if now, failed := os.ReadFile(f.path); failed == nil && string(now) != text {
		return fmt.Errorf("%w; somebody has changed %s meanwhile, which stays as it is", err, f.path)
	}
	if undo := f.put(f.Text); undo != nil {
		return errors.Join(err, fmt.Errorf("putting back nginx's servers: %w", undo))
	}
	return err
}

// put replaces the file and keeps its mode and its owner. A symbolic link stays one.
func (f *File) put(text string) error {
	info, err := os.Stat(f.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	path := f.path
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return atomicfile.WriteWith(path, []byte(text), f.mode, func(file *os.File) error {
		if info == nil {
			return nil
		}
		owner, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(owner.Uid) == os.Geteuid() && int(owner.Gid) == os.Getegid() {
			return nil
		}
		return file.Chown(int(owner.Uid), int(owner.Gid))
	})
}
