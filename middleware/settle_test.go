package middleware

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sleeper is the process of a toy server that does nothing but run.
func (r *toy) sleeper() *exec.Cmd {
	r.t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // the test may have ended it
	pid := filepath.Join(r.dir, "pid")
	if r.server.Settings.PID == "" {
		r.server.Settings.PID = pid
	}
	if err := os.WriteFile(pid, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return cmd
}

func end(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}

// eventually waits until a condition holds.
func (r *toy) eventually(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not within a minute; log: %s", what, &r.log)
		}
	}
}

// watched opens the toy with a trial of the given length.
func (r *toy) watched(settle time.Duration) *Driver {
	d := r.open()
	d.settleTime, d.settleEvery = settle, time.Millisecond
	return d
}

// TestAServerThatEndsLate is about a server that ends only some time after its reload, like a php-fpm that waits for its children first.
func TestAServerThatEndsLate(t *testing.T) {
	r := newToy(t)
	server := r.sleeper()
	d := r.watched(time.Hour)
	r.set(d, "workers", 20)
	r.set(d, "other", 7)
	r.set(d, "workers", 30)
	reloads := r.reloads()
	end(t, server)
	const fate = "it ended after workers was set to 30, so the old file is back"
	r.eventually("the end is noticed", func() bool {
		_, err := d.InForce(t.Context())
		return err != nil && strings.Contains(err.Error(), "toy is not running") && strings.Contains(err.Error(), fate)
	})
	if err := d.Set(t.Context(), "workers", 50); err == nil || !strings.Contains(err.Error(), fate) {
		t.Errorf("%v", err)
	}
	r.has(original, false)

	r.sleeper() // somebody starts it again
	r.eventually("the server has read the old file", func() bool { return r.reloads() == reloads+1 && r.force() == original })
	for name, value := range map[string]float64{"workers": 30, "other": 7} {
		if err := d.Set(t.Context(), name, value); err == nil || !strings.Contains(err.Error(), "is not set again until the agent is restarted") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.set(d, "workers", 40)
	r.inForce(d, map[string]float64{"workers": 40, "other": 5})
	r.close(d)
	r.has(original, false)
	if n := strings.Count(r.log.String(), "the server ended after a change"); n != 1 {
		t.Errorf("reported %d times: %s", n, &r.log)
	}
}

// TestAServerThatEndsLaterStill is about a server that ends when its last change has settled: the change is not to blame.
func TestAServerThatEndsLaterStill(t *testing.T) {
	r := newToy(t)
	server := r.sleeper()
	d := r.watched(time.Nanosecond)
	r.set(d, "workers", 20)
	d.watching.Wait()
	end(t, server)
	r.has(with(20), true)
	if _, err := d.InForce(t.Context()); err == nil || strings.Contains(err.Error(), "the old file is back") {
		t.Errorf("%v", err)
	}

	server = r.sleeper() // a change during which the settled one stays
	d.settleTime = time.Hour
	r.set(d, "workers", 30)
	end(t, server)
	r.eventually("the settled file is back", func() bool { return r.read(r.config) == with(20) })
	r.close(d)
	r.has(original, false)
}

// TestAnEditOfAServerThatEnds checks that a person's edit stays.
func TestAnEditOfAServerThatEnds(t *testing.T) {
	r := newToy(t)
	server := r.sleeper()
	d := r.watched(time.Hour)
	r.set(d, "workers", 20)
	r.write(with(21))
	end(t, server)
	r.eventually("the end is noticed", func() bool {
		_, err := d.InForce(t.Context())
		return err != nil && strings.Contains(err.Error(), "the old file could not be put back") &&
			strings.Contains(err.Error(), "somebody edited it")
	})
	r.close(d)
	r.has(with(21), false)
}

// TestAFileOnTrialIsRestoredAtTheEnd closes the driver during a trial.
func TestAFileOnTrialIsRestoredAtTheEnd(t *testing.T) {
	r := newToy(t)
	r.sleeper()
	d := r.watched(time.Hour)
	r.set(d, "workers", 20)
	r.close(d)
	r.has(original, false)
	if r.force() != original {
		t.Errorf("in force: %q", r.force())
	}
}

// TestACheckThatDoesNotEnd checks that what is in force can be read meanwhile.
func TestACheckThatDoesNotEnd(t *testing.T) {
	r := newToy(t)
	fifo := filepath.Join(r.dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r.server.Settings.Check = []string{"sh", "-c", `cat "$0"`, fifo, "{file}"}
	d := r.open()
	done := make(chan error)
	go func() { done <- d.Set(t.Context(), "workers", 20) }()
	open, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits until the check reads it
	if err != nil {
		t.Fatal(err)
	}
	r.inForce(d, map[string]float64{"workers": 10, "other": 5})
	if err := open.Close(); err != nil { // only now the check ends; if InForce had waited for it, the check would have been killed
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	r.inForce(d, map[string]float64{"workers": 20, "other": 5})
	r.close(d)
}

// TestAServerThatWritesItsPIDFileAnew is about the moment in which the file is missing although the server runs.
func TestAServerThatWritesItsPIDFileAnew(t *testing.T) {
	r := newToy(t)
	r.sleeper()
	d := r.open()
	d.settleTime, d.settleEvery = time.Hour, time.Hour
	r.set(d, "workers", 20)
	if err := os.Remove(r.server.Settings.PID); err != nil {
		t.Fatal(err)
	}
	if d.look() {
		t.Error("the trial has ended")
	}
	r.has(with(20), true)
	r.close(d)
	r.has(original, false)
}

// A server that ends after its original file came back, because somebody restarts it, finds the original file, and no value is refused.
func TestAServerThatIsRestartedWithItsOriginal(t *testing.T) {
	r := newToy(t)
	server := r.sleeper()
	d := r.watched(time.Hour)
	r.set(d, "workers", 20)
	r.set(d, "workers", 10)
	end(t, server)
	over := make(chan struct{})
	go func() { d.watching.Wait(); close(over) }()
	select {
	case <-over: // there is nothing on trial
	case <-time.After(time.Minute):
		t.Fatal("the original is on trial")
	}
	r.has(original, false)
	r.sleeper()
	r.set(d, "workers", 20)
	r.set(d, "workers", 10)
	r.close(d)
	r.has(original, false)
}
