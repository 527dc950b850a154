package sensor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"time"

	"github.com/quellhq/quell/internal/cgroup"
)

// OwnCgroup, as the value of Options.Cgroup, means the control group of the reading process itself.
const OwnCgroup = "self"

// CounterThrottled names the counter of the fraction of enforcement periods in which a processor quota stopped the group. In the
// observation of an instance, only the group's own quota counts, because neighbours may use up the quota of a group above.
const CounterThrottled = "cpu_throttled"

// cgroupAccount reads one control group's processor time and quota, from version 1 or 2 of control groups.
type cgroupAccount struct {
	root fs.FS
	name string // a path below the hierarchy, or OwnCgroup
}

// groupReading is a group's accounts at one moment.
type groupReading struct {
	at   time.Time
	used time.Duration // processor time, since the group was made

	// unaccounted means that the group exists in the hierarchy of cpu, but not in that of cpuacct, which counts processor time.
	unaccounted bool
	quotaReading
}

// quotaReading is a processor quota, and how often it has stopped the group that it is set on.
type quotaReading struct {
	quota              float64 // in cores; 0: none
	periods, throttled uint64
	stopped            time.Duration // summed over processors
	limited            string        // folder of the group that it is set on
}

// until returns the cores used between two readings, and the share of periods in which the quota stopped the group.
func (before *groupReading) until(after *groupReading) (cores float64, throttled *float64, err error) {
	seconds := after.at.Sub(before.at).Seconds()
	if seconds <= 0 || after.used < before.used {
		return 0, nil, errors.New("the control group's processor time, or the clock, went back: reading skipped")
	}
	cores = (after.used - before.used).Seconds() / seconds
	if after.quota > 0 && after.periods > before.periods && after.throttled >= before.throttled {
		throttled = new(float64(after.throttled-before.throttled) / float64(after.periods-before.periods))
	}
	return cores, throttled, nil
}

// failed says which group an error is about.
func (c *cgroupAccount) failed(err error) error {
	return fmt.Errorf("control group %s (agent.cgroup): %w", c.name, err)
}

// layout finds the group in the hierarchies that are mounted.
func (c *cgroupAccount) layout() (*groupLayout, error) {
	h, err := findHierarchy(c.root)
	if err != nil {
		return nil, fmt.Errorf("agent.cgroup: %w; leave the key out to measure the whole machine", err)
	}
	if c.name != OwnCgroup {
		return h.group(c.name), nil
	}
	own, err := cgroup.Own(c.root, "proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("agent.cgroup: %w", err)
	}
	usage, ok := own[h.usage.Controller]
	cpu, okCPU := own[h.cpu.Controller]
	if !ok || !okCPU {
		return nil, errors.New("the own control group is of no hierarchy for processors (agent.cgroup)")
	}
	l := h.group(cpu)
	l.usage = h.usage.Folder(usage)
	if h.sets != nil {
		l.sets = h.sets.Folder(own[h.sets.Controller])
	}
	return l, nil
}

// hierarchy is the place at which the control groups of processors are mounted.
type hierarchy struct {
	root       fs.FS
	unified    bool
	usage, cpu cgroup.Tree  // the same tree if unified
	sets       *cgroup.Tree // of sets of processors; nil: not mounted
}

// findHierarchy looks at what is mounted.
func findHierarchy(root fs.FS) (*hierarchy, error) {
	trees, err := cgroup.Find(root)
	if err != nil {
		return nil, err
	}
	cpu, ok := trees.Of("cpu")
	usage, accounted := trees.Of("cpuacct")
	if !ok || !accounted {
		return nil, errors.New("the kernel offers no control groups for processors")
	}
	h := &hierarchy{root: root, unified: trees.Unified, usage: usage, cpu: cpu}
	if sets, ok := trees.Of("cpuset"); ok {
		h.sets = &sets
	}
	return h, nil
}

// group returns the layout of the group with that path below the hierarchy.
func (h *hierarchy) group(name string) *groupLayout {
	l := &groupLayout{root: h.root, unified: h.unified, usage: h.usage.Folder(name), cpu: h.cpu.Folder(name), top: h.cpu.Point}
	if h.sets != nil {
		l.sets, l.setsTop = h.sets.Folder(name), h.sets.Point
	}
	return l
}

// groupLayout is the place of a group's files.
type groupLayout struct {
	root       fs.FS
	unified    bool
	usage, cpu string // folders of the group, below root
	top        string // the mount point that cpu lies below

	sets, setsTop string // the same for its set of processors; "" if these are not mounted
}

// read reads processor time and the quota's counters.
func (l *groupLayout) read(now time.Time) (reading *groupReading, err error) {
	reading = &groupReading{at: now}
	reading.used, err = l.used()
	reading.unaccounted = l.unaccounted()
	if err != nil && !reading.unaccounted {
		return nil, fmt.Errorf("reading its processor time: %w", err)
	}
	if reading.quotaReading, err = l.leastQuota(l.top); err != nil {
		return nil, err
	}
	return reading, nil
}

// unaccounted returns whether the group is in the hierarchy of cpu, and not in that of cpuacct.
func (l *groupLayout) unaccounted() bool {
	return !l.unified && !isFolder(l.root, l.usage) && isFolder(l.root, l.cpu)
}

func (l *groupLayout) used() (time.Duration, error) {
	if l.unified {
		stat, err := l.stat(l.cpu)
		if err != nil {
			return 0, err
		}
		us, ok := stat["usage_usec"]
		if !ok { // without this error 0 would look like an idle group
			return 0, errors.New("cpu.stat has no usage_usec")
		}
		return time.Duration(us) * time.Microsecond, nil
	}
	ns, err := l.number(path.Join(l.usage, "cpuacct.usage"))
	return time.Duration(ns), err
}

// leastQuota finds the least quota of the group and of those above it, up to the folder top.
func (l *groupLayout) leastQuota(top string) (least quotaReading, err error) {
	for folder := l.cpu; len(folder) >= len(top) && folder != "."; folder = path.Dir(folder) {
		quota, err := l.quota(folder)
		if errors.Is(err, fs.ErrNotExist) { // the hierarchy's root has no quota
			continue
		}
		if err != nil {
			return least, fmt.Errorf("reading its processor quota: %w", err)
		}
		if quota == 0 || least.quota > 0 && quota >= least.quota {
			continue
		}
		stat, err := l.stat(folder)
		if err != nil {
			return least, fmt.Errorf("reading its processor quota: %w", err)
		}
		least = quotaReading{quota, stat["nr_periods"], stat["nr_throttled"], stopped(stat), folder}
	}
	return least, nil
}

// stopped is for how long a quota has stopped a group, from its cpu.stat.
func stopped(stat map[string]uint64) time.Duration {
	return time.Duration(stat["throttled_usec"])*time.Microsecond + time.Duration(stat["throttled_time"]) // version 2, version 1
}

// quota returns a group's own quota in cores, 0 if it has none.
func (l *groupLayout) quota(folder string) (float64, error) {
	if l.unified {
		text, err := fs.ReadFile(l.root, path.Join(folder, "cpu.max"))
		if err != nil {
			return 0, err
		}
		return parseCPUMax(text)
	}
	quota, err := fs.ReadFile(l.root, path.Join(folder, "cpu.cfs_quota_us"))
	if err != nil {
		return 0, err
	}
	if bytes.HasPrefix(quota, []byte("-")) {
		return 0, nil
	}
	span, err := fs.ReadFile(l.root, path.Join(folder, "cpu.cfs_period_us"))
	if err != nil {
		return 0, err
	}
	return parseCPUMax(append(append(bytes.TrimSpace(quota), ' '), span...))
}

func (l *groupLayout) number(file string) (int64, error) {
	text, err := fs.ReadFile(l.root, file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
}

func (l *groupLayout) stat(folder string) (map[string]uint64, error) {
	text, err := fs.ReadFile(l.root, path.Join(folder, "cpu.stat"))
	if err != nil {
		return nil, err
	}
	return parseCPUStat(text)
}

// parseCPUMax reads "50000 100000", which is quota and period in the same unit, and returns cores. For "max 100000" it returns 0: no quota.
func parseCPUMax(text []byte) (float64, error) {
	fields := bytes.Fields(text)
	if len(fields) != 2 {
		return 0, fmt.Errorf("want a quota and a period, got %q", text)
	}
	if string(fields[0]) == "max" {
		return 0, nil
	}
	quota, errQuota := strconv.ParseUint(string(fields[0]), 10, 63)
	span, errSpan := strconv.ParseUint(string(fields[1]), 10, 63)
	if err := errors.Join(errQuota, errSpan); err != nil {
		return 0, err
	}
	if quota == 0 || span == 0 {
		return 0, fmt.Errorf("a quota of %d in %d is none", quota, span)
	}
	return float64(quota) / float64(span), nil
}

// parseCPUStat reads lines of a name and a number.
func parseCPUStat(text []byte) (map[string]uint64, error) {
	stat := map[string]uint64{}
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) != 2 {
			return nil, fmt.Errorf("cpu.stat: want a name and a number, got %q", line)
		}
		value, err := strconv.ParseUint(string(fields[1]), 10, 63)
		if err != nil {
			return nil, fmt.Errorf("cpu.stat: %w", err)
		}
		stat[string(fields[0])] = value
	}
	return stat, nil
}
