package sensor

import (
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

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
// and how often the quota of both stopped them. state is that of the instance's only task.
func shared(own, neighbour, stopped int, state rune) fstest.MapFS {
	text := map[string]string{
		"proc/stat": fmt.Sprintf("cpu %d 0 0 1000 %d 0 0 0 0 0\ncpu0 1\n", own+neighbour, neighbour/2),
		"proc/self/mountinfo": "31 30 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu\n32 30 0:28 / /cg/cpuacct rw - cgroup cgroup rw,cpuacct\n" +
			"33 30 0:29 / /cg/blkio rw - cgroup cgroup rw,blkio\n",
		"proc/self/cgroup":                   "3:blkio:/h\n2:cpuacct:/h/vm\n1:cpu:/h/vm\n",
		"proc/self/schedstat":                "0 0 0\n",
		"proc/pressure/cpu":                  fmt.Sprintf("some avg10=%d.00 avg60=0 avg300=0 total=1\n", min(90, neighbour)),
		"proc/7/schedstat":                   fmt.Sprintf("%d 0 5\n", own*10_000_000),
		"proc/7/stat":                        fmt.Sprintf("7 (a (b) c) %c 1 7\n", state),
		"proc/8/stat":                        "8 (neighbour) D 1 8\n",
		"cg/cpu/h/cpu.cfs_quota_us":          "50000\n",
		"cg/cpu/h/cpu.cfs_period_us":         "100000\n",
		"cg/cpu/h/cpu.stat":                  fmt.Sprintf("nr_periods 900\nnr_throttled %d\nthrottled_time %d\n", stopped, stopped*10_000_000),
		"cg/cpu/h/vm/cpu.cfs_quota_us":       "-1\n",
		"cg/cpuacct/h/vm/tasks":              "7\n",
		"cg/cpuacct/h/nb/tasks":              "8\n",
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

// subsample samples the processors of an own group that ran for a second of ten. In between it takes subsamples of trees with a task
// in each of these states, changed as wanted.
func subsample(t *testing.T, states string, neighbour int, change func(fstest.MapFS)) quell.Observation {
	t.Helper()
	m := &machine{shared(0, 0, 0, 'S')}
	cpu, err := NewCPU(Options{Root: m, Cgroup: OwnCgroup})
	if err != nil {
		t.Fatal(err)
	}
	var obs quell.Observation
	if err := cpu.Sample(start, &obs); err != nil {
		t.Fatal(err)
	}
	for _, state := range states {
		tree := shared(100, neighbour, neighbour/8, state)
		change(tree)
		m.FS = tree
		cpu.Subsample()
	}
	m.FS = shared(100, neighbour, neighbour/8, 'S')
	if err := cpu.Sample(start.Add(10*time.Second), &obs); err != nil {
		t.Fatal(err)
	}
	return obs
}

// A busy neighbour, which uses up the quota of both groups and waits for disks, changes nothing that an instance reads of its processors.
func TestNeighbourIsNotSeen(t *testing.T) {
	as := func(fstest.MapFS) {}
	calm, busy := subsample(t, "SSRDSSSS", 0, as), subsample(t, "SSRDSSSS", 400, as)
	if !reflect.DeepEqual(calm, busy) {
		t.Errorf("without a neighbour %+v %+v, beside one %+v %+v", calm.CPU, calm.Sched, busy.CPU, busy.Sched)
	}
	want := quell.CPUTime{User: .2, IOWait: new(.25)}
	if !nearTimes(calm.CPU, &want) || calm.Utilization[quell.CPU] != .2 || calm.Counters != nil || calm.Pressure != nil {
		t.Errorf("%+v, use %v, %v, %v", calm.CPU, calm.Utilization, calm.Counters, calm.Pressure)
	}
}

// Waiting for disks counts as idle time only, and is absent if nobody looked.
func TestOwnIOWait(t *testing.T) {
	for _, c := range []struct {
		name, states string
		change       func(tree fstest.MapFS)
		want         *float64
	}{
		{"never", "SSSSRRRR", func(fstest.MapFS) {}, new(0.)},
		{"a quarter of the time, on half a processor", "SSRDSSRD", func(fstest.MapFS) {}, new(.5)},
		{"more than the idle time", "DDDD", func(fstest.MapFS) {}, new(.8)},
		{"hardly looked at", "DD", func(fstest.MapFS) {}, nil},
		{"too many tasks", "DDDD", func(tree fstest.MapFS) {
			tree["cg/cpuacct/h/vm/tasks"].Data = []byte(strings.Repeat("7\n", mostLooked+1))
		}, nil},
		{"the task is the agent's", "DDDD", func(tree fstest.MapFS) { tree["proc/self/task/7/stat"] = &fstest.MapFile{} }, new(0.)},
		{"the task cannot be read", "DDDD", func(tree fstest.MapFS) { delete(tree, "proc/7/stat") }, nil},
		{"there are no tasks", "DDDD", func(tree fstest.MapFS) { tree["cg/cpuacct/h/vm/tasks"].Data = nil }, new(0.)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if obs := subsample(t, c.states, 0, c.change); !nearPointers(obs.CPU.IOWait, c.want) {
				t.Errorf("got %v, want %v", obs.CPU.IOWait, c.want)
			}
		})
	}
}

// A sensor that has not sampled yet, or that measures a whole machine, takes subsamples of nothing.
func TestSubsampleWithoutAGroup(t *testing.T) {
	for _, group := range []string{"", OwnCgroup} {
		cpu, err := NewCPU(Options{Root: shared(0, 0, 0, 'D'), Cgroup: group})
		if err != nil {
			t.Fatal(err)
		}
		NewSet(cpu).Subsample()
		if cpu.waits.moments > 0 {
			t.Errorf("group %q: %+v", group, cpu.waits)
		}
	}
}

func FuzzStateOf(f *testing.F) {
	f.Add([]byte("7 (a (b) c) D 1"))
	f.Add([]byte(") ) )"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got := stateOf(text); got != 0 && !bytes.Contains(text, []byte{')', ' ', got, ' '}) {
			t.Errorf("%q of %q", got, text)
		}
	})
}
