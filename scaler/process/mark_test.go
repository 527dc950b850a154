package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

func onLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("other processes' environments can be read on Linux only")
	}
}

// endMarked ends all processes with the mark of a folder, in case the test failed before they were adopted.
func endMarked(t *testing.T, dir string) {
	t.Cleanup(func() {
		found, err := findMarked(dir)
		if err != nil {
			t.Error(err)
		}
		for _, m := range found {
			syscall.Kill(m.PID, syscall.SIGKILL)
		}
	})
}

// If the list is lost while the controller does not run, the instances are found by their marks.
func TestALostListIsMadeAgain(t *testing.T) {
	onLinux(t)
	dir := t.TempDir()
	endMarked(t, dir)
	killController(t, dir, "serve")
	l, _, err := (&folder{dir: dir}).load()
	if err != nil || len(l.Instances) != 2 {
		t.Fatalf("%+v, %v", l, err)
	}
	if err := os.Remove(filepath.Join(dir, "instances.json")); err != nil {
		t.Fatal(err)
	}
	d := open(t, options(dir, "serve"))
	if n := countState(d, quell.Ready); n != 2 {
		t.Fatalf("%d instances are ready: %+v", n, members(t, d))
	}
	for i, m := range members(t, d) {
		if was := l.Instances[i]; m.ID != was.ID || m.Address != was.Address || m.Started.Sub(was.Started).Abs() > time.Minute ||
			pids(d)[m.ID] != was.PID {
			t.Errorf("%+v, was %+v", m, was)
		}
	}
	if ids := start(t, d, 1); ids[0] != "i3" {
		t.Errorf("the next id is %s", ids[0])
	}
	if err := d.Report(); err != nil {
		t.Error(err)
	}
}

// The record was reserved but has no pid in it, because the controller was killed right after the fork.
func TestAStartThatWasNotNoted(t *testing.T) {
	onLinux(t)
	dir := t.TempDir()
	endMarked(t, dir)
	killController(t, dir, "serve")
	f := &folder{dir: dir}
	l, _, err := f.load()
	if err != nil {
		t.Fatal(err)
	}
	pid := l.Instances[1].PID
	l.Instances[1].PID, l.Instances[1].ProcessStart = 0, ""
	if err := f.save(l, time.Now()); err != nil {
		t.Fatal(err)
	}
	d := open(t, options(dir, "serve"))
	if n := countState(d, quell.Ready); n != 2 || pids(d)["i2"] != pid {
		t.Errorf("%d are ready, %v", n, pids(d))
	}
}

// A process that only has the mark, such as a shell that an instance left behind, is reported and left alone.
func TestWhatCannotBeAdoptedIsReported(t *testing.T) {
	onLinux(t)
	dir := t.TempDir()
	own, err := marks(dir, &record{ID: "i7", Slot: 1, Port: 1, Address: "127.0.0.1:1", Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "60")
	cmd.Env = append(os.Environ(), own...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	eventually(t, "the mark to be readable", func() bool { // right after an exec the kernel shows no environment yet
		found, err := findMarked(dir)
		return err == nil && len(found) == 1
	})
	d := open(t, options(dir, "serve"))
	if m := members(t, d); len(m) > 0 {
		t.Errorf("adopted %+v", m)
	}
	if err := d.Report(); err == nil || !strings.Contains(err.Error(), "instance i7") ||
		!strings.Contains(err.Error(), "none of its processes listens on port 1") {
		t.Errorf("reported: %v", err)
	}
	if isDead(cmd.Process.Pid) {
		t.Error("it was ended")
	}
	if ids := start(t, d, 1); ids[0] != "i8" {
		t.Errorf("the next id is %s", ids[0])
	}
	cmd.Process.Kill()
	cmd.Wait()
	if err := d.seekAgain(); err != nil {
		t.Fatal(err)
	}
	if err := d.Report(); err != nil {
		t.Errorf("it has ended: %v", err)
	}
}

func TestClaim(t *testing.T) {
	now := time.Now()
	o := orphan{record: record{ID: "i2", PID: 9, ProcessStart: "x", Slot: 2, Port: 80, Started: now}, listens: true}
	for name, c := range map[string]struct {
		change func(*ledger, *orphan)
		want   string
	}{
		"free":               {func(*ledger, *orphan) {}, ""},
		"silent":             {func(_ *ledger, o *orphan) { o.listens = false }, "none of its processes listens on port 80"},
		"its id is taken":    {func(l *ledger, o *orphan) { o.ID = "i1" }, "another instance has its id"},
		"its slot is taken":  {func(l *ledger, o *orphan) { o.Slot = 1 }, "another instance has its slot, 1"},
		"too high a slot":    {func(l *ledger, o *orphan) { o.Slot = 5 }, "there are 4 slots, and it has number 5"},
		"a slot of the dead": {func(l *ledger, o *orphan) { o.Slot, l.Instances[0].Exited = 1, &now }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l, o := newLedger(), o
			l.Instances = append(l.Instances, &record{ID: "i1", PID: 8, Slot: 1, Port: 79, Started: now.Add(-time.Hour)})
			c.change(l, &o)
			r, why := l.claim(o, 4)
			if why != c.want || (r == nil) != (why != "") {
				t.Errorf("%+v, %q; want %q", r, why, c.want)
			}
		})
	}
}

// An instance is distinguished from processes that it started, which have the same mark.
func TestOrphansAreLeaders(t *testing.T) {
	at := record{ID: "i1", Port: 80, Slot: 1, Started: time.Now()}
	of := func(pid int) record { r := at; r.PID = pid; return r }
	got := orphansOf([]marked{
		{record: of(10), parent: 1, group: 10},
		{record: of(11), parent: 10, group: 10, listens: true}, // a worker
		{record: of(12), parent: 10, group: 12},                // a shell in its own group
	})
	if len(got) != 1 || got[0].PID != 10 || !got[0].listens {
		t.Errorf("%+v", got)
	}
}
