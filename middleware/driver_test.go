package middleware

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestAParameterIsSetReadBackAndRestored(t *testing.T) {
	r := newToy(t)
	if err := os.Chmod(r.config, 0o640); err != nil {
		t.Fatal(err)
	}
	d := r.open()
	r.inForce(d, map[string]float64{"workers": 10, "other": 5})
	r.has(original, false)
	r.set(d, "workers", 20)
	r.has(with(20), true)
	if r.force() != with(20) {
		t.Errorf("in force: %q", r.force())
	}
	r.set(d, "other", 7)
	r.inForce(d, map[string]float64{"workers": 20, "other": 7})
	before := r.reloads()
	r.set(d, "other", 7)
	if r.reloads() != before {
		t.Error("the same value again made the server reload")
	}
	if info, err := os.Stat(r.config); err != nil || info.Mode() != 0o640 {
		t.Errorf("permissions %v, %v", info.Mode(), err)
	}
	r.close(d)
	r.has(original, false)
	if r.force() != original {
		t.Errorf("in force after the end: %q", r.force())
	}
	r.close(r.open())
	if n := r.reloads(); n != before+1 {
		t.Errorf("an agent that changed nothing made %d reloads", n-before-1)
	}
}

func TestWhatIsRefused(t *testing.T) {
	r := newToy(t)
	d := r.open()
	for _, c := range []struct {
		name  string
		value float64
		want  string
	}{
		{"workers", 101, "101 is outside the bounds in this agent's configuration, 1 to 100"},
		{"workers", 0, "0 is outside"}, {"workers", -5, "-5 is outside"}, {"workers", math.NaN(), "NaN is outside"},
		{"workers", math.Inf(1), "+Inf is outside"}, {"workers", 1e300, "1e+300 is outside"}, {"workers", 20.5, "20.5 is no whole number"},
		{"threads", 5, "does not list threads; it lists workers, other"}, {"", 5, "does not list"},
		{"workers", 66, "the server's check does not accept the new file, so nothing is changed: running sh: exit status 1; it said: workers 66"},
		{"workers", 77, "the server did not read the new file, so the old one is back and in force: running sh: exit status 1"},
	} {
		if err := d.Set(t.Context(), c.name, c.value); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %g: %v, want %s", c.name, c.value, err, c.want)
		}
		r.has(original, false)
	}
	if r.force() != original || r.reloads() != 2 {
		t.Errorf("in force after %d reloads: %q", r.reloads(), r.force())
	}
	r.set(d, "workers", 20)
	for _, v := range []float64{66, 77} { // the same while the file is changed
		if err := d.Set(t.Context(), "workers", v); err == nil {
			t.Errorf("%g was set", v)
		}
		r.has(with(20), true)
		r.inForce(d, map[string]float64{"workers": 20, "other": 5})
	}
	if r.force() != with(20) {
		t.Errorf("in force: %q", r.force())
	}
	r.close(d)
	r.has(original, false)
}

// TestAServerThatIsNotRunning checks that nothing is changed, and nothing reported as being in force.
func TestAServerThatIsNotRunning(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ pid, want string }{
		"no file":         {"", "toy is not running: there is no"},
		"no number":       {"x\n", "holds no process id"},
		"init":            {"1\n", "holds no process id"},
		"a negative one":  {"-1\n", "holds no process id"},
		"one that is not": {strconv.Itoa(ended.Process.Pid), "is not there"},
		"another program": {strconv.Itoa(os.Getpid()), "names process"},
	} {
		r := newToy(t)
		r.server.Settings.PID = filepath.Join(r.dir, "pid")
		r.server.Settings.server.programs = []string{"toyd"}
		if c.pid != "" {
			if err := os.WriteFile(r.server.Settings.PID, []byte(c.pid), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d := r.open()
		_, err := d.InForce(t.Context())
		for _, err := range []error{d.Set(t.Context(), "workers", 20), err} {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
		}
		r.has(original, false)
		r.close(d)
	}
}

// TestAServerThatReadsItsFiles is about one whose process file is away for a moment, as php-fpm's is after a reload.
func TestAServerThatReadsItsFiles(t *testing.T) {
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = sleeper.Process.Kill(), sleeper.Wait() })
	r := newToy(t)
	r.server.Settings.PID = filepath.Join(r.dir, "pid")
	d := r.open()
	back := make(chan error, 1)
	time.AfterFunc(5*watchEvery, func() {
		back <- os.WriteFile(r.server.Settings.PID, []byte(strconv.Itoa(sleeper.Process.Pid)), 0o600)
	})
	if err := errors.Join(d.Set(t.Context(), "workers", 20), <-back); err != nil {
		t.Error(err)
	}
	r.has(with(20), true)
	r.close(d)
}

// TestAServerThatEnds is about one whose reload is said to succeed, and which ends nevertheless.
func TestAServerThatEnds(t *testing.T) {
	r := newToy(t)
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	r.server.Settings.PID = filepath.Join(r.dir, "pid")
	r.server.Settings.Reload = []string{"kill", strconv.Itoa(sleeper.Process.Pid)}
	if err := os.WriteFile(r.server.Settings.PID, []byte(strconv.Itoa(sleeper.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	d := r.open()
	if err := d.Set(t.Context(), "workers", 20); err == nil || !strings.Contains(err.Error(), "after the reload toy is not running") {
		t.Errorf("%v", err)
	}
	r.has(original, true) // perhaps another process is starting: it will be told
	r.close(d)
	r.has(original, false)
}

// TestTheOriginalComesBackToAStoppedServer checks that the file is restored although nobody can read it.
func TestTheOriginalComesBackToAStoppedServer(t *testing.T) {
	r := newToy(t)
	d := r.open()
	r.set(d, "workers", 20)
	d.PID = filepath.Join(r.dir, "gone")
	r.close(d)
	r.has(original, false)
	if r.force() != with(20) {
		t.Error("a server that is not running was reloaded")
	}
}

// A parameter that was outside its bounds before the agent came goes back there, and then the file is the operator's again: the agent's
// end changes nothing, and a person may edit it.
func TestAnOriginalComesBack(t *testing.T) {
	r := newToy(t)
	r.server.Settings.Parameters[0].Min = 12
	d := r.open()
	if err := d.Set(t.Context(), "workers", 10); err != nil { // it is in force
		t.Error(err)
	}
	r.set(d, "workers", 20)
	r.set(d, "other", 7)
	r.set(d, "workers", 10)
	r.has(strings.Replace(original, "other 5", "other 7", 1), true)
	if err := d.Set(t.Context(), "workers", 11); err == nil || !strings.Contains(err.Error(), "11 is outside the bounds") {
		t.Errorf("%v", err)
	}
	r.set(d, "other", 5)
	r.has(original, false)
	before := r.reloads()
	r.write(with(15))
	r.set(d, "workers", 30)
	r.has(with(30), true)
	r.close(d)
	r.has(with(15), false)
	if r.reloads() != before+2 {
		t.Errorf("%d reloads", r.reloads()-before)
	}
}
