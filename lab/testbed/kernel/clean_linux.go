package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Clean removes what a lab with this prefix left behind, and returns what it removed: processes in the lab's namespaces and cgroups, the
// namespaces (and with them their links), the cgroups, and RunDir. It removes nothing that New would not have made, and nothing of other
// prefixes. It also removes a lab that is in use.
func Clean(prefix string) (removed []string, err error) {
	if err := checkPrefix(prefix); err != nil {
		return nil, err
	}
	if err := needRoot(); err != nil {
		return nil, err
	}
	spaces, err := namespacesOf(prefix)
	if err != nil {
		return nil, err
	}
	g, err := findGroups(machine)
	if err != nil {
		return nil, err
	}
	folders, err := g.existing(prefix)
	if err != nil {
		return nil, fmt.Errorf("looking for cgroups: %w", err)
	}
	killed, err := killIn(spaces, folders)
	removed = append(removed, killed...)
	errs := []error{err}
	for _, name := range spaces {
		if err := removeNamespace(name); err != nil {
			errs = append(errs, fmt.Errorf("removing namespace %s: %w", name, err))
			continue
		}
		removed = append(removed, "namespace "+name)
	}
	for _, folder := range folders {
		if err := removeGroup(folder); err != nil {
			errs = append(errs, fmt.Errorf("removing a cgroup: %w", err))
			continue
		}
		removed = append(removed, "cgroup "+folder)
	}
	folder := RunDir(prefix)
	if _, err := os.Lstat(folder); err == nil {
		removed = append(removed, "folder "+folder)
	}
	return removed, errors.Join(append(errs, os.RemoveAll(folder))...)
}

// namespacesOf returns the names of a prefix's namespaces that exist.
func namespacesOf(prefix string) ([]string, error) {
	ours := regexp.MustCompile(`^` + prefix + `-(net|client|lb|(h[1-9][0-9]{0,2})(-(vm|nb|sink))?)$`)
	entries, err := os.ReadDir(namespaces)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		m := ours.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		if _, err := hostNumber(m[2]); m[2] != "" && err != nil {
			continue
		}
		names = append(names, e.Name())
	}
	return names, nil
}

// removeNamespace removes a namespace. It also removes the file that remains if a run was killed before it bound the namespace to it.
func removeNamespace(name string) error {
	err := netns.DeleteNamed(name)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EPERM) {
		err = os.Remove(filepath.Join(namespaces, name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeGroup waits a moment if needed, because the kernel removes ended processes from their groups a little later.
func removeGroup(folder string) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := os.Remove(folder)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: it holds a process or a group that no lab made", err)
		}
	}
}

// patience limits each waiting for a process or for the kernel. A killed process may be inside the kernel for seconds, longer on a busy
// machine.
const patience = 30 * time.Second

// killIn kills every process in the given namespaces and cgroups except this one, and waits until all have ended. If the processes fork
// meanwhile, the new ones are found in the same places. Quotas are lifted first, because a process needs processor time to end.
func killIn(spaces, folders []string) (killed []string, err error) {
	inside := map[identity]bool{}
	for _, name := range spaces {
		if id, err := identityOf(filepath.Join(namespaces, name)); err == nil {
			inside[id] = true
		}
	}
	for _, folder := range folders {
		liftQuota(folder)
	}
	seen := map[int]bool{}
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		pids, err := processesIn(inside, folders)
		if err != nil || len(pids) == 0 {
			return killed, err
		}
		if time.Now().After(deadline) {
			return killed, fmt.Errorf("these processes do not end: %v", pids)
		}
		for _, pid := range pids {
			name, ok := kill(pid, inside, folders)
			if ok && !seen[pid] {
				seen[pid] = true
				killed = append(killed, fmt.Sprintf("process %d (%s)", pid, name))
			}
		}
		for _, folder := range folders { // processes forked meanwhile
			killGroup(folder)
		}
	}
}

// liftQuota removes a group's processor limit. If that fails, processes do not end, which is reported later.
func liftQuota(folder string) {
	writeExisting(filepath.Join(folder, "cpu.cfs_quota_us"), "-1") // version 1
	writeExisting(filepath.Join(folder, "cpu.max"), "max")         // version 2
}

// killGroup kills all processes of a group at once, including children that are being forked. The kernel can do that with version 2 since
// Linux 5.14; otherwise nothing happens.
func killGroup(folder string) {
	if pids, err := members(folder); err == nil && !slices.Contains(pids, os.Getpid()) {
		writeExisting(filepath.Join(folder, "cgroup.kill"), "1")
	}
}

func writeExisting(path, value string) {
	if file, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
		_, _ = file.WriteString(value)
		file.Close()
	}
}

// kill kills a process if it is still in one of the namespaces or cgroups, because its pid may belong to another process by now.
func kill(pid int, inside map[identity]bool, folders []string) (name string, ok bool) {
	p, err := os.FindProcess(pid) // refers to this very process from here on
	if err != nil {
		return "", false
	}
	defer p.Release()
	comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if !belongs(pid, inside, folders) || p.Kill() != nil {
		return "", false
	}
	return string(bytes.TrimSpace(comm)), true
}

// belongs returns whether a process is in any of the namespaces or cgroups. It looks only at this one process: if it
// searched all processes each time, cleaning would not end while processes fork.
func belongs(pid int, inside map[identity]bool, folders []string) bool {
	if id, err := identityOf(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && inside[id] {
		return true
	}
	return slices.ContainsFunc(folders, func(folder string) bool {
		pids, err := members(folder)
		return err == nil && slices.Contains(pids, pid)
	})
}

// processesIn returns the processes in any of the namespaces or cgroups, without this process and without ended ones.
func processesIn(inside map[identity]bool, folders []string) ([]int, error) {
	found := map[int]bool{}
	for _, folder := range folders {
		pids, err := members(folder)
		if err != nil {
			return nil, fmt.Errorf("looking for processes: %w", err)
		}
		for _, pid := range pids {
			found[pid] = true
		}
	}
	delete(found, 0) // a process in another pid namespace, which does not belong to the lab
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("looking for processes: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if id, err := identityOf("/proc/" + e.Name() + "/ns/net"); err == nil && inside[id] {
			found[pid] = true
		}
	}
	delete(found, os.Getpid())
	var pids []int
	for pid := range found {
		if !ended(pid) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// ended returns whether a process has ended and only waits to be reaped.
func ended(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')'):], []byte(") ")) // the name may contain anything
	return len(after) > 0 && (after[0] == 'Z' || after[0] == 'X')
}

// identity identifies a namespace.
type identity struct{ device, inode uint64 }

func identityOf(path string) (identity, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return identity{}, err
	}
	return identity{uint64(stat.Dev), stat.Ino}, nil
}
