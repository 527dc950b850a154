// Package cgroup finds where a machine's control groups, of version 1 or 2, are mounted.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Tree is where the groups of one controller, such as cpu, are mounted. In a container often only the part below the container's
// own group is mounted.
type Tree struct {
	Controller string // as /proc/self/cgroup names it; "" in version 2
	Point      string // where it is mounted, without the leading slash
	root       string // path, in the hierarchy, of the group that is mounted there
}

// Folder is where a group's files are, without the leading slash, by its path below the hierarchy.
func (t Tree) Folder(group string) string {
	return path.Join(t.Point, strings.TrimPrefix(group, strings.TrimSuffix(t.root, "/")))
}

// Group is the inverse of Folder: it returns the group whose folder this is.
func (t Tree) Group(folder string) string {
	return path.Join("/", strings.TrimSuffix(t.root, "/"), strings.TrimPrefix(folder, t.Point))
}

// Trees are a machine's mounted trees.
type Trees struct {
	Unified bool // whether it is version 2, whose only tree has every controller
	trees   map[string]Tree
}

// Of returns the tree of a controller as version 1 names it (cpu, cpuacct, blkio), and whether there is one.
func (t *Trees) Of(controller string) (Tree, bool) {
	if t.Unified {
		controller = ""
	}
	tree, ok := t.trees[controller]
	return tree, ok
}

// Find looks at what is mounted on a machine whose proc and sys are below root. If both versions are mounted, it takes version 2 if
// that controls processors. A machine without control groups has no trees.
func Find(root fs.FS) (*Trees, error) {
	text, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("finding the control groups: %w", err)
	}
	found := &Trees{trees: map[string]Tree{}}
	for _, m := range parseMounts(text) {
		for _, controller := range m.controllers {
			tree := Tree{Controller: controller, Point: m.point, root: m.root}
			if controller != "" {
				found.trees[controller] = tree
			} else if controls(root, m.point) {
				return &Trees{Unified: true, trees: map[string]Tree{"": tree}}, nil
			}
		}
	}
	return found, nil
}

// controls returns whether a tree of version 2 has the controller cpu.
func controls(root fs.FS, point string) bool {
	has, err := fs.ReadFile(root, path.Join(point, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(has)), "cpu")
}

// mount is one mounted tree.
type mount struct {
	root, point string
	controllers []string // version 2: one controller, ""
}

// parseMounts reads /proc/self/mountinfo: id, parent, device, root, mount point, options, " - ", type, source, super options.
func parseMounts(text []byte) (mounts []mount) {
	for line := range strings.Lines(string(text)) {
		left, right, ok := strings.Cut(line, " - ")
		before, after := strings.Fields(left), strings.Fields(right)
		if !ok || len(before) < 5 || len(after) < 3 {
			continue
		}
		m := mount{root: unescape(before[3]), point: strings.TrimPrefix(path.Clean(unescape(before[4])), "/")}
		switch after[0] {
		case "cgroup2":
			m.controllers = []string{""}
		case "cgroup":
			m.controllers = strings.Split(after[2], ",")
		default:
			continue
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// unescape undoes mountinfo's \040 for a space, and the like.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// Own returns the groups of a process or a thread, by controller. file is its cgroup file below root, for example proc/self/cgroup.
func Own(root fs.FS, file string) (map[string]string, error) {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return nil, fmt.Errorf("finding the own control group: %w", err)
	}
	own := parseOwn(text)
	if len(own) == 0 {
		return nil, errors.New("finding the own control group: /" + file + " names none")
	}
	return own, nil
}

// parseOwn reads lines such as "4:cpu,cpuacct:/path"; the controller of version 2 is "".
func parseOwn(text []byte) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			own[controller] = parts[2]
		}
	}
	return own
}
