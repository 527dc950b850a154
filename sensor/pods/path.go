// Package pods reads the pods of Kubernetes on one machine from their control groups: use, throttling, waiting and pressure of each, and
// which other pod uses most.
package pods

import (
	"io/fs"
	"path"
	"strings"

	"github.com/quellhq/quell/internal/cgroup"
)

// UIDOf returns the uid of the pod whose control group has this path below the hierarchy. ok is false if it is not that of a pod. A kubelet
// writes one of these, below a root of its own if it has one, as in kind, or below the container in which it runs:
//
//	cgroupfs:  /kubepods[/burstable|/besteffort]/podUID
//	systemd:   /kubepods.slice[/kubepods-burstable.slice]/kubepods[-burstable]-podUID.slice, in which the UID has _ for -
//
// The group of a guaranteed pod is directly below kubepods. The UID of a static pod is a hash without hyphens.
func UIDOf(group string) (uid string, ok bool) {
	folder, name := path.Split(path.Clean(group))
	if slice, systemd := strings.CutSuffix(name, ".slice"); systemd {
		i := strings.LastIndex(slice, "-pod")
		if i < 0 || !strings.HasSuffix(quality(slice[:i]), "kubepods") {
			return "", false
		}
		uid = strings.ReplaceAll(slice[i+len("-pod"):], "_", "-")
		return uid, isUID(uid)
	}
	uid, ok = strings.CutPrefix(name, "pod")
	return uid, ok && path.Base(quality(path.Clean(folder))) == "kubepods" && isUID(uid)
}

// quality is a name or path without the class of the pod's quality of service.
func quality(name string) string {
	for _, class := range []string{"burstable", "besteffort"} {
		for _, hyphen := range []string{"-", "/"} {
			name = strings.TrimSuffix(name, hyphen+class)
		}
	}
	return name
}

// isUID returns whether a text is a UUID, or a hash of that size.
func isUID(text string) bool {
	const digits, hyphens = 32, 4
	n := 0
	for i, c := range []byte(text) {
		switch {
		case c == '-' && (i == 8 || i == 13 || i == 18 || i == 23):
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f':
			n++
		default:
			return false
		}
	}
	return n == digits && (len(text) == digits || len(text) == digits+hyphens)
}

// Bounds of a search: a kubelet in a container in a machine has its pods six folders deep, and a node has at most some hundred pods.
const (
	deepest     = 8
	mostFolders = 20_000
)

// find returns the paths of the pods' control groups, by uid.
func find(root fs.FS, tree cgroup.Tree) map[string]string {
	found, left := map[string]string{}, mostFolders
	var walk func(folder string, depth int)
	walk = func(folder string, depth int) {
		entries, err := fs.ReadDir(root, folder) // it may end meanwhile
		if err != nil {
			return
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			if left--; left < 0 {
				continue
			}
			below := path.Join(folder, e.Name())
			if uid, ok := UIDOf(tree.Group(below)); ok {
				found[uid] = tree.Group(below)
			} else if depth < deepest {
				walk(below, depth+1)
			}
		}
	}
	walk(tree.Point, 1)
	return found
}
