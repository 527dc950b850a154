package limit

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell/internal/lockfile"
	"github.com/quellhq/quell/internal/strictjson"
)

// content is what a record's file holds, as JSON.
type content struct {
	Target
	Folder uint64    `json:"folder,omitempty"` // identity of the group: one that was made again is another one
	Before setting   `json:"before"`           // what was in force before the first change
	PID    int       `json:"pid"`
	At     time.Time `json:"at"`
}

// record is the locked file that says what to put back.
type record struct {
	content
	file *os.File
}

const suffix = ".json"

// pathOf names a record's file. Paths of groups can be longer than a file's name may be, so the name holds a digest.
func pathOf(dir string, t Target) string {
	digest := sha256.Sum256([]byte(t.Group))
	return filepath.Join(dir, fmt.Sprintf("%x-%s%s", digest[:8], strings.ReplaceAll(t.What(), " ", "-"), suffix))
}

// newRecord makes and locks a record. It refuses to replace one that a killed owner left.
func newRecord(dir string, c content) (*record, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the folder for what was there before: %w", explain(err))
	}
	path := pathOf(dir, c.Target)
	file, err := hold(path, os.O_CREATE)
	if errors.Is(err, lockfile.ErrHeld) {
		return nil, fmt.Errorf("another process limits the %s%s: let only one limit it", c.Target, holderOf(path))
	}
	if err != nil {
		return nil, fmt.Errorf("recording what was there before: %w", explain(err))
	}
	if info, err := file.Stat(); err != nil || info.Size() > 0 {
		return nil, errors.Join(err, file.Close(), fmt.Errorf(
			"%s holds what an earlier process found there, and was not put back: run quell limits clear", path))
	}
	text, err := json.Marshal(c)
	if err == nil {
		_, err = file.Write(append(text, '\n'))
	}
	if err == nil {
		err = file.Sync()
	}
	r := &record{c, file}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("recording what was there before: %w", err), r.remove())
	}
	return r, nil
}

// hold opens and locks a file. Owners remove their files, so it checks that the locked file still has that name.
func hold(path string, flags int) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|flags, 0o644)
		if err != nil {
			return nil, err
		}
		if err := lockfile.Hold(file); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		opened, err := file.Stat()
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if named, err := os.Stat(path); err == nil && os.SameFile(opened, named) {
			return file, nil
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
}

// holderOf names the process of a record, for messages.
func holderOf(path string) string {
	c, err := parseRecord(os.ReadFile(path))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", c.PID)
}

func parseRecord(text []byte, err error) (c content, _ error) {
	if err == nil {
		err = strictjson.Decode(text, &c)
	}
	if err == nil && (c.check() != "" || c.Before == "") {
		err = errors.New("it names no group, or no setting")
	}
	return c, err
}

// remove removes the file, and then releases the lock.
func (r *record) remove() error { return errors.Join(os.Remove(r.file.Name()), r.file.Close()) }

// shared is a kind whose limits tell who changed them last.
type shared interface{ changed(group string) bool }

// restore puts back what was there before, and removes the record. A group that is gone, or was made again, has nothing to put back, nor
// has a limit that somebody else is known to have changed; then done is false.
func (r *record) restore(k kind) (done bool, err error) {
	id, err := k.identity(r.Group)
	others, told := k.(shared)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && r.Folder != 0 && id != r.Folder:
		return false, r.remove()
	case err == nil && told && others.changed(r.Group):
		return false, r.remove()
	case err == nil:
		err = k.write(r.Group, r.Before)
	}
	if err != nil {
		return false, fmt.Errorf("putting back %q: %w", r.Before, err)
	}
	return true, r.remove()
}

// Limit describes a limit in force, or one that a killed process left.
type Limit struct {
	Target
	Now    string    `json:"now"`            // as the kernel writes it; empty if the group is gone
	Before string    `json:"before"`         // what will be put back
	PID    int       `json:"pid"`            // of the process that set it
	Left   bool      `json:"left,omitempty"` // that process has ended without putting back what was there
	At     time.Time `json:"at"`             // when it was limited first
}

// Show lists the recorded limits, by group. Records that cannot be read are part of the error.
func Show(o Options) (list []Limit, err error) {
	o = o.filled()
	err = each(o, func(path string) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return ignoreMissing(err)
		}
		c, err := parseRecord(text, nil)
		left, held := abandoned(path)
		if err != nil && (len(text) == 0 || errors.Is(held, lockfile.ErrHeld)) {
			return nil // its owner has not written it yet, and limits afterwards
		}
		if err != nil {
			return err
		}
		one := Limit{Target: c.Target, Before: string(c.Before), PID: c.PID, At: c.At, Left: left}
		k, err := o.kind(c.Target)
		if err != nil {
			return err
		}
		now, err := k.read(c.Group)
		one.Now = string(now)
		list = append(list, one)
		return ignoreMissing(err)
	})
	slices.SortFunc(list, func(a, b Limit) int { return byName(a.Target, b.Target) })
	return list, err
}

// abandoned returns whether no process holds a record any more, and otherwise why it cannot be told, or lockfile.ErrHeld.
func abandoned(path string) (bool, error) {
	file, err := hold(path, 0)
	if err != nil {
		return false, err
	}
	return true, file.Close()
}

// Restore puts back what was there before the limits that ended processes left. It returns what it put back. Limits of running processes
// stay, and are not an error.
func Restore(o Options) (done []Target, err error) {
	o = o.filled()
	err = each(o, func(path string) error {
		file, err := hold(path, 0)
		if errors.Is(err, lockfile.ErrHeld) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return explain(err)
		}
		r := &record{file: file}
		if info, err := file.Stat(); err == nil && info.Size() == 0 {
			return r.remove() // its owner ended before it changed anything
		}
		restored := false
		if r.content, err = parseRecord(os.ReadFile(path)); err == nil {
			var k kind
			if k, err = o.kind(r.Target); err == nil {
				restored, err = r.restore(k)
			}
		}
		if restored {
			done = append(done, r.Target)
		}
		if err != nil {
			_ = file.Close() // releases the lock, if restore has not removed the record
		}
		return err
	})
	slices.SortFunc(done, byName)
	return done, err
}

// each calls fn with every record's file, and joins the errors.
func each(o Options, fn func(path string) error) error {
	entries, err := os.ReadDir(o.Records)
	if err != nil {
		return ignoreMissing(err)
	}
	var errs []error
	for _, e := range entries {
		if path := filepath.Join(o.Records, e.Name()); strings.HasSuffix(path, suffix) {
			if err := fn(path); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", path, err))
			}
		}
	}
	return errors.Join(errs...)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// explain adds to an error of the file system what a person can do about it.
func explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: run this as root, or as the user to whom the group is delegated", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: the group is gone, or its processors or disks are controlled elsewhere", err)
	}
	return err
}
