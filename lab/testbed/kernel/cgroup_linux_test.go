package kernel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
)

func TestFindGroups(t *testing.T) {
	const (
		mounts = "31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n32 30 0:28 / /sys/fs/cgroup/blk\\040io rw - " +
			"cgroup cgroup rw,blkio\n33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n"
		two = "/sys/fs/cgroup/unified"
	)
	for controllers, want := range map[string]groups{
		"memory\n":        {1, "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/blk io"},
		"cpuset cpu io\n": {2, two, two, two},
	} {
		got, err := findGroups(fstest.MapFS{
			"proc/self/mountinfo":                      {Data: []byte(mounts)},
			"sys/fs/cgroup/unified/cgroup.controllers": {Data: []byte(controllers)},
		})
		if err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	none, err := findGroups(fstest.MapFS{"proc/self/mountinfo": {Data: []byte("1 1 0:1 / / rw - ext4 /dev/sda rw\n")}})
	if err != nil || none != (groups{version: 1}) {
		t.Errorf("got %+v, %v", none, err)
	}
}

// The files of control groups of version 2, in an ordinary folder instead of the kernel's tree.
func TestVersion2Files(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("cgroup.controllers", "cpuset cpu io memory\n")
	g := unified(root)
	if err := g.makeTop("quell"); err != nil {
		t.Fatal(err)
	}
	if err := g.make("quell", Host{ID: "h1", Cores: 0.5, DiskIOPS: 200}, "8:0"); err != nil {
		t.Fatal(err)
	}
	if err := g.limitCPU("quell-lab/h1/nb-cpu", 0.01); err != nil {
		t.Fatal(err)
	}
	if err := g.limitCPU("quell-lab/h1/nb-memory", 0.0001); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"cgroup.subtree_control":              "+io", // each value is written separately, and a plain file keeps only the last one
		"quell-lab/cgroup.subtree_control":    "+io",
		"quell-lab/h1/cgroup.subtree_control": "+io",
		"quell-lab/cpu.weight":                "10000",
		"quell-lab/front/cpu.weight":          "1000", // ten times a host's
		"quell-lab/h1/cpu.max":                "10000 20000",
		"quell-lab/h1/nb-cpu/cpu.weight":      "1000", // ten times the service's
		"quell-lab/h1/io.max":                 "8:0 riops=200 wiops=200",
		"quell-lab/h1/nb-cpu/cpu.max":         "1600 160000",  // a quota of at least a millisecond
		"quell-lab/h1/nb-memory/cpu.max":      "1000 1000000", // and a period of at most a second
	} {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	write("quell-lab/h1/vm/cpu.stat", "usage_usec 2500000\nuser_usec 1\n")
	if used, err := g.used("quell-lab/h1/vm"); err != nil || used != 2.5 {
		t.Errorf("used %v, %v; want 2.5", used, err)
	}
	found, err := g.existing("quell")
	if err != nil || len(found) != 9 || found[2] != filepath.Join(root, "quell-lab/h1/vm") || found[8] != filepath.Join(root, "quell-lab") {
		t.Errorf("found %v, %v", found, err)
	}
}

// A group of version 2 accepts processes and measures their processor time even if no controllers are enabled.
func TestVersion2Places(t *testing.T) {
	need.Root(t)
	root := "/sys/fs/cgroup/unified"
	if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
		root = "/sys/fs/cgroup"
		if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
			need.Skip(t, "needs a mounted cgroup version 2")
		}
	}
	l := newLab(t, Options{Hosts: []Host{{ID: "h1"}}})
	g := unified(root)
	if l.groups.version != 2 {
		if err := g.make(l.options.Prefix, Host{ID: "h1"}, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			folders, err := g.existing(l.options.Prefix)
			if err != nil {
				t.Error(err)
			}
			for _, folder := range folders {
				if err := removeGroup(folder); err != nil {
					t.Error(err)
				}
			}
		})
	}
	cmd := exec.Command("cat", "/proc/self/cgroup")
	var out strings.Builder
	cmd.Stdout = &out
	if err := place(t, l, "h1", Instance).startIn(g, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(base(l.options.Prefix), "h1/vm")
	if !strings.Contains(out.String(), "0::/"+group+"\n") {
		t.Errorf("it ran in\n%s", out.String())
	}
	if used, err := g.used(group); err != nil || !(used > 0) {
		t.Errorf("used %v s, %v", used, err)
	}
}

// Service and neighbour compete for the host's quota: together they get no more, and each gets a part. The size of the part
// depends on other work on the machine, so only limits within the lab's own groups are asserted.
func TestSharedCPU(t *testing.T) {
	need.Program(t, "stress-ng")
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Cores: 0.2}}})
	m := l.Machine("h1")
	defer spin(t, place(t, l, "h1", Instance))()
	alone, _ := cpuOver(t, m, 300*time.Millisecond)
	interfere(t, m, quell.CPU, 0.25)
	awaitUse(t, m)
	mustHaveQuota(t, l, "h1/nb-cpu", 0.05)
	_, little := cpuOver(t, m, time.Second)
	interfere(t, m, quell.CPU, 1)
	awaitUse(t, m)
	mustHaveQuota(t, l, "h1/nb-cpu", 0.2)
	mustHaveQuota(t, l, "h1", 0.2)
	own, much := cpuOver(t, m, time.Second)
	t.Logf("service %.2f alone; neighbour %.2f at 0.25; service %.2f, neighbour %.2f at 1", alone, little, own, much)
	const most = 1.3 // a quota is enforced over periods, and a reading begins within one
	if !(alone < most && little < 0.25*most && own+much < most) {
		t.Error("the quota does not hold")
	}
	eventually(t, "both to have some of the quota", func() bool {
		own, interfering := cpuOver(t, m, 100*time.Millisecond)
		return own > 0 && interfering > 0
	})
}

// mustHaveQuota checks the quota that the kernel enforces on a group.
func mustHaveQuota(t *testing.T, l *Lab, group string, cores float64) {
	t.Helper()
	folder := filepath.Join(l.groups.cpu, base(l.options.Prefix), group)
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	var text string
	if l.groups.version == 2 {
		text = read("cpu.max")
	} else {
		text = read("cpu.cfs_quota_us") + " " + read("cpu.cfs_period_us")
	}
	var quota, period float64
	if _, err := fmt.Sscan(text, &quota, &period); err != nil || math.Abs(quota/period-cores) > 1e-6 {
		t.Errorf("%s has a quota of %q, want %v cores", group, text, cores)
	}
}

// spin runs a process that uses as much of a core as it can get.
func spin(t *testing.T, p Place) (stop func()) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := p.Start(cmd); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// cpuOver returns how many of the host's cores service and neighbour used during a time.
func cpuOver(t *testing.T, m *Machine, span time.Duration) (own, interfering float64) {
	t.Helper()
	ownBefore, interferingBefore, err := m.CPUCarried()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	time.Sleep(span)
	own, interfering, err = m.CPUCarried()
	if err != nil {
		t.Fatal(err)
	}
	seconds := time.Since(began).Seconds()
	return (own - ownBefore) / seconds, (interfering - interferingBefore) / seconds
}

// The interferer for memory runs within its quota of processor time.
func TestInterfereMemory(t *testing.T) {
	need.Program(t, "stress-ng")
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Cores: 0.4}}})
	m := l.Machine("h1")
	interfere(t, m, quell.Memory, 0.5)
	awaitUse(t, m)
	mustHaveQuota(t, l, "h1/nb-memory", 0.2)
	if _, got := cpuOver(t, m, time.Second); !(got < 0.5*1.3) {
		t.Errorf("the neighbour used %.2f of the host's cores at 0.5", got)
	}
}

// Service and neighbour compete for the disk's operations: together they get no more than the limit, and each gets a
// part.
func TestSharedDisk(t *testing.T) {
	need.Program(t, "fio")
	const limit = 100.0
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", DiskIOPS: limit}}})
	m := l.Machine("h1")
	interfere(t, m, quell.Disk, 0.8)
	eventually(t, "the neighbour's reads", func() bool { return served(t, l) > 0 })
	began, before := time.Now(), served(t, l)
	own := reads(t, l)
	both, span := served(t, l)-before, time.Since(began)
	t.Logf("%d reads of the service, %d of both in %v", own, both, span)
	// The kernel allows some operations at once. And operations that were throttled when the counters were first read are counted only later.
	most := limit * (1.2*span.Seconds() + 1)
	if own > both || float64(both) > most {
		t.Errorf("%d reads of the service, %d of both in %v, of a disk of %v a second", own, both, span, limit)
	}
	// By now the kernel has loaded the program's file. It reads that file in larger pieces than the counted operations.
	_, neighbourBefore, err := m.DiskCarried()
	if err != nil {
		t.Fatal(err)
	}
	before = served(t, l)
	const more = 150
	eventually(t, "the neighbour to go on", func() bool { return served(t, l) >= before+more })
	service, neighbour, err := m.DiskCarried()
	neighbour -= neighbourBefore
	const waiting = 1 // at most one second of reads may be requested but not yet allowed, or allowed but not yet counted
	if err != nil || service != 0 || neighbour < more/limit-waiting || neighbour > float64(served(t, l)-before)/limit+waiting {
		t.Errorf("of all that runs now the service carried %v s of the disk, the neighbour %v s; %v", service, neighbour, err)
	}
}

// served counts the reads that the host's disk limit has allowed.
func served(t *testing.T, l *Lab) (count int) {
	t.Helper()
	file := "blkio.throttle.io_serviced" // lines of "8:0 Read 5"
	if l.groups.version == 2 {
		file = "io.stat" // lines of "8:0 rbytes=1 wbytes=2 rios=5 ..."
	}
	text, err := os.ReadFile(filepath.Join(l.groups.io, base(l.options.Prefix), "h1", file))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`Read ([0-9]+)|rios=([0-9]+)`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(m[1] + m[2])
		if err != nil {
			t.Fatal(err)
		}
		count += n
	}
	return count
}

// reads makes a process in the instance's place read from the disk without the cache, and returns the number of reads.
func reads(t *testing.T, l *Lab) int {
	t.Helper()
	file := filepath.Join(l.options.Dir, "service.data")
	if err := fill(file, 1<<20); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("fio", "--name=service", "--filename="+file, "--size=1M", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=psync",
		"--thread", "--numjobs=1", "--number_ios=40", "--output-format=json")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := place(t, l, "h1", Instance).Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var report struct {
		Jobs []struct {
			Read struct {
				Total int `json:"total_ios"`
			} `json:"read"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || len(report.Jobs) != 1 {
		t.Fatalf("reading fio's report: %v\n%s", err, out.Bytes())
	}
	return report.Jobs[0].Read.Total
}
