package kernel

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/cgroup"
	"golang.org/x/sys/unix"
)

// A host's processors and disk are limited by the cgroup PREFIX-lab/hK. Its children are vm, the service's virtual machine, and the
// neighbour's groups: nb for its processes in general, and, with quotas of their own, nb-cpu and nb-memory for its interferers (programs
// that use a resource) and nb-program for real programs.
//
// Balancer, load generator and the interferers' receivers are in PREFIX-lab/front. All of these groups have priority over the rest of the
// machine, so that for example a compiler on the same machine does not increase response times. Every request passes front, so it has
// priority over each host. The controller, and the agents of hosts without limits, are in PREFIX-lab/agents: all agents measure at the same
// time, and together they have the weight of one host, so that requests need not wait for them.
//
// Files are written directly, because the libraries for cgroups can only move whole processes, and need D-Bus and eBPF. With version 1 of
// cgroups a thread enters the group before it forks; with version 2 the child is forked into the group.
type groups struct {
	version int
	// The folders of the controllers; "" if there is none. With version 2 of cgroups all three are the same folder.
	cpu, usage, io string
}

var (
	hostGroups = []string{"vm", "nb", "nb-cpu", "nb-memory", programGroup}
	neighbours = hostGroups[1:]
	// commonGroups are those that all hosts have in common.
	commonGroups = []string{front, agents}
)

// base is the cgroup above all groups of a lab.
func base(prefix string) string { return prefix + "-lab" }

// machine is the root of the file system, for this machine's proc and sys.
var machine = os.DirFS("/")

// findGroups finds the cgroup controllers of a machine whose proc and sys are below root.
func findGroups(root fs.FS) (groups, error) {
	trees, err := cgroup.Find(root)
	if err != nil {
		return groups{}, err
	}
	point := func(controller string) string {
		if tree, ok := trees.Of(controller); ok {
			return "/" + tree.Point
		}
		return ""
	}
	if trees.Unified {
		return unified(point("cpu")), nil
	}
	return groups{version: 1, cpu: point("cpu"), usage: point("cpuacct"), io: point("blkio")}, nil
}

func unified(root string) groups { return groups{version: 2, cpu: root, usage: root, io: root} }

// roots returns the different trees of cgroups in use.
func (g groups) roots() []string {
	all := []string{g.cpu, g.usage, g.io}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(s string) bool { return s == "" })
}

// check returns what this machine lacks to limit the hosts.
func (g groups) check(hosts []Host) error {
	for _, h := range hosts {
		if h.Cores > 0 && g.cpu == "" {
			return userErrorf("host %s is to have %g cores, but the kernel offers no cpu controller: mount cgroup version 2, or version 1 with "+
				"cpu (CONFIG_CFS_BANDWIDTH), or leave the host's cores out", h.ID, h.Cores)
		}
		if h.DiskIOPS > 0 && g.io == "" {
			return userErrorf("host %s is to have %g disk operations a second, but the kernel offers no controller for disks: mount cgroup "+
				"version 2, or version 1 with blkio (CONFIG_BLK_DEV_THROTTLING), or leave the limit out", h.ID, h.DiskIOPS)
		}
	}
	return nil
}

// period is the time over which a quota is enforced. With a much longer period a service would stop for that long when its quota is used
// up; the kernel refuses quotas shorter than a millisecond.
const period = 20 * time.Millisecond

// longest is the kernel's longest period.
const longest = time.Second

// makeTop makes the groups that all hosts have in common.
func (g groups) makeTop(prefix string) error {
	for _, root := range g.roots() {
		for _, child := range commonGroups {
			if g.shares(root) {
				child = ""
			}
			if err := os.MkdirAll(filepath.Join(root, base(prefix), child), 0o755); err != nil {
				return fmt.Errorf("making a cgroup: %w", err)
			}
		}
		if err := g.delegate(root, base(prefix)); err != nil {
			return err
		}
	}
	if g.cpu == "" {
		return nil
	}
	const largest = 100 // the kernel's largest weight with version 2
	return errors.Join(g.weigh(base(prefix), largest), g.weigh(filepath.Join(base(prefix), front), frontWeight))
}

// frontWeight is how many times a host's weight front has.
const frontWeight = 10

// outweigh is how many times the service's weight an interferer has. So an interferer gets nearly the share that it was told to use, as
// datagrams on the link do, and as a much larger virtual machine would. With equal weights a busy service would push its neighbours aside.
const outweigh = 10

// weigh gives a group this many times the usual weight when processors are shared.
func (g groups) weigh(group string, times int) error {
	if g.version == 2 {
		return g.write(g.cpu, group, "cpu.weight", strconv.Itoa(100*times))
	}
	return g.write(g.cpu, group, "cpu.shares", strconv.Itoa(1024*times))
}

// make makes a host's groups with its limits. disk is the major:minor number of the disk to limit.
func (g groups) make(prefix string, h Host, disk string) error {
	top := filepath.Join(base(prefix), h.ID)
	for _, root := range g.roots() {
		for _, child := range hostGroups {
			if g.shares(root) { // one group for service and neighbour; see limitDisk
				child = ""
			}
			if err := os.MkdirAll(filepath.Join(root, top, child), 0o755); err != nil {
				return fmt.Errorf("making a cgroup: %w", err)
			}
		}
		if err := g.delegate(root, base(prefix), top); err != nil {
			return err
		}
	}
	if h.Cores > 0 {
		if err := g.limitCPU(top, h.Cores); err != nil {
			return err
		}
		for _, group := range []string{quotaGroups[quell.CPU], quotaGroups[quell.Memory], programGroup} {
			if err := g.weigh(filepath.Join(top, group), outweigh); err != nil {
				return err
			}
		}
	}
	if h.DiskIOPS > 0 {
		return g.limitDisk(top, disk, h.DiskIOPS)
	}
	return nil
}

// shares returns whether service and neighbour share a host's group in the tree at root, which then has no children.
func (g groups) shares(root string) bool {
	return g.version == 1 && root == g.io && root != g.cpu && root != g.usage
}

// delegate enables the controllers for child groups (version 2).
func (g groups) delegate(root string, inner ...string) error {
	if g.version != 2 {
		return nil
	}
	has, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("reading the cgroup controllers: %w", err)
	}
	for _, group := range append([]string{""}, inner...) {
		for _, controller := range []string{"cpu", "io"} {
			if !slices.Contains(strings.Fields(string(has)), controller) {
				continue
			}
			if err := g.write(root, group, "cgroup.subtree_control", "+"+controller); err != nil {
				return &needs{what: "cgroup controller " + controller,
					hint: "it must be enabled for the children of the root group: run the lab on the machine itself, not in a container", err: err}
			}
		}
	}
	return nil
}

func (g groups) write(root, group, file, value string) error {
	if err := os.WriteFile(filepath.Join(root, group, file), []byte(value), 0o644); err != nil {
		return fmt.Errorf("writing %q: %w", value, err)
	}
	return nil
}

// limitCPU limits a group and all below it to a number of processors.
func (g groups) limitCPU(group string, cores float64) error {
	span := period
	for cores*float64(span) < float64(time.Millisecond) && span < longest {
		span = min(2*span, longest)
	}
	quota := max(1000, int64(cores*float64(span.Microseconds())+0.5))
	if g.version == 2 {
		return g.write(g.cpu, group, "cpu.max", fmt.Sprintf("%d %d", quota, span.Microseconds()))
	}
	// The period may not be changed so that the quota in force gets below the least: lift the quota first.
	return errors.Join(
		g.write(g.cpu, group, "cpu.cfs_quota_us", "-1"),
		g.write(g.cpu, group, "cpu.cfs_period_us", strconv.FormatInt(span.Microseconds(), 10)),
		g.write(g.cpu, group, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)))
}

// limitDisk limits reads, and likewise writes, to a number per second. Version 1 does not add up what child groups do, so in its tree
// service and neighbour are in one group and share the group's limit.
func (g groups) limitDisk(group, disk string, iops float64) error {
	rate := strconv.FormatInt(max(1, int64(iops+0.5)), 10)
	if g.version == 2 {
		return g.write(g.io, group, "io.max", disk+" riops="+rate+" wiops="+rate)
	}
	return errors.Join(
		g.write(g.io, group, "blkio.throttle.read_iops_device", disk+" "+rate),
		g.write(g.io, group, "blkio.throttle.write_iops_device", disk+" "+rate))
}

// enter makes the next process that the calling thread forks start in a group. The caller must lock the thread before it, and call leave
// after the fork.
func (g groups) enter(group string, cmd *exec.Cmd) (leave func() error, err error) {
	if g.version == 2 {
		dir, err := os.Open(filepath.Join(g.cpu, group))
		if err != nil {
			return nil, fmt.Errorf("entering a cgroup: %w", err)
		}
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
		return dir.Close, nil
	}
	own, err := cgroup.Own(machine, "proc/thread-self/cgroup")
	if err != nil {
		return nil, err
	}
	thread := strconv.Itoa(unix.Gettid())
	var undo []func() error
	leave = func() error {
		var errs []error
		for _, f := range undo {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	for _, root := range g.roots() {
		into := group
		if g.shares(root) {
			into = filepath.Dir(group)
		}
		if err := g.write(root, into, "tasks", thread); err != nil {
			return nil, errors.Join(fmt.Errorf("entering a cgroup: %w", err), leave())
		}
		undo = append(undo, func() error { return g.write(root, own[g.controller(root)], "tasks", thread) })
	}
	return leave, nil
}

func (g groups) controller(root string) string {
	switch root {
	case g.cpu:
		return "cpu"
	case g.usage:
		return "cpuacct"
	}
	return "blkio"
}

// used returns the processor time, in seconds, that a group and all below it have used.
func (g groups) used(group string) (float64, error) {
	if g.usage == "" {
		return 0, userErrorf("the kernel accounts no processor time by group: mount cgroup version 2, or version 1 with cpuacct")
	}
	if g.version == 1 {
		text, err := os.ReadFile(filepath.Join(g.usage, group, "cpuacct.usage"))
		if err != nil {
			return 0, err
		}
		ns, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
		return float64(ns) / 1e9, err
	}
	text, err := os.ReadFile(filepath.Join(g.usage, group, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte("usage_usec ")); ok {
			us, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
			return float64(us) / 1e6, err
		}
	}
	return 0, fmt.Errorf("%s has no usage_usec", filepath.Join(g.usage, group, "cpu.stat"))
}

// diskOperation is the size of all disk operations in a lab.
const diskOperation = 4096

// operations returns how many disk operations the processes that are now in a group have made.
func (g groups) operations(group string) (float64, error) {
	bytes, err := cgroup.DiskBytes(machine, strings.TrimPrefix(filepath.Join(g.cpu, group), "/"))
	if errors.Is(err, fs.ErrNotExist) { // the group has no processes yet
		return 0, nil
	}
	return float64(bytes) / diskOperation, err
}

// foldersOf returns the group's folder in each tree that contains the group.
func (g groups) foldersOf(group string) (folders []string) {
	for _, root := range g.roots() {
		if _, err := os.Stat(filepath.Join(root, group)); err == nil {
			folders = append(folders, filepath.Join(root, group))
		}
	}
	return folders
}

// existing returns the existing folders of a prefix's groups, the innermost first.
func (g groups) existing(prefix string) ([]string, error) {
	var all []string
	for _, root := range g.roots() {
		hosts, err := os.ReadDir(filepath.Join(root, base(prefix)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, child := range commonGroups {
			if _, err := os.Stat(filepath.Join(root, base(prefix), child)); err == nil {
				all = append(all, filepath.Join(root, base(prefix), child))
			}
		}
		for _, host := range hosts {
			if _, err := hostNumber(host.Name()); err != nil || !host.IsDir() {
				continue
			}
			top := filepath.Join(root, base(prefix), host.Name())
			for _, child := range hostGroups {
				if _, err := os.Stat(filepath.Join(top, child)); err == nil {
					all = append(all, filepath.Join(top, child))
				}
			}
			all = append(all, top)
		}
		all = append(all, filepath.Join(root, base(prefix)))
	}
	return all, nil
}

// members returns the processes in a group's folder.
func members(folder string) ([]int, error) {
	file, err := os.Open(filepath.Join(folder, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var pids []int
	for lines := bufio.NewScanner(file); lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
