package sensor

import (
	"strings"

	"github.com/quellhq/quell/internal/cgroup"
)

// pageBytes is the assumed size of a disk operation if only bytes are counted.
const pageBytes = 4096

// ownProcesses returns the folder that lists the processes of this process's cpu group, if its group for disks (blkio) is one above that.
// The counters of the outer group cannot be used, because they include other groups. If the blkio group is the service's own, ownProcesses
// returns "".
func ownProcesses(trees *cgroup.Trees, own map[string]string) string {
	cpu, ok := trees.Of("cpu")
	if !ok || trees.Unified {
		return ""
	}
	if inner, outer := own["cpu"], own["blkio"]; outer != "/" && strings.HasPrefix(inner, outer+"/") {
		return cpu.Folder(inner)
	}
	return ""
}

// readProcesses sums what the processes in a group have read from disks and written to them. When a process ends, its part of the sum is
// lost; the sum then goes back, and that reading is skipped.
func (d *Disk) readProcesses(folder string) (map[string]diskUse, error) {
	bytes, err := cgroup.DiskBytes(d.opts.Root, folder)
	if err != nil {
		return nil, err
	}
	return map[string]diskUse{"processes": {operations: bytes / pageBytes, bytes: bytes}}, nil
}
