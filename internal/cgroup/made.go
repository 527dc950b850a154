package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Made is a control group that this process made, in the trees of processors, their accounts, and disks.
type Made struct {
	Group   string // path below the hierarchy
	folders []string
	home    []string // folders of the groups of this process before it entered
}

// controllers are those of a program's own group.
var controllers = []string{"cpu", "cpuacct", "blkio"}

// Make makes a group on this machine, and the group above it if that is missing. It is an error if the group exists.
func Make(group string) (*Made, error) {
	root := os.DirFS("/")
	trees, err := Find(root)
	if err != nil {
		return nil, err
	}
	own, err := Own(root, "proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	m := &Made{Group: group}
	for _, controller := range controllers {
		tree, ok := trees.Of(controller)
		folder := "/" + tree.Folder(group)
		if !ok || slices.Contains(m.folders, folder) {
			continue
		}
		if err := makeIn(tree, group, trees.Unified); err != nil {
			return nil, errors.Join(err, m.Remove())
		}
		m.folders, m.home = append(m.folders, folder), append(m.home, "/"+tree.Folder(own[tree.Controller]))
	}
	if len(m.folders) == 0 {
		return nil, errors.New("the kernel offers no control groups for processors or disks")
	}
	return m, nil
}

// Left returns the parts of a group that an earlier process made and that are still there.
func (t *Trees) Left(group string) *Made {
	m := &Made{Group: group}
	for _, controller := range controllers {
		tree, ok := t.Of(controller)
		folder := "/" + tree.Folder(group)
		if _, err := os.Stat(folder); ok && err == nil && !slices.Contains(m.folders, folder) {
			m.folders = append(m.folders, folder)
		}
	}
	return m
}

// makeIn makes a group in one tree. In version 2 the controllers must be enabled in all groups above it; without them the group exists but
// cannot be limited.
func makeIn(tree Tree, group string, unified bool) error {
	above := "/" + tree.Folder(path.Dir(group))
	if err := os.MkdirAll(above, 0o755); err != nil {
		return fmt.Errorf("making a control group: %w", err)
	}
	if unified {
		for folder := above; len(folder) > len(tree.Point); folder = filepath.Dir(folder) {
			for _, controller := range []string{"+cpu", "+io"} {
				_ = os.WriteFile(filepath.Join(filepath.Dir(folder), "cgroup.subtree_control"), []byte(controller), 0)
			}
		}
		for _, controller := range []string{"+cpu", "+io"} {
			_ = os.WriteFile(filepath.Join(above, "cgroup.subtree_control"), []byte(controller), 0)
		}
	}
	if err := os.Mkdir("/"+tree.Folder(group), 0o755); err != nil {
		return fmt.Errorf("making a control group: %w", err)
	}
	return nil
}

// Enter moves this process into the group. Children that it starts then are in the group, too.
func (m *Made) Enter() error { return move(m.folders) }

// Leave moves this process back to its groups.
func (m *Made) Leave() error { return move(m.home) }

func move(folders []string) error {
	for _, folder := range folders {
		if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("entering a control group: %w", err)
		}
	}
	return nil
}

// Processes lists the processes in the group and in groups that they made below it.
func (m *Made) Processes() (list []int, err error) {
	for _, folder := range m.all() {
		text, err := os.ReadFile(filepath.Join(folder, "cgroup.procs"))
		if errors.Is(err, syscall.EOPNOTSUPP) {
			continue // a group of threads; the group above it lists their processes
		}
		if err != nil && !gone(err) {
			return list, err
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 && !slices.Contains(list, pid) {
				list = append(list, pid)
			}
		}
	}
	return list, nil
}

// Remove removes the group with those below it, and the one above it if that is empty. There must be no process in them.
func (m *Made) Remove() error {
	var errs []error
	for _, folder := range slices.Backward(m.all()) {
		if err := os.Remove(folder); err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("removing a control group: %w", err))
		}
	}
	for _, folder := range m.folders {
		_ = os.Remove(filepath.Dir(folder)) // fails if there are other groups in it
	}
	return errors.Join(errs...)
}

// all returns the folders of the group and of groups below it, each after the one above it.
func (m *Made) all() (list []string) {
	for _, folder := range m.folders {
		_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				list = append(list, path)
			}
			return nil // a group that has just gone is skipped
		})
	}
	return list
}

// gone returns whether an error says that a group is not there any more.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }
