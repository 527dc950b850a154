package sensor

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/quellhq/quell/internal/cgroup"
)

// mostGroups is how many groups are read. If there are more, that is reported as a failure.
const mostGroups = 1000

// Group names control groups to read: either one path below the hierarchy, like /system.slice/web.service, or a pattern like
// /system.slice/*.service, in which a star stands for any part of one name.
type Group struct {
	Name  string // of a single group; empty: the last part of its path. A pattern's groups are named by what its stars stand for
	Path  string
	Share float64 // importance of each group, for policies that divide a resource; 0: not given, which counts as 1
	Alone float64 // units of work per second that each group reports when it has the machine to itself; 0: not given
}

// pattern returns whether the path is a pattern for several groups.
func (g Group) pattern() bool { return strings.ContainsAny(g.Path, `*?[\`) }

// fixed returns the folder that contains all groups of a pattern.
func (g Group) fixed() string {
	folder := path.Dir(g.Path)
	for strings.ContainsAny(folder, `*?[\`) {
		folder = path.Dir(folder)
	}
	return strings.TrimSuffix(folder, "/") + "/"
}

// Check returns what is wrong with a group's path, or "".
func (g Group) Check() string {
	switch _, err := path.Match(g.Path, ""); {
	case !path.IsAbs(g.Path) || path.Clean(g.Path) != g.Path:
		return fmt.Sprintf("%q is not a control group: give a path below the hierarchy as in /system.slice/web.service, or a pattern as in "+
			"/system.slice/*.service", g.Path)
	case g.Path == "/":
		return "\"/\" is the whole machine: name groups below it"
	case err != nil:
		return fmt.Sprintf("%q is no pattern: %v", g.Path, err)
	case g.Name != "" && g.pattern():
		return fmt.Sprintf("the groups of a pattern are named after their folders: remove the name %q", g.Name)
	}
	return ""
}

// found is a group that exists.
type found struct {
	name, path string
	entry      Group // of the configuration
}

// find lists the existing groups, each once, sorted by name, and reports missing ones as failures. A pattern without a match is not a
// failure, because its services may start later.
func (g *Groups) find(h *hierarchy) (list []found, failures []Failure) {
	seen := map[string]string{} // paths by name
	add := func(name, at string, entry Group) {
		other, taken := seen[name]
		within := slices.IndexFunc(list, func(f found) bool { return inside(at, f.path) || inside(f.path, at) })
		switch {
		case slices.ContainsFunc(list, func(f found) bool { return f.path == at }): // found by another entry
		case taken:
			failures = append(failures, Failure{"group " + at,
				fmt.Errorf("it is named %s like %s, and left out: give one of the two a name of its own", name, other)})
		case within >= 0:
			failures = append(failures, Failure{"group " + at,
				fmt.Errorf("it is left out: one of it and %s lies inside the other, and time would count twice", list[within].path)})
		case len(list) == mostGroups:
			failures = append(failures, Failure{"groups", fmt.Errorf("there are more than %d: the rest is left out", mostGroups)})
		default:
			seen[name] = at
			list = append(list, found{name, at, entry})
		}
	}
	for _, wanted := range g.wanted {
		if wanted.pattern() {
			for _, at := range h.match(wanted.Path) {
				add(strings.TrimPrefix(at, wanted.fixed()), at, wanted)
			}
			continue
		}
		name := cmp.Or(wanted.Name, path.Base(wanted.Path))
		if !h.exists(wanted.Path) {
			failures = append(failures, Failure{"group " + name, fmt.Errorf("there is no control group %s", wanted.Path)})
			continue
		}
		add(name, wanted.Path, wanted)
	}
	slices.SortFunc(list, func(a, b found) int { return strings.Compare(a.name, b.name) })
	return list, failures
}

// inside returns whether a group lies below another one.
func inside(at, around string) bool {
	return strings.HasPrefix(at, strings.TrimSuffix(around, "/")+"/")
}

// exists returns whether a group exists. Its processor time may be counted in no hierarchy: then its tasks tell it.
func (h *hierarchy) exists(group string) bool {
	return isFolder(h.root, h.usage.Folder(group)) || isFolder(h.root, h.cpu.Folder(group))
}

// match lists the groups of a pattern, sorted. A folder that cannot be read counts as empty.
func (h *hierarchy) match(pattern string) (groups []string) {
	trees := []cgroup.Tree{h.usage, h.cpu}
	if h.unified {
		trees = trees[:1]
	}
	for _, tree := range trees {
		folders, _ := fs.Glob(h.root, tree.Folder(pattern)) // no error: the pattern was checked before
		for _, folder := range folders {
			if isFolder(h.root, folder) {
				groups = append(groups, tree.Group(folder))
			}
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}
