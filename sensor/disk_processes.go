package sensor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
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
	text, err := fs.ReadFile(d.opts.Root, path.Join(folder, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var sum diskUse
	for _, pid := range strings.Fields(string(text)) {
		text, err := fs.ReadFile(d.opts.Root, path.Join("proc", pid, "io"))
		if errors.Is(err, fs.ErrNotExist) { // the process has just ended
			continue
		}
		if err != nil {
			return nil, err
		}
		bytes, err := parseProcessIO(string(text))
		if err != nil {
			return nil, fmt.Errorf("process %s: %w", pid, err)
		}
		sum.bytes += bytes
	}
	sum.operations = sum.bytes / pageBytes
	return map[string]diskUse{"processes": sum}, nil
}

// parseProcessIO reads /proc/PID/io and returns the bytes read from disks plus those written to disks.
func parseProcessIO(text string) (sum uint64, err error) {
	found := 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name != "read_bytes" && name != "write_bytes" {
			continue
		}
		n, err := parseCount(value)
		if err != nil {
			return 0, fmt.Errorf("io: %w", err)
		}
		sum += n
		found++
	}
	if found != 2 {
		return 0, errors.New("io has no read_bytes and write_bytes")
	}
	return sum, nil
}
