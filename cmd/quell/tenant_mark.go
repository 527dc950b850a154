package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/quellhq/quell/internal/cgroup"
	"github.com/quellhq/quell/internal/lockfile"
)

// tenantMarks is a folder with a file for each group of quell run, which locks it. If quell run is killed, the kernel kills its program,
// but not what that had started. The next quell run finds the file unlocked, ends what is left in the group, and removes both.
type tenantMarks string

// marksOf returns the folder of this user's marks. It is empty after a reboot, like the tree of control groups. "": there is no such place.
func marksOf() tenantMarks {
	if os.Geteuid() == 0 {
		return "/run/quell/run"
	}
	if own := os.Getenv("XDG_RUNTIME_DIR"); own != "" {
		return tenantMarks(filepath.Join(own, "quell-run"))
	}
	return ""
}

// take marks a group as one with a running quell run, until release.
func (m tenantMarks) take(name string) (release func() error, err error) {
	if m == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(string(m), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of running programs: %w", err)
	}
	path := filepath.Join(string(m), name)
	unlock, err := lockfile.Take(path, 0o600)
	if errors.Is(err, lockfile.ErrHeld) {
		return nil, userErrorf("a program called %s runs already: give this one another --name", name)
	}
	if err != nil {
		return nil, fmt.Errorf("marking the group %s: %w", name, err)
	}
	return func() error {
		err := os.Remove(path)
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return errors.Join(err, unlock())
	}, nil
}

// clear ends what is left in groups whose quell run was killed, and removes them.
func (m tenantMarks) clear() error {
	entries, err := os.ReadDir(string(m))
	if m == "" || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if groupName.MatchString(e.Name()) {
			errs = append(errs, m.clearOne(e.Name()))
		}
	}
	return errors.Join(errs...)
}

func (m tenantMarks) clearOne(name string) error {
	path := filepath.Join(string(m), name)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close() // unlocks it
	if err := lockfile.Hold(file); errors.Is(err, lockfile.ErrHeld) {
		return nil
	} else if err != nil {
		return err
	}
	trees, err := cgroup.Find(os.DirFS("/"))
	if err != nil {
		return err
	}
	if err := clearOut(trees.Left(tenantsGroup + "/" + name)); err != nil {
		return fmt.Errorf("clearing the group %s, whose quell run was killed: %w", name, err)
	}
	return os.Remove(path)
}
