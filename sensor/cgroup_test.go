package sensor

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quellhq/quell"
)

// In each tree the group uses 3 s of processor time in 10 s, and the least quota stops somebody in 125 of 500 periods.
func TestCgroup(t *testing.T) {
	capacity := map[quell.Resource]float64{quell.CPU: 0.6}
	for _, c := range []struct {
		name, tree string
		opts       Options
		want       float64 // utilisation
		throttled  float64 // -1: absent
	}{
		{"the whole machine", "cgroup1", Options{}, 0.75, -1},
		{"version 1: use of the own group, quota of the one above", "cgroup1", Options{Cgroup: OwnCgroup}, 0.6, -1},
		{"version 1, by path", "cgroup1", Options{Cgroup: "/quell-lab/h1/vm"}, 0.6, -1},
		{"version 1: its own quota", "cgroup1", Options{Cgroup: "/quell-lab/h1"}, 0.6, 0.25},
		{"version 2: the least of the quotas", "cgroup2", Options{Cgroup: OwnCgroup}, 0.6, 0.25},
		{"version 2: only the one above has a quota", "cgroup2", Options{Cgroup: "/web.slice/free.service"}, 0.15, -1},
		{"a configured capacity wins", "cgroup2", Options{Cgroup: OwnCgroup, Capacity: capacity}, 0.5, 0.25},
	} {
		t.Run(c.name, func(t *testing.T) {
			obs, err := sampleCPU(t, c.opts, os.DirFS("testdata/"+c.tree+"/before"), os.DirFS("testdata/"+c.tree+"/after"))
			if err != nil {
				t.Fatal(err)
			}
			if got := obs.Utilization[quell.CPU]; math.Abs(got-c.want) > 1e-9 {
				t.Errorf("utilization %v, want %v", got, c.want)
			}
			got, ok := obs.Counters[CounterThrottled]
			if ok != (c.throttled >= 0) || ok && math.Abs(got-c.throttled) > 1e-9 {
				t.Errorf("throttled %v (present: %t), want %v", got, ok, c.throttled)
			}
			if s := obs.Sched; s == nil || math.Abs(s.RunS/10/s.Cores-c.want) > 1e-9 {
				t.Errorf("tasks ran %+v, and utilization is %v", s, c.want)
			}
			if c.opts.Cgroup == "" && (obs.CPU == nil || obs.CPU.User != 0.5) {
				t.Errorf("the machine's own times are %+v", obs.CPU)
			}
		})
	}
}

// sampleCPU samples the processors twice, ten seconds apart.
func sampleCPU(t *testing.T, o Options, before, after fs.FS) (quell.Observation, error) {
	t.Helper()
	m := &machine{before}
	o.Root = m
	cpu, err := NewCPU(o)
	if err != nil {
		t.Fatal(err)
	}
	var obs quell.Observation
	if err := cpu.Sample(start, &obs); err != nil {
		return obs, err
	}
	m.FS = after
	return obs, cpu.Sample(start.Add(10*time.Second), &obs)
}

func TestCgroupMistakes(t *testing.T) {
	_, err := NewCPU(Options{Cgroup: "web.service"})
	if user := new(quell.UserError); !errors.As(err, &user) || !strings.Contains(err.Error(), `agent.cgroup: "web.service"`) {
		t.Errorf("a relative path: %v", err)
	}
	machineOnly := fstest.MapFS{
		"proc/stat":           {Data: []byte("cpu  1 0 1 1 0 0 0 0 0 0\ncpu0 1 0 1 1 0 0 0 0 0 0\n")},
		"proc/self/mountinfo": {Data: []byte("1 1 0:1 / / rw - ext4 /dev/sda rw\n")},
		"proc/self/cgroup":    {Data: []byte("0::/\n")},
	}
	_, err = sampleCPU(t, Options{Cgroup: OwnCgroup}, machineOnly, machineOnly)
	mustSay(t, err, "the kernel offers no control groups for processors")
	tree := os.DirFS("testdata/cgroup1/before")
	_, err = sampleCPU(t, Options{Cgroup: "/gone"}, tree, tree)
	mustSay(t, err, "control group /gone (agent.cgroup)")
	_, err = sampleCPU(t, Options{Cgroup: OwnCgroup}, os.DirFS("testdata/cgroup1/after"), tree)
	mustSay(t, err, "went back")
	unaccounted := fstest.MapFS{
		"proc/stat":               machineOnly["proc/stat"],
		"proc/self/mountinfo":     {Data: []byte("1 1 0:1 / /cg rw - cgroup2 cgroup2 rw\n")},
		"cg/cgroup.controllers":   {Data: []byte("cpu\n")},
		"cg/web.service/cpu.stat": {Data: []byte("user_usec 5\n")},
	}
	_, err = sampleCPU(t, Options{Cgroup: "/web.service"}, unaccounted, unaccounted)
	mustSay(t, err, "cpu.stat has no usage_usec")
}

func TestParseCPUMax(t *testing.T) {
	for text, want := range map[string]float64{"50000 100000\n": 0.5, "max 100000\n": 0, "150000 100000": 1.5, "0 100000": -1, "1": -1,
		"x 1": -1, "1 0": -1} {
		got, err := parseCPUMax([]byte(text))
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}

func FuzzParseCPUStat(f *testing.F) {
	f.Add([]byte("nr_periods 7\nnr_throttled 3\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := parseCPUStat(text); err != nil && got != nil {
			t.Errorf("got %v, %v", got, err)
		}
	})
}
