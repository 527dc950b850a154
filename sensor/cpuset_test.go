package sensor

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quellhq/quell"
)

// room is a machine of that many processors with one group below /a, in version 1 or 2 of control groups. used is the group's processor
// time in seconds. quota and sets are files of the group and of the one above it.
func room(unified bool, online int, used float64, files map[string]string) fstest.MapFS {
	stat := "cpu 0 0 0 0 0 0 0 0 0 0\n"
	if used > 0 {
		stat = fmt.Sprintf("cpu %d 0 0 %d 0 0 0 0 0 0\n", int(100*used), online*1000-int(100*used))
	}
	for i := range online {
		stat += fmt.Sprintf("cpu%d 1 0 1 1 0 0 0 0 0 0\n", i)
	}
	tree := fstest.MapFS{
		"proc/stat": {Data: []byte(stat)},
		"proc/self/mountinfo": {Data: []byte("1 1 0:1 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n" +
			"2 1 0:2 / /cg/sets rw - cgroup cgroup rw,cpuset\n")},
		"proc/self/cgroup":      {Data: []byte("2:cpuset:/a/web\n1:cpu,cpuacct:/a/web\n")},
		"cg/cpu/a/web/tasks":    {},
		"cg/cpu/a/web/cpu.stat": {Data: []byte("nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")},
		"cg/sets/a/web/tasks":   {},
		"cg/sets/a/cpuset.mems": {Data: []byte("0\n")},
		"cg/cpu/a/cpu.stat":     {Data: []byte("nr_periods 0\n")},
		"cg/cpu/a/web/cpuacct.usage": {
			Data: fmt.Appendf(nil, "%d\n", int64(used*1e9)),
		},
	}
	if unified {
		tree["proc/self/mountinfo"].Data = []byte("1 1 0:1 / /cg rw - cgroup2 cgroup2 rw\n")
		tree["proc/self/cgroup"].Data = []byte("0::/a/web\n")
		tree["cg/cgroup.controllers"] = &fstest.MapFile{Data: []byte("cpuset cpu\n")}
		tree["cg/a/web/cpu.stat"] = &fstest.MapFile{Data: fmt.Appendf(nil, "usage_usec %d\n", int64(used*1e6))}
		tree["cg/a/cpu.stat"] = &fstest.MapFile{Data: []byte("usage_usec 1\n")}
	}
	for name, text := range files {
		tree["cg/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return tree
}

// A group's capacity is the least of its quota, its set of processors, those of the groups above it, and the processors online. Each group
// below uses all that it can.
func TestRoomOfAGroup(t *testing.T) {
	for _, c := range []struct {
		name    string
		unified bool
		online  int
		room    float64
		files   map[string]string
	}{
		{"a quota above the machine", true, 4, 4, map[string]string{"a/web/cpu.max": "800000 100000"}},
		{"a quota per 50 ms", true, 4, 0.2, map[string]string{"a/web/cpu.max": "10000 50000"}}, // opencontainers/runc#2465
		{"the smallest quota per second", true, 4, 0.001, map[string]string{"a/web/cpu.max": "1000 1000000"}},
		{"version 1, a quota per 50 ms", false, 4, 2, map[string]string{"cpu/a/web/cpu.cfs_quota_us": "100000\n",
			"cpu/a/web/cpu.cfs_period_us": "50000\n"}},
		{"two of sixteen", true, 16, 2, map[string]string{"a/web/cpuset.cpus.effective": "0-1\n"}},
		{"ranges and single ones", true, 16, 5, map[string]string{"a/web/cpuset.cpus.effective": "0-1,8,10-11\n"}},
		{"a quota below its set", true, 16, 1.5, map[string]string{"a/web/cpuset.cpus.effective": "0-1\n", "a/web/cpu.max": "150000 100000"}},
		{"a set below its quota", true, 16, 2, map[string]string{"a/web/cpuset.cpus.effective": "4,6\n", "a/web/cpu.max": "max 100000",
			"a/cpu.max": "400000 100000"}},
		{"the parent's set", true, 16, 3, map[string]string{"a/cpuset.cpus.effective": "0-2\n", "cpuset.cpus.effective": "0-15\n"}},
		{"the machine's own set", true, 8, 8, map[string]string{"cpuset.cpus.effective": "0-7\n"}},
		{"offline ones in the set", true, 4, 4, map[string]string{"a/web/cpuset.cpus.effective": "0-7\n"}},
		{"version 1", false, 16, 2, map[string]string{"sets/a/web/cpuset.effective_cpus": "0-1\n", "sets/a/web/cpuset.cpus": "0-3\n"}},
		{"version 1 of an old kernel", false, 16, 4, map[string]string{"sets/a/web/cpuset.cpus": "0-3\n"}},
		{"version 1, the parent's set", false, 16, 2, map[string]string{"sets/a/cpuset.cpus": "8-9\n", "sets/a/web/cpuset.cpus": "\n"}},
		{"version 1, a quota above the machine", false, 4, 4, map[string]string{"cpu/a/web/cpu.cfs_quota_us": "800000\n",
			"cpu/a/web/cpu.cfs_period_us": "100000\n"}},
	} {
		for _, group := range []string{OwnCgroup, "/a/web"} {
			t.Run(c.name+" "+group, func(t *testing.T) {
				obs, err := sampleCPU(t, Options{Cgroup: group}, room(c.unified, c.online, 0, c.files), room(c.unified, c.online, 10*c.room, c.files))
				if err != nil {
					t.Fatal(err)
				}
				if got := obs.Utilization[quell.CPU]; got != 1 || obs.Sched.Cores != c.room {
					t.Errorf("utilization %v of %v processors, want 1 of %v", got, obs.Sched.Cores, c.room)
				}
			})
		}
	}
	bad := room(true, 4, 0, map[string]string{"a/web/cpuset.cpus.effective": "3-1\n"})
	_, err := sampleCPU(t, Options{Cgroup: OwnCgroup}, bad, bad)
	mustSay(t, err, `reading its set of processors: "3-1" is no list of processors`)
}

// With cpu.max.burst, a group uses more than its quota for a while. In a window in which its quota was lowered, it uses several times as
// much.
func TestAGroupAboveItsQuota(t *testing.T) { // systemd/systemd#26658
	burst := map[string]string{"a/web/cpu.max": "50000 100000\n", "a/web/cpu.max.burst": "50000\n"}
	for _, c := range []struct {
		used  float64 // seconds of processor time in 10 s
		files map[string]string
		want  float64
	}{
		{5, burst, 1}, {7.5, burst, 1.5}, {10, burst, 2},
		{30, map[string]string{"a/web/cpu.max": "300000 100000\n"}, 1}, {30, map[string]string{"a/web/cpu.max": "max 100000\n"}, 0.75},
	} {
		obs, err := sampleCPU(t, Options{Cgroup: OwnCgroup}, room(true, 4, 0, c.files), room(true, 4, c.used, burst))
		if err != nil || obs.Utilization[quell.CPU] != c.want {
			t.Errorf("%v s of processor time: use %v, %v; want %v", c.used, obs.Utilization[quell.CPU], err, c.want)
		}
		obs.At = time.Now()
		s := quell.Snapshot{At: obs.At, Service: "shop", Instances: []quell.Instance{{ID: "i1", State: quell.Ready, Observation: &obs}}}
		if err := s.Validate(); err != nil {
			t.Errorf("%v s of processor time: %v", c.used, err)
		}
	}
}

func TestParseCPUList(t *testing.T) {
	for text, want := range map[string]int{"0": 1, "0-1,8,10-11\n": 5, "\n": 0, "": 0, "0-": -1, "a": -1, "2-1": -1, "0,,1": -1, "-1": -1,
		"0-1048575,1": -1, "99999999999": -1} {
		got, err := parseCPUList([]byte(text))
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}

// unaccountedGroup is one whose group /web is in the hierarchy of cpu, and not in that of cpuacct, as after `cgcreate -g cpu:/web`.
// Task 7 has run for the given seconds.
func unaccountedGroup(ran int) fstest.MapFS {
	return fstest.MapFS{
		"proc/stat": {Data: fmt.Appendf(nil, "cpu %d 0 0 %d 0 0 0 0 0 0\ncpu0 1\n", 100*ran+1, 1000-100*ran)},
		"proc/self/mountinfo": {Data: []byte("1 1 0:1 / /cg/cpu rw - cgroup cgroup rw,cpu\n" +
			"2 1 0:2 / /cg/acct rw - cgroup cgroup rw,cpuacct\n")},
		"proc/self/schedstat":           {Data: []byte("0 0 0\n")},
		"proc/7/schedstat":              {Data: fmt.Appendf(nil, "%d 1000000000 5\n", int64(ran)*1e9)},
		"proc/7/stat":                   {Data: []byte("7 (web) S 1 7\n")},
		"cg/acct/cpuacct.usage":         {Data: []byte("9\n")},
		"cg/cpu/web/tasks":              {Data: []byte("7\n")},
		"cg/cpu/web/cpu.cfs_quota_us":   {Data: []byte("50000\n")},
		"cg/cpu/web/cpu.cfs_period_us":  {Data: []byte("100000\n")},
		"cg/cpu/web/cpu.stat":           {Data: []byte("nr_periods 9\nnr_throttled 1\nthrottled_time 7\n")},
		"cg/cpu/other/cpu.cfs_quota_us": {Data: []byte("-1\n")},
	}
}

// The processor time of a group that no hierarchy counts is that of its tasks.
func TestUnaccountedGroup(t *testing.T) {
	_, after, failures := sampleGroups(t, unaccountedGroup(1), unaccountedGroup(4), Group{Path: "/web"})
	mustNotFail(t, failures)
	if len(after.Instances) != 1 || after.Instances[0].Observation == nil || after.Instances[0].Observation.Sched.RunS != 3 {
		t.Fatalf("%+v", after)
	}
	_, after, failures = sampleGroups(t, unaccountedGroup(1), unaccountedGroup(4), Group{Path: "/*"})
	mustNotFail(t, failures)
	if len(after.Instances) != 2 || after.Instances[1].ID != "web" || after.Instances[1].Observation.Sched.RunS != 3 {
		t.Errorf("by pattern: %+v", after)
	}
	obs, err := sampleCPU(t, Options{Cgroup: "/web"}, unaccountedGroup(1), unaccountedGroup(4))
	if err != nil || obs.Utilization[quell.CPU] != 0.6 {
		t.Errorf("as the instance's own group: %+v, %v", obs, err)
	}

	without := unaccountedGroup(4)
	delete(without, "proc/self/schedstat")
	_, _, failures = sampleGroups(t, unaccountedGroup(1), without, Group{Path: "/web"})
	if len(failures) != 1 || !strings.Contains(failures[0].Err.Error(), "make the group in cpuacct too") {
		t.Errorf("a kernel that tells nothing of tasks: %v", failures)
	}

	moved := unaccountedGroup(4)
	moved["cg/acct/web/cpuacct.usage"] = &fstest.MapFile{Data: []byte("1\n")}
	_, _, failures = sampleGroups(t, unaccountedGroup(1), moved, Group{Path: "/web"})
	if len(failures) != 1 || !strings.Contains(failures[0].Err.Error(), "has just entered") {
		t.Errorf("a group that is made in cpuacct too: %v", failures)
	}
}
