package sensor

import (
	"io/fs"
	"math"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quellhq/quell"
)

// files returns a machine's file system with the given files.
func files(text map[string]string) fs.FS {
	tree := fstest.MapFS{}
	for name, content := range text {
		tree[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return tree
}

// sampled samples a sensor twice, 10 s apart, and returns the second result.
func sampled(t *testing.T, o Options, make func(Options) (Sensor, error), before, after fs.FS) (quell.Observation, error) {
	t.Helper()
	m := &machine{before}
	o.Root = m
	s, err := make(o)
	if err != nil {
		return quell.Observation{}, err
	}
	var obs quell.Observation
	if err := s.Sample(start, &obs); err != nil {
		return obs, err
	}
	m.FS = after
	err = s.Sample(start.Add(10*time.Second), &obs)
	return obs, err
}

func diskSensor(o Options) (Sensor, error) { return NewDisk(o) }

const (
	unifiedMount = "29 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	blkioMount   = "29 1 0:26 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n"
)

func TestDisk(t *testing.T) {
	diskstats := func(reads, sectors string) fs.FS {
		return files(map[string]string{"proc/diskstats": "   7 0 loop0 999999 0 999999 0 0 0 0 0 0 0 0\n 254 0 vda " + reads + " 0 " + sectors +
			" 5 20 0 800 9 0 0 0\n 254 1 vda1 1 0 8 5 2 0 16 9 0 0 0\n"})
	}
	unified := func(stat string) fs.FS {
		return files(map[string]string{"proc/self/mountinfo": unifiedMount, "sys/fs/cgroup/cgroup.controllers": "cpu io",
			"proc/self/cgroup": "0::/web\n", "sys/fs/cgroup/web/io.stat": stat})
	}
	blkio := func(reads string) fs.FS {
		return files(map[string]string{"proc/self/mountinfo": blkioMount, "proc/self/cgroup": "4:blkio:/web\n",
			"sys/fs/cgroup/blkio/web/blkio.throttle.io_serviced_recursive":      "8:0 Read " + reads + "\n8:0 Write 50\n8:0 Total 7\nTotal 7\n",
			"sys/fs/cgroup/blkio/web/blkio.throttle.io_service_bytes_recursive": "8:0 Read 0\n8:0 Write 0\nTotal 0\n"})
	}
	operations := map[quell.Resource]float64{quell.Disk: 100}
	for _, c := range []struct {
		why           string
		o             Options
		before, after fs.FS
		want          float64
	}{
		{"operations", Options{Capacity: operations}, diskstats("100", "0"), diskstats("300", "0"), 0.2},
		{"bytes", Options{DiskBytes: 1e6}, diskstats("0", "1000"), diskstats("900", "11000"), 0.512},
		{"the larger share", Options{Capacity: operations, DiskBytes: 1e6}, diskstats("100", "1000"), diskstats("300", "11000"), 0.512},
		{"a group of version 2", Options{Capacity: operations, Cgroup: OwnCgroup},
			unified("8:0 rbytes=1 wbytes=0 rios=10 wios=0\n8:16\n"), unified("8:0 rbytes=9 wbytes=0 rios=110 wios=100 dios=5\n"), 0.2},
		{"a group of version 2, by its path", Options{DiskBytes: 100, Cgroup: "/web"},
			unified("8:0 rbytes=0 wbytes=0 rios=10 wios=0\n"), unified("8:0 rbytes=300 wbytes=200 rios=110 wios=100\n"), 0.5},
		{"a group of version 1", Options{Capacity: operations, Cgroup: OwnCgroup}, blkio("100"), blkio("400"), 0.3},
		{"a group that has used none yet", Options{Capacity: operations, Cgroup: OwnCgroup}, unified(""), unified(""), 0},
	} {
		obs, err := sampled(t, c.o, diskSensor, c.before, c.after)
		if err != nil || math.Abs(obs.Utilization[quell.Disk]-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v: %v", c.why, obs.Utilization, c.want, err)
		}
	}
}

func TestDiskMistakes(t *testing.T) {
	operations := map[quell.Resource]float64{quell.Disk: 100}
	group := map[string]string{
		"proc/self/mountinfo": unifiedMount, "sys/fs/cgroup/cgroup.controllers": "cpu io", "proc/self/cgroup": "0::/web\n",
	}
	stats := func(line string) fs.FS { return files(map[string]string{"proc/diskstats": line}) }
	for _, c := range []struct {
		why           string
		o             Options
		before, after fs.FS
		want          string
	}{
		{"nobody said what the disk can do", Options{}, files(nil), nil,
			"agent.capacity.disk is not known, so the own use of the disk is not told"},
		{"no disk", Options{Capacity: operations}, files(nil), nil, "reading disk counters"},
		{"a group that is not counted", Options{Capacity: operations, Cgroup: "self"}, files(group), nil,
			"the kernel does not count the group's disk operations"},
		{"no groups", Options{Capacity: operations, Cgroup: "self"}, files(map[string]string{"proc/self/mountinfo": ""}), nil,
			"the kernel offers no control groups for disks"},
		{"too few columns", Options{Capacity: operations}, stats("8 0 sda 1 2\n"), nil, "want at least 10 columns"},
		{"absurd", Options{Capacity: operations}, stats("8 0 sda 9223372036854775807 0 0 0 0 0 0 0\n"), nil, "out of range"},
		{"counters that went back", Options{Capacity: operations}, stats("8 0 sda 9 0 0 0 0 0 0 0\n"), stats("8 0 sda 8 0 0 0 0 0 0 0\n"),
			"the counters of disk 8:0 went back"},
		{"a capacity that is wrong", Options{Capacity: operations}, stats("8 0 sda 9 0 0 0 0 0 0 0\n"), stats("8 0 sda 9999 0 0 0 0 0 0 0\n"),
			"set the true capacity"},
	} {
		obs, err := sampled(t, c.o, diskSensor, c.before, c.after)
		mustSay(t, err, c.want)
		if _, told := obs.Utilization[quell.Disk]; told {
			t.Errorf("%s: %v", c.why, obs.Utilization)
		}
	}
}

func FuzzDiskCounters(f *testing.F) {
	f.Add("8 0 sda 9 0 0 0 0 0 0 0\n")
	f.Add("8:0 rbytes=1 wbytes=2 rios=3 wios=4\n")
	f.Add("8:0 Read 5\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = parseDiskstats([]byte(text))
		_, _ = parseIOStat([]byte(text))
		_, _ = parseBlkio([]byte(text))
	})
}

func TestMemory(t *testing.T) {
	counted := func(a, b string) fs.FS {
		const folder = "sys/fs/resctrl/mon_data/"
		return files(map[string]string{folder + "mon_L3_00/mbm_total_bytes": a, folder + "mon_L3_01/mbm_total_bytes": b})
	}
	capacity := map[quell.Resource]float64{quell.Memory: 1e9}
	for _, c := range []struct {
		why           string
		o             Options
		before, after fs.FS
		want          float64
		substitute    string
		fails         string
	}{
		{"what the kernel counts", Options{Capacity: capacity}, counted("5\n", "7\n"), counted("2000000005\n", "1000000007\n"), 0.3, "", ""},
		{"a machine that counts nothing", Options{Capacity: capacity}, files(nil), files(nil), 0.4,
			"the kernel counts no memory traffic (resctrl)", ""},
		{"no capacity", Options{}, counted("5", "7"), counted("6", "8"), 0.4, "agent.capacity.memory is not set", ""},
		{"a control group", Options{Capacity: capacity, Cgroup: "self"}, counted("5", "7"), counted("6", "8"), 0.4,
			"of a control group alone the kernel counts no memory traffic", ""},
		{"hardware that does not count now", Options{Capacity: capacity}, counted("5", "7"), counted("Unavailable\n", "8"), 0, "",
			"memory traffic in"},
	} {
		t.Run(c.why, func(t *testing.T) {
			var used *Memory
			obs, err := sampled(t, c.o, func(o Options) (Sensor, error) {
				var err error
				used, err = NewMemory(o)
				return withCPU{used}, err
			}, c.before, c.after)
			mustSay(t, err, c.fails)
			if got := obs.Utilization[quell.Memory]; math.Abs(got-c.want) > 1e-9 && c.fails == "" || used.Substitute() != c.substitute {
				t.Errorf("%v, substitute %q; want %v, %q", got, used.Substitute(), c.want, c.substitute)
			}
		})
	}
}

func TestSubstituteOfASet(t *testing.T) {
	for want, o := range map[string]Options{
		"": {Root: files(nil)},
		"the kernel counts no memory traffic (resctrl)": {Root: files(nil), Wanted: []quell.Resource{quell.Memory, quell.Disk}},
	} {
		set, err := New(o)
		if err != nil || set.Substitute() != want {
			t.Errorf("%q, want %q: %v", set.Substitute(), want, err)
		}
	}
}

// withCPU is a sensor behind one that reports a processor utilisation of 40%.
type withCPU struct{ Sensor }

func (s withCPU) Sample(now time.Time, obs *quell.Observation) error {
	obs.Utilization = map[quell.Resource]float64{quell.CPU: 0.4}
	return s.Sensor.Sample(now, obs)
}

func TestOwnQuota(t *testing.T) {
	unified := func(group, max string) map[string]string {
		return map[string]string{
			"proc/self/mountinfo": unifiedMount, "sys/fs/cgroup/cgroup.controllers": "cpu", "proc/self/cgroup": "0::" + group,
			"sys/fs/cgroup/host/cpu.max": "50000 100000", "sys/fs/cgroup/host/cpu.stat": "usage_usec 1\nthrottled_usec 99\n",
			"sys/fs/cgroup/host/vm/cpu.max": max, "sys/fs/cgroup/host/vm/cpu.stat": "usage_usec 1\nnr_periods 9\nthrottled_usec 4\n",
		}
	}
	for _, c := range []struct {
		why     string
		root    map[string]string
		cores   float64
		stopped time.Duration
	}{
		{"its own", unified("/host/vm", "20000 100000"), 0.2, 4 * time.Microsecond},
		{"only that of a group above", unified("/host/vm", "max 100000"), 0, 4 * time.Microsecond},
		{"the root, which has none", unified("/", ""), 0, 0},
		{"a machine without control groups", map[string]string{"proc/self/mountinfo": ""}, 0, 0},
	} {
		q, err := OwnQuota(files(c.root))
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		if n, err := q.Stopped(); q.Cores() != c.cores || n != c.stopped || err != nil {
			t.Errorf("%s: %v cores, stopped for %v, want %v, %v: %v", c.why, q.Cores(), n, c.cores, c.stopped, err)
		}
	}
	if _, err := OwnQuota(files(unified("/host/vm", "nonsense"))); err == nil {
		t.Error("a quota that cannot be read is none")
	}
}
