package process

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

func TestKilledControllerLosesNothing(t *testing.T) {
	dir := t.TempDir()
	killController(t, dir, "serve")
	d := open(t, options(dir, "serve"))
	if n := countState(d, quell.Ready); n != 2 {
		t.Fatalf("%d instances are ready right after adoption: %+v", n, members(t, d))
	}
	for _, m := range members(t, d) {
		get(t, m.Address, "/")
	}
	if ids := start(t, d, 1); ids[0] != "i3" {
		t.Errorf("the next id is %s", ids[0])
	}
	old := pids(d)
	if err := d.Stop(t.Context(), []string{"i1"}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for id, pid := range old {
		if !isDead(pid) {
			t.Errorf("%s (process %d) is an orphan", id, pid)
		}
	}
}

// killController runs a controller in another process until its two instances are ready, and kills it.
func killController(t *testing.T, dir, mode string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], dir, mode)
	cmd.Env = append(os.Environ(), roleEnv+"=controller", quickExit)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endListed(dir) })
	line, err := bufio.NewReader(out).ReadString('\n')
	cmd.Process.Kill()
	cmd.Wait()
	if line != "ready\n" {
		t.Fatalf("the controller said %q, %v", line, err)
	}
}

// endListed kills the processes that instances.json lists, in case the test failed before they were adopted.
func endListed(dir string) {
	f := &folder{dir: dir}
	l, _, err := f.load()
	if err != nil {
		return
	}
	for _, r := range l.Instances {
		if alive, _ := r.alive(); alive {
			syscall.Kill(-r.PID, syscall.SIGKILL)
		}
	}
}

func TestKeptInstancesAreAdoptedAndWatched(t *testing.T) {
	dir := t.TempDir()
	first := open(t, options(dir, "serve"))
	startReady(t, first, 2)
	if err := first.Close(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	d := open(t, options(dir, "serve"))
	m := members(t, d)
	crash(m[0].Address)
	eventually(t, "the crash of an adopted instance noticed", func() bool { return members(t, d)[0].State == quell.Failed })
	if s := members(t, d)[1].State; s != quell.Ready {
		t.Errorf("the other is %s", s)
	}
}

func TestInterruptedStopIsFinishedByTheNext(t *testing.T) {
	dir := t.TempDir()
	o := options(dir, "stubborn")
	o.Drain = time.Hour
	first := open(t, o)
	ids := startReady(t, first, 1)
	pid := pids(first)[ids[0]]
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := first.Stop(over, ids); !errors.Is(err, context.Canceled) {
		t.Fatalf("Stop = %v", err)
	}
	if err := first.Close(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if isDead(pid) {
		t.Fatal("Close with keep ended the instance")
	}
	o.Drain = 50 * time.Millisecond
	d := open(t, o)
	eventually(t, "the stop finished", func() bool { return len(members(t, d)) == 0 })
	if !isDead(pid) {
		t.Error("forgotten, yet running")
	}
}

func TestReusedPidIsNeverSignalled(t *testing.T) {
	stranger := startStranger(t)
	dir := t.TempDir()
	started := time.Now().Add(-time.Hour)
	exited := started.Add(time.Minute)
	writeLedger(t, dir, exited,
		&record{ID: "i1", PID: stranger.Process.Pid, ProcessStart: "boot/1", Slot: 1, Port: 8001, Started: started},
		&record{ID: "i2", PID: stranger.Process.Pid, ProcessStart: "boot/1", Slot: 2, Port: 8002, Started: started, Stopping: true},
		&record{ID: "i3", Slot: 3, Port: 8003, Started: exited}, // its start was interrupted before the fork
	)
	d := open(t, options(dir, "serve"))
	m := members(t, d)
	if len(m) != 2 || m[0].State != quell.Failed || m[1].State != quell.Failed {
		t.Fatalf("members = %+v", m)
	}
	if got := m[0].Exited.Sub(m[0].Started); got < 59*time.Second || got > 61*time.Second {
		t.Errorf("i1 ran for %v; it was last seen a minute after its start", got)
	}
	if err := d.Stop(t.Context(), []string{"i1", "i3"}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	checkUnharmed(t, stranger)
}

// startStranger starts a process that is not an instance, in its own process group.
func startStranger(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "mute")
	cmd.Env = append(os.Environ(), roleEnv+"=instance")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// checkUnharmed ends the process with a signal that no driver sends. If a driver had sent another signal before, the process would have
// ended because of that one, and the test fails.
func checkUnharmed(t *testing.T, stranger *exec.Cmd) {
	t.Helper()
	stranger.Process.Signal(syscall.SIGINT)
	if err := stranger.Wait(); err == nil || err.Error() != "signal: interrupt" {
		t.Errorf("the stranger was signalled: it ended with %v", err)
	}
}

func writeLedger(t *testing.T, dir string, seen time.Time, records ...*record) {
	t.Helper()
	l := newLedger()
	l.Next += len(records)
	l.Instances = records
	f := &folder{dir: dir}
	if err := f.save(l, seen); err != nil {
		t.Fatal(err)
	}
}

func TestSignalSparesAStranger(t *testing.T) {
	stranger := startStranger(t)
	in := newRunning(&record{ID: "i1", PID: stranger.Process.Pid, ProcessStart: "boot/1"}, nil)
	in.signal(syscall.SIGKILL)
	if !in.vanished() {
		t.Error("an instance whose pid is a stranger's has vanished")
	}
	checkUnharmed(t, stranger)
}

func TestCorruptListStopsNew(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "instances.json")
	for _, text := range []string{"", "{", "[]", `{"format":"quell-instances/2","next":1}`} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := New(options(dir, "serve"))
		var mistake *quell.UserError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "still be running") {
			t.Errorf("New with %q = %v", text, err)
		}
		if left, _ := os.ReadFile(path); string(left) != text {
			t.Errorf("the list was changed from %q to %q", text, left)
		}
	}
}

// answering listens on a port and answers every GET with the status.
func answering(t *testing.T, status int) int {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	t.Cleanup(s.Close)
	return portOf(t, s.Listener)
}
