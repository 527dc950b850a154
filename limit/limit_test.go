package limit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/cgroup"
	"github.com/quellhq/quell/internal/guest"
	"github.com/quellhq/quell/internal/need"
)

// roleVariable makes the test's program limit a group and then wait to be killed, or work for ever if its value is busyRole.
const (
	roleVariable = "QUELL_LIMIT_TEST"
	busyRole     = "busy"
)

func TestMain(m *testing.M) {
	switch folder := os.Getenv(roleVariable); folder {
	case "":
		os.Exit(guest.Main(m))
	case busyRole:
		for i := 0; ; i++ {
			_ = fmt.Sprint(i)
		}
	default:
		holdForever(folder)
	}
}

// holdForever limits the group /web of a fake tree, says so, and waits.
func holdForever(folder string) {
	failed := New(fakeOptions(folder)).Apply(cpuOf("/web", 0.5))
	fmt.Println("done", failed)
	select {}
}

func fakeOptions(folder string) Options {
	return Options{Root: filepath.Join(folder, "root"), Records: filepath.Join(folder, "records"), Disk: "8:0"}
}

func cpuOf(group string, processors float64) map[Target]float64 {
	return map[Target]float64{{Group: group, Resource: quell.CPU}: processors}
}

const (
	mounts1 = "31 22 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n32 22 0:28 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n"
	mounts2 = "31 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
)

// tree is a fake tree of control groups.
type tree struct {
	Options
	t      testing.TB
	folder string
}

func fakeTree(t testing.TB, mounts string, files map[string]string) tree {
	folder := t.TempDir()
	f := tree{fakeOptions(folder), t, folder}
	f.put("proc/self/mountinfo", mounts)
	f.put("sys/fs/cgroup/cgroup.controllers", "cpu io")
	for name, text := range files {
		f.put(filepath.Join("sys/fs/cgroup", name), text)
	}
	return f
}

func (f tree) put(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.Root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		f.t.Fatal(err)
	}
}

func (f tree) want(name, text string) {
	f.t.Helper()
	got, err := os.ReadFile(filepath.Join(f.Root, "sys/fs/cgroup", name))
	if err != nil || strings.TrimSpace(string(got)) != text {
		f.t.Errorf("%s is %q, %v; want %q", name, got, err, text)
	}
}

// wantRecords checks how many records there are.
func wantRecords(t testing.TB, o Options, n int) {
	t.Helper()
	entries, err := os.ReadDir(o.Records)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(entries) != n {
		t.Errorf("%d records (%v), want %d", len(entries), err, n)
	}
}

func wantNone(t testing.TB, failed map[Target]error) {
	t.Helper()
	for target, err := range failed {
		t.Errorf("%s: %v", target, err)
	}
}

func wantOne(t testing.TB, failed map[Target]error, text string) {
	t.Helper()
	for _, err := range failed {
		if strings.Contains(err.Error(), text) {
			return
		}
	}
	t.Errorf("failed with %v, want %q", failed, text)
}

func TestBothVersionsAreLimitedAndPutBack(t *testing.T) {
	for _, c := range []struct {
		name, mounts  string
		before, limit map[string]string // files of the group
	}{
		{"version 2", mounts2, map[string]string{"web/cpu.max": "max 100000", "web/io.max": ""},
			map[string]string{"web/cpu.max": "50000 100000", "web/io.max": "8:0 riops=200 wiops=200"}},
		{"version 1", mounts1, map[string]string{"cpu/web/cpu.cfs_quota_us": "-1", "cpu/web/cpu.cfs_period_us": "100000",
			"blkio/web/blkio.throttle.read_iops_device": "", "blkio/web/blkio.throttle.write_iops_device": ""},
			map[string]string{"cpu/web/cpu.cfs_quota_us": "50000", "cpu/web/cpu.cfs_period_us": "100000",
				"blkio/web/blkio.throttle.read_iops_device": "8:0 200", "blkio/web/blkio.throttle.write_iops_device": "8:0 200"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fakeTree(t, c.mounts, c.before)
			l := New(f.Options)
			wanted := map[Target]float64{{Group: "/web", Resource: quell.CPU}: 0.5, {Group: "/web", Resource: quell.Disk}: 200}
			for range 2 { // the second time nothing differs
				wantNone(t, l.Apply(wanted))
				for name, text := range c.limit {
					f.want(name, text)
				}
			}
			wantRecords(t, f.Options, 2)
			list, err := Show(f.Options)
			if err != nil || len(list) != 2 || list[0].Group != "/web" || list[0].Resource != quell.CPU || list[0].Now != "50000 100000" ||
				list[0].Before != "max 100000" || list[0].Left || list[0].PID != os.Getpid() {
				t.Errorf("shown: %+v, %v", list, err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			for name, text := range c.before {
				if strings.Contains(name, "blkio") {
					text = "8:0 0"
				} else if strings.HasSuffix(name, "io.max") {
					text = "8:0 riops=max wiops=max"
				}
				f.want(name, text)
			}
			wantRecords(t, f.Options, 0)
		})
	}
}

// A limit is written only when it differs.
func TestNothingIsWrittenTwice(t *testing.T) {
	f := fakeTree(t, mounts2, map[string]string{"web/cpu.max": "max 100000"})
	l := New(f.Options)
	wantNone(t, l.Apply(cpuOf("/web", 0.5)))
	path := filepath.Join(f.Root, "sys/fs/cgroup/web/cpu.max")
	if err := os.Chmod(path, 0o444); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	wantNone(t, l.Apply(cpuOf("/web", 0.5)))
	if after, err := os.Stat(path); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("written again at %v, %v", after.ModTime(), err)
	}
}

func TestWhatSomebodyElseSetStays(t *testing.T) {
	f := fakeTree(t, mounts2, map[string]string{"web/cpu.max": "20000 100000"})
	l := New(f.Options)
	wantOne(t, l.Apply(cpuOf("/web", 0.5)), "already has a limit of 0.2 processors that somebody else set")
	f.want("web/cpu.max", "20000 100000")
	wantRecords(t, f.Options, 0)

	o := f.Options
	o.TakeOver = true
	l = New(o)
	wantNone(t, l.Apply(cpuOf("/web", 0.5)))
	f.want("web/cpu.max", "50000 100000")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	f.want("web/cpu.max", "20000 100000")
}

// If somebody changes a limit that is in force, that is theirs from then on.
func TestAChangeBySomebodyElseIsRespected(t *testing.T) {
	f := fakeTree(t, mounts2, map[string]string{"web/cpu.max": "max 100000"})
	l := New(f.Options)
	wantNone(t, l.Apply(cpuOf("/web", 0.5)))
	f.put("sys/fs/cgroup/web/cpu.max", "70000 100000")
	wantOne(t, l.Apply(cpuOf("/web", 0.6)), "somebody else changed it")
	f.want("web/cpu.max", "70000 100000")
	wantOne(t, l.Apply(cpuOf("/web", 0.6)), "somebody else set")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	f.want("web/cpu.max", "70000 100000")
	wantRecords(t, f.Options, 0)
}

// interrupted is a kind of which the first read after a write fails.
type interrupted struct {
	kind
	wrote bool
}

func (k *interrupted) write(group string, s setting) error {
	k.wrote = true
	return k.kind.write(group, s)
}

func (k *interrupted) read(group string) (setting, error) {
	if k.wrote {
		k.wrote = false
		return "", errors.New("it was interrupted")
	}
	return k.kind.read(group)
}

// A limit that was written and could not be read back is still this process's own, and is put back in the end.
func TestALimitThatIsNotReadBack(t *testing.T) {
	f := fakeTree(t, mounts2, map[string]string{"web/cpu.max": "max 100000"})
	l := New(f.Options)
	wantNone(t, l.Apply(cpuOf("/web", 0.5)))
	h := l.held[Target{Group: "/web", Resource: quell.CPU}]
	h.kind = &interrupted{kind: h.kind}
	wantOne(t, l.Apply(cpuOf("/web", 0.7)), "it was interrupted")
	wantNone(t, l.Apply(cpuOf("/web", 0.7)))
	f.want("web/cpu.max", "70000 100000")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	f.want("web/cpu.max", "max 100000")
	wantRecords(t, f.Options, 0)
}

func TestALimitHasOneOwner(t *testing.T) {
	f := fakeTree(t, mounts2, map[string]string{"web/cpu.max": "max 100000", "db/cpu.max": "max 100000"})
	first, second := New(f.Options), New(f.Options)
	wantNone(t, first.Apply(cpuOf("/web", 0.5)))
	o := f.Options
	o.TakeOver = true
	wantOne(t, New(o).Apply(cpuOf("/web", 0.3)), fmt.Sprintf("another process limits the cpu of /web (process %d)", os.Getpid()))
	wantNone(t, second.Apply(cpuOf("/db", 0.3)))
	if done, err := Restore(f.Options); err != nil || len(done) != 0 {
		t.Errorf("restored %v, %v although their owners run", done, err)
	}
	f.want("web/cpu.max", "50000 100000")
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Error(err)
	}
}

// What a killed owner left is put back by Restore, and only by it.
func TestAKilledOwnerLeavesARecord(t *testing.T) {
	f := fakeTree(t, mounts2, map[string]string{"web/cpu.max": "max 100000"})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+f.folder)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 100)
	n, err := out.Read(said)
	if err != nil || !strings.HasPrefix(string(said[:n]), "done map[]") {
		t.Errorf("the owner says %q, %v", said[:n], err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	f.want("web/cpu.max", "50000 100000")
	if list, err := Show(f.Options); err != nil || len(list) != 1 || !list[0].Left {
		t.Errorf("shown: %+v, %v", list, err)
	}
	o := f.Options
	o.TakeOver = true
	wantOne(t, New(o).Apply(cpuOf("/web", 0.3)), "run quell limits clear")
	done, err := Restore(f.Options)
	if err != nil || len(done) != 1 || done[0] != (Target{Group: "/web", Resource: quell.CPU}) {
		t.Errorf("restored %v, %v", done, err)
	}
	f.want("web/cpu.max", "max 100000")
	wantRecords(t, f.Options, 0)
	if done, err := Restore(f.Options); err != nil || len(done) != 0 {
		t.Errorf("a second time: %v, %v", done, err)
	}
}

func TestAGroupThatVanishesOrComesAgain(t *testing.T) {
	f := fakeTree(t, mounts2, map[string]string{"web/cpu.max": "max 100000"})
	l := New(f.Options)
	wantNone(t, l.Apply(cpuOf("/web", 0.5)))
	folder := filepath.Join(f.Root, "sys/fs/cgroup/web")
	if err := os.Rename(folder, folder+"-gone"); err != nil {
		t.Fatal(err)
	}
	wantOne(t, l.Apply(cpuOf("/web", 0.6)), "the group is gone")
	f.put("sys/fs/cgroup/web/cpu.max", "max 50000")
	wantNone(t, l.Apply(cpuOf("/web", 0.6)))
	f.want("web/cpu.max", "30000 50000")
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("a group that is gone: %v", err)
	}
	wantRecords(t, f.Options, 0)
}

func TestBadRecords(t *testing.T) {
	f := fakeTree(t, mounts2, map[string]string{"web/cpu.max": "50000 100000"})
	if err := os.MkdirAll(f.Records, 0o755); err != nil {
		t.Fatal(err)
	}
	target := Target{Group: "/web", Resource: quell.CPU}
	for _, c := range []struct {
		text  string
		stays bool
	}{
		{"", false}, {"{", true}, {"{}", true}, {`{"group":"/web","resource":"cpu"}`, true},
		{`{"group":"/web","resource":"x","before":"max 1"}`, true},
		{`{"group":"/web","resource":"cpu","before":"max 100000","folder":1}`, false},
	} {
		if err := os.WriteFile(pathOf(f.Records, target), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Restore(f.Options)
		if _, gone := os.Stat(pathOf(f.Records, target)); c.stays != (err != nil) || c.stays != (gone == nil) {
			t.Errorf("%q: %v, and the file: %v", c.text, err, gone)
		}
		if _, err := Show(f.Options); c.stays != (err != nil) {
			t.Errorf("%q: shown with %v", c.text, err)
		}
	}
	f.want("web/cpu.max", "50000 100000")
}

// A record that its owner is about to write is no broken one: nothing is limited yet.
func TestARecordThatIsBeingWritten(t *testing.T) {
	f := fakeTree(t, mounts2, map[string]string{"web/cpu.max": "max 100000"})
	if err := os.MkdirAll(f.Records, 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := hold(pathOf(f.Records, Target{Group: "/web", Resource: quell.CPU}), os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", `{"group":`} {
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if list, err := Show(f.Options); err != nil || len(list) != 0 {
			t.Errorf("with %q: %v, %v", text, list, err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Show(f.Options); err == nil {
		t.Error("a broken record of a process that has ended is not reported")
	}
}

func TestWhatCannotBeLimited(t *testing.T) {
	f := fakeTree(t, mounts2, map[string]string{"web/cpu.max": "max 100000"})
	for text, wanted := range map[string]map[Target]float64{
		"must be a positive number":   cpuOf("/web", 0),
		"no control group below":      cpuOf("/", 1),
		"no control group below the ": cpuOf("web/../..", 1),
		"the group is gone":           cpuOf("/db", 1),
		"memory cannot be limited":    {{Group: "/web", Resource: quell.Memory}: 1},
	} {
		wantOne(t, New(f.Options).Apply(wanted), text)
	}
	none := fakeTree(t, "1 1 0:1 / / rw - ext4 /dev/sda rw\n", nil)
	wantOne(t, New(none.Options).Apply(cpuOf("/web", 1)), "the kernel offers no control groups for processors")
	wantRecords(t, f.Options, 0)

	blocked := f.Options
	blocked.Records = filepath.Join(f.Root, "proc/self/mountinfo") // a file
	wantOne(t, New(blocked).Apply(cpuOf("/web", 1)), "making the folder for what was there before")
	f.want("web/cpu.max", "max 100000")
}

// Every number of processors becomes a setting that the kernel accepts, and that allows nearly as much.
func TestSettingsAreWhatTheKernelAccepts(t *testing.T) {
	c := &cpu{}
	rapid.Check(t, func(t *rapid.T) {
		processors := rapid.Float64Range(1e-6, 1e9).Draw(t, "processors")
		now := setting(rapid.SampledFrom([]string{"max 100000", "5000 10000", "max 1000000", "max 1000", "nonsense", ""}).Draw(t, "now"))
		next := c.to(processors, now)
		var quota, period int64
		_, err := fmt.Sscanf(string(next), "%d %d", &quota, &period)
		if err != nil || quota < leastQuota || period < 1000 || period > mostPeriod {
			t.Fatalf("%v after %q: %q", processors, now, next)
		}
		value, limited := c.value(next)
		if !limited || processors > 0.002 && processors < 1e6 && (value > 1.51*processors || value < 0.66*processors) {
			t.Fatalf("%v processors became %q", processors, next)
		}
		if again := c.to(processors, next); again != next {
			t.Fatalf("%q became %q without a change", next, again)
		}
	})
}

// group makes a control group on this machine, in every tree that limits something, and removes it at the end.
func group(t *testing.T) (name string, o Options) {
	t.Helper()
	need.Root(t)
	trees, err := cgroup.Find(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	name = fmt.Sprintf("/quell-test-limit-%d", os.Getpid())
	made := map[string]bool{}
	for _, controller := range []string{"cpu", "blkio"} {
		tree, ok := trees.Of(controller)
		folder := "/" + tree.Folder(name)
		if !ok || made[folder] {
			continue
		}
		made[folder] = true
		if err := os.MkdirAll(folder, 0o755); err != nil {
			need.Skip(t, "needs control groups that can be made: "+err.Error())
		}
		t.Cleanup(func() {
			if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		})
	}
	return name, Options{Records: filepath.Join(t.TempDir(), "records")}
}

func TestThisMachinesProcessors(t *testing.T) {
	name, o := group(t)
	k, err := o.filled().kind(Target{Resource: quell.CPU})
	if err != nil {
		need.Skip(t, err.Error())
	}
	before, err := k.read(name)
	if err != nil {
		need.Skip(t, err.Error())
	}
	l := New(o)
	for _, processors := range []float64{0.5, 1.25, 0.003, 0.0001, 7, 0.5} { // with periods that change
		wantNone(t, l.Apply(cpuOf(name, processors)))
		now, err := k.read(name)
		if value, limited := k.value(now); err != nil || !limited || value != max(processors, 0.001) {
			t.Errorf("%v processors became %q, %v", processors, now, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if after, err := k.read(name); err != nil || after != before {
		t.Errorf("%q was there, and now %q, %v", before, after, err)
	}
	wantNone(t, l.Apply(cpuOf(name, 0.5)))
	if err := os.Remove(folderOf(k, name)); err != nil {
		t.Fatal(err)
	}
	wantOne(t, l.Apply(cpuOf(name, 0.7)), "the group is gone")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	wantRecords(t, o, 0)
}

// Below a group with a quota, version 1 refuses a larger one. Nothing is left of the attempt.
func TestARefusedSettingLeavesNothing(t *testing.T) {
	name, o := group(t)
	k, err := o.filled().kind(Target{Resource: quell.CPU})
	if err != nil {
		need.Skip(t, err.Error())
	}
	old, ok := k.(*cpu)
	if !ok || old.unified {
		need.Skip(t, "needs control groups of version 1: version 2 accepts any quota")
	}
	child := name + "/child"
	if err := os.Mkdir(folderOf(k, child), 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(folderOf(k, child))
	above := New(o)
	wantNone(t, above.Apply(cpuOf(name, 0.5)))
	l := New(o)
	wantOne(t, l.Apply(cpuOf(child, 0.7)), "invalid argument")
	wantRecords(t, o, 1)
	wantNone(t, l.Apply(cpuOf(child, 0.004))) // with a longer period
	wantOne(t, l.Apply(cpuOf(child, 0.9)), "invalid argument")
	if now, err := k.read(child); err != nil || now != "1600 400000" {
		t.Errorf("after the refusal %q is in force, %v", now, err)
	}
	if err := errors.Join(l.Close(), above.Close()); err != nil {
		t.Error(err)
	}
}

// folderOf is where a group's files are.
func folderOf(k kind, group string) string {
	return k.(interface{ folder(string) string }).folder(group)
}

func must(s setting, _ error) setting { return s }

func TestThisMachinesDisk(t *testing.T) {
	name, o := group(t)
	k, err := o.filled().kind(Target{Resource: quell.Disk})
	if err != nil {
		need.Skip(t, err.Error())
	}
	before, err := k.read(name)
	if err != nil {
		need.Skip(t, err.Error())
	}
	l := New(o)
	for _, rate := range []float64{100, 250.4, 1e12} {
		wantNone(t, l.Apply(map[Target]float64{{Group: name, Resource: quell.Disk}: rate}))
	}
	wantNone(t, l.Apply(map[Target]float64{{Group: name, Resource: quell.Disk}: 50}))
	if value, limited := k.value(must(k.read(name))); !limited || value != 50 {
		t.Errorf("%v operations per second", value)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if after, err := k.read(name); err != nil || after != before {
		t.Errorf("%q was there, and now %q, %v", before, after, err)
	}
}

// The unit of a plan's limit says what is limited.
func TestTargetOf(t *testing.T) {
	for _, c := range []struct {
		limit quell.Limit
		want  string
	}{
		{quell.Limit{Resource: quell.CPU, Unit: "processors"}, "cpu of x"},
		{quell.Limit{Resource: quell.CPU, Unit: quell.WeightUnit}, "cpu weight of x"},
		{quell.Limit{Resource: quell.Network, Unit: "bit/s"}, "network of x"},
		{quell.Limit{Resource: quell.Network, Unit: quell.ReceivedUnit}, "network receiving of x"},
	} {
		if got := TargetOf("x", c.limit).String(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.limit, got, c.want)
		}
	}
}
