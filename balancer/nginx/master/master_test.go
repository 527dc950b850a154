package master

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

const patience = 15 * time.Second

// started runs an nginx with two workers, which ends with the test, and returns how to control it.
func started(t *testing.T) (m *Master, running *exec.Cmd) {
	t.Helper()
	program, dir := need.Program(t, "nginx"), t.TempDir()
	config, log := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "error.log")
	write(t, config, fmt.Sprintf("daemon off; worker_processes 2; pid %s/pid;\nevents {}\n", dir))
	running = exec.Command(program, "-c", config, "-e", log)
	running.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	m = &Master{PIDFile: filepath.Join(dir, "pid"), CheckBy: []string{program, "-t", "-q", "-c", config, "-e", log}, Longest: time.Minute}
	t.Cleanup(func() {
		_ = running.Process.Signal(syscall.SIGTERM)
		_ = running.Wait()
		signalAll(m.lastActive, syscall.SIGKILL) // what a killed master left
	})
	eventually(t, "two workers run", func() bool { active, _, err := m.Workers(); return err == nil && len(active) == 2 })
	return m, running
}

// signalAll sends a signal to those workers that still run.
func signalAll(workers []string, signal syscall.Signal) {
	for _, w := range workers {
		if pid, err := strconv.Atoi(w); err == nil && strings.HasPrefix(title(w), workerTitle) {
			_ = syscall.Kill(pid, signal)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// A reload is done when other workers take requests, by the signal or by a program. A program that does nothing is found out.
func TestReload(t *testing.T) {
	m, running := started(t)
	if err := m.Check(t.Context()); err != nil {
		t.Error(err)
	}
	for _, by := range [][]string{nil, {"kill", "-HUP", strconv.Itoa(running.Process.Pid)}} {
		m.ReloadBy = by
		before, _, err := m.Workers()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(m.Tell(t.Context()), m.Await(t.Context())); err != nil {
			t.Fatal(err)
		}
		after, _, err := m.Workers()
		if err != nil || len(after) == 0 || slices.ContainsFunc(after, func(w string) bool { return slices.Contains(before, w) }) {
			t.Errorf("by %v: workers %v, then %v, %v", by, before, after, err)
		}
	}
	m.CheckBy, m.ReloadBy = []string{"false"}, []string{"false"}
	if m.Check(t.Context()) == nil || m.Tell(t.Context()) == nil {
		t.Error("programs that fail are no error")
	}
}

// A killed master's workers are named. A number that another process has got is not nginx's, and that process gets no signal.
func TestTheMasterIsGone(t *testing.T) {
	m, running := started(t)
	workers, _, err := m.Workers()
	if err != nil {
		t.Fatal(err)
	}
	if err := running.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = running.Wait()
	if _, _, err := m.Workers(); err == nil || !strings.Contains(err.Error(), "kill -QUIT "+strings.Join(workers, " ")) {
		t.Errorf("workers %v are left: %v", workers, err)
	}
	signalAll(workers, syscall.SIGQUIT)
	eventually(t, "its workers have ended", func() bool {
		return !slices.ContainsFunc(workers, func(w string) bool { return title(w) != "" })
	})
	for text, want := range map[string]string{
		strconv.Itoa(running.Process.Pid): "is no master process of nginx",
		strconv.Itoa(os.Getpid()):         "is no master process of nginx",
		"":                                "has no number",
		"-1":                              "has no number",
	} {
		write(t, m.PIDFile, text)
		err := m.Tell(t.Context())
		if err == nil || !strings.Contains(err.Error(), "nginx does not run") || !strings.Contains(err.Error(), want) {
			t.Errorf("the number %q: %v", text, err)
		}
	}
	if err := os.Remove(m.PIDFile); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Workers(); err == nil || !strings.Contains(err.Error(), "there is no "+m.PIDFile) {
		t.Errorf("without the file: %v", err)
	}
}

func TestTooSoon(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		every, since        time.Duration
		urgent, again, wait bool
	}{
		{30 * time.Second, 31 * time.Second, false, false, false},
		{30 * time.Second, 29 * time.Second, false, false, true},
		{30 * time.Second, 2 * time.Second, true, false, false},
		{30 * time.Second, time.Second / 2, true, false, true},
		{time.Second / 10, time.Second / 5, true, false, false},
		{30 * time.Second, 9 * time.Second, false, true, true},
		{30 * time.Second, 11 * time.Second, false, true, false},
		{30 * time.Second, 9 * time.Second, true, true, false},
		{time.Second, 2 * time.Second, false, true, false},
	} {
		m := &Master{Every: c.every, reloaded: now.Add(-c.since)}
		if wait, why := m.TooSoon(c.urgent, c.again, now); wait != c.wait || why != nil {
			t.Errorf("%+v: %v, %v", c, wait, why)
		}
	}
}
