package sensor

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/quellhq/quell"
)

// readOwnGroup samples the processors of one group twice, ten seconds apart.
func readOwnGroup(t *testing.T, group string, before, after fs.FS) quell.Observation {
	t.Helper()
	obs, err := sampleCPU(t, Options{Cgroup: group}, before, after)
	if err != nil {
		t.Fatal(err)
	}
	return obs
}

// The group web of these trees runs for 6 s of 10 s on a machine of two processors, which the hypervisor takes for 2 s in all while tasks
// run for 14 s.
func TestOwnGroup(t *testing.T) {
	const steal = 2. * 6 / 14 / 20
	for _, c := range []struct {
		name, tree, group string
		want              quell.CPUTime
		wait, stopped     *float64
		pressure          map[string]float64
	}{
		{"version 1: waiting of its tasks", "groups1", "/web", quell.CPUTime{User: .25, System: .05, Steal: steal}, new(4.), new(0.), nil},
		{"version 2: its own pressure", "groups2", "/system.slice/web.service", quell.CPUTime{User: .25, System: .05, Steal: steal}, nil, new(0.),
			map[string]float64{"cpu": .4, "cpu_full": .1, "memory": 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			obs := readOwnGroup(t, c.group, os.DirFS("testdata/"+c.tree+"/before"), os.DirFS("testdata/"+c.tree+"/after"))
			if !nearTimes(obs.CPU, &c.want) || !nearPointers(obs.Sched.WaitS, c.wait) || !nearPointers(obs.Sched.ThrottledS, c.stopped) ||
				!reflect.DeepEqual(obs.Pressure, c.pressure) {
				t.Errorf("got %+v, %+v, %v", obs.CPU, obs.Sched, obs.Pressure)
			}
		})
	}
}

func nearPointers(a, b *float64) bool {
	return a == nil && b == nil || a != nil && b != nil && math.Abs(*a-*b) < 1e-9
}

func nearTimes(a, b *quell.CPUTime) bool {
	return a != nil && math.Abs(a.User-b.User) < 1e-9 && math.Abs(a.System-b.System) < 1e-9 && math.Abs(a.Steal-b.Steal) < 1e-9 &&
		nearPointers(a.IOWait, b.IOWait)
}

// shared is a machine of one processor with two groups of version 1, /h/vm and /h/nb. Numbers are in units of 10 ms: what each group ran,
// how often the quota of both stopped them, and how long the instance's only task waited for a disk.
func shared(own, neighbour, stopped, disk int) fs.FS {
	text := map[string]string{
		"proc/stat": fmt.Sprintf("cpu %d 0 0 1000 %d 0 0 0 0 0\ncpu0 1\n", own+neighbour, neighbour/2),
		"proc/self/mountinfo": "31 30 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu\n32 30 0:28 / /cg/cpuacct rw - cgroup cgroup rw,cpuacct\n" +
			"33 30 0:29 / /cg/blkio rw - cgroup cgroup rw,blkio\n",
		"proc/self/cgroup":                   "3:blkio:/h\n2:cpuacct:/h/vm\n1:cpu:/h/vm\n",
		"proc/self/schedstat":                "0 0 0\n",
		"proc/pressure/cpu":                  fmt.Sprintf("some avg10=%d.00 avg60=0 avg300=0 total=1\n", min(90, neighbour)),
		"proc/sys/kernel/task_delayacct":     "1\n",
		"proc/7/schedstat":                   fmt.Sprintf("%d 0 5\n", own*10_000_000),
		"proc/7/stat":                        taskStat(disk),
		"cg/cpu/h/cpu.cfs_quota_us":          "50000\n",
		"cg/cpu/h/cpu.cfs_period_us":         "100000\n",
		"cg/cpu/h/cpu.stat":                  fmt.Sprintf("nr_periods 900\nnr_throttled %d\nthrottled_time %d\n", stopped, stopped*10_000_000),
		"cg/cpu/h/vm/cpu.cfs_quota_us":       "-1\n",
		"cg/cpuacct/h/vm/tasks":              "7\n",
		"cg/cpuacct/h/vm/cpuacct.usage":      fmt.Sprintln(own * 10_000_000),
		"cg/cpuacct/h/nb/cpuacct.usage":      fmt.Sprintln(neighbour * 10_000_000),
		"cg/cpuacct/h/vm/cpuacct.usage_user": fmt.Sprintln(own * 10_000_000),
		"cg/cpuacct/h/vm/cpuacct.usage_sys":  "0\n",
	}
	tree := fstest.MapFS{}
	for name, content := range text {
		tree[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return tree
}

// taskStat is /proc/TASK/stat of a task that waited this many ticks for disks.
func taskStat(disk int) string {
	text := "7 (a (b) c) S"
	for range 38 {
		text += " 0"
	}
	return text + fmt.Sprintf(" %d 0 0\n", disk)
}

// A busy neighbour, which uses up the quota of both groups, changes nothing that an instance reads of its processors.
func TestNeighbourIsNotSeen(t *testing.T) {
	before := shared(0, 0, 0, 0)
	calm, busy := readOwnGroup(t, OwnCgroup, before, shared(20, 0, 0, 30)), readOwnGroup(t, OwnCgroup, before, shared(20, 400, 45, 30))
	if !reflect.DeepEqual(calm, busy) {
		t.Errorf("without a neighbour %+v %+v, beside one %+v %+v", calm.CPU, calm.Sched, busy.CPU, busy.Sched)
	}
	want := quell.CPUTime{User: .04, IOWait: new(.06)}
	if !nearTimes(calm.CPU, &want) || calm.Utilization[quell.CPU] != .04 || calm.Counters != nil || calm.Pressure != nil {
		t.Errorf("%+v, use %v, %v, %v", calm.CPU, calm.Utilization, calm.Counters, calm.Pressure)
	}
}

// Waiting for disks counts as idle time only, and is absent if the kernel does not count it.
func TestOwnIOWait(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(tree fstest.MapFS)
		disk   int
		want   *float64
	}{
		{"more than the idle time", func(fstest.MapFS) {}, 900, new(.8)},
		{"delays are not counted", func(tree fstest.MapFS) { tree["proc/sys/kernel/task_delayacct"].Data = []byte("0\n") }, 30, nil},
		{"an old kernel", func(tree fstest.MapFS) { delete(tree, "proc/sys/kernel/task_delayacct") }, 30, nil},
		{"the task is the agent's", func(tree fstest.MapFS) { tree["proc/self/task/7/stat"] = &fstest.MapFile{} }, 30, new(0.)},
		{"hours in seconds", func(fstest.MapFS) {}, 800_000, new(0.)},
		{"the task is new", func(tree fstest.MapFS) { tree["cg/cpuacct/h/vm/tasks"].Data = []byte("8\n") }, 30, new(0.)},
	} {
		t.Run(c.name, func(t *testing.T) {
			after := shared(100, 0, 0, c.disk).(fstest.MapFS)
			c.change(after)
			obs := readOwnGroup(t, OwnCgroup, shared(0, 0, 0, 0), after)
			if !nearPointers(obs.CPU.IOWait, c.want) {
				t.Errorf("got %v, want %v", obs.CPU.IOWait, c.want)
			}
		})
	}
}

func FuzzParseTaskDisk(f *testing.F) {
	f.Add([]byte(taskStat(30)))
	f.Add([]byte("7 (x) S 1 2 3"))
	f.Add([]byte(") ) )"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := parseTaskDisk(text); got < 0 || err != nil && got != 0 {
			t.Errorf("got %v, %v", got, err)
		}
	})
}
