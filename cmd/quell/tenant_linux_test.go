package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/cgroup"
	"github.com/quellhq/quell/internal/need"
)

// needGroups needs control groups that can be made.
func needGroups(t *testing.T) {
	t.Helper()
	need.Root(t)
	made, err := cgroup.Make(fmt.Sprintf("%s/test-%d", tenantsGroup, os.Getpid()))
	if err != nil {
		need.Skip(t, err.Error())
	}
	if err := made.Remove(); err != nil {
		t.Fatal(err)
	}
}

// leftOf lists the folders of a group that are still there.
func leftOf(t *testing.T, name string) (left []string) {
	t.Helper()
	trees, err := cgroup.Find(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	for _, controller := range []string{"cpu", "cpuacct", "blkio"} {
		tree, ok := trees.Of(controller)
		if _, err := os.Stat("/" + tree.Folder(tenantsGroup+"/"+name)); ok && err == nil {
			left = append(left, controller)
		}
	}
	return left
}

// The program runs in its group, and its exit status is passed on. What it leaves is ended, and the group is removed.
func TestRunInAGroup(t *testing.T) {
	needGroups(t)
	for _, c := range []struct {
		script string
		status int
		out    string
	}{
		{"grep cpuacct: /proc/self/cgroup || cat /proc/self/cgroup", 0, tenantsGroup + "/run-test"},
		{"exit 7", 7, ""},
		{"kill -KILL $$", 128 + 9, ""},
		{"sleep 1000 & trap '' TERM; (trap '' TERM; sleep 1000) & for i in $(seq 100); do sleep 1000 & done; echo left", 0, "left"},
		{`for f in $(find /sys/fs/cgroup -type d -path "*/quell/$0"); do mkdir -p $f/a/b; (echo 0 > $f/a/b/cgroup.procs; sleep 1000 &); done
			exit 4`, 4, ""}, // groups below its own
	} {
		name := fmt.Sprintf("run-test-%d", os.Getpid())
		out, err := exec.Command("quell", "run", "--name", name, "--", "sh", "-c", c.script, name).CombinedOutput()
		status := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if status != c.status || !strings.Contains(string(out), c.out) {
			t.Errorf("%s: status %d, want %d: %s", c.script, status, c.status, out)
		}
		if left := leftOf(t, name); len(left) > 0 {
			t.Errorf("%s: the group is left in %v", c.script, left)
		}
	}
}

// A program that the kernel does not start has the exit status of shells and env, and leaves no group.
func TestRunOfWhatDoesNotStart(t *testing.T) {
	needGroups(t)
	for content, want := range map[string]int{"#!/no/such/interpreter\n": 127, "\x00\x01 is no program": 126} {
		name, path := fmt.Sprintf("not-started-%d", os.Getpid()), filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("quell", "run", "--name", name, "--", path).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != want || !strings.Contains(string(out), path) {
			t.Errorf("%q: %v, want status %d: %s", content, err, want, out)
		}
		if left := leftOf(t, name); len(left) > 0 {
			t.Errorf("%q: the group is left in %v", content, left)
		}
	}
}

// Signals reach the program.
func TestRunPassesSignals(t *testing.T) {
	needGroups(t)
	name, ready := fmt.Sprintf("signals-%d", os.Getpid()), filepath.Join(t.TempDir(), "ready")
	cmd := exec.Command("quell", "run", "--name", name, "--", "sh", "-c", "trap 'exit 5' TERM; echo > "+ready+"; while :; do sleep 0.01; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // it may have ended
	await(t, "the program starts", func() bool {
		_, err := os.Stat(ready)
		return err == nil
	})
	if again, err := exec.Command("quell", "run", "--name", name, "--", "true").CombinedOutput(); err == nil ||
		!strings.Contains(string(again), "runs already") {
		t.Errorf("a second program of this name: %s, %v", again, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 5 {
		t.Errorf("ended with %v", err)
	}
	if left := leftOf(t, name); len(left) > 0 {
		t.Errorf("the group is left in %v", left)
	}
}

// If quell run is killed, the kernel kills its program. What that had started is ended by the next quell run.
func TestRunKilled(t *testing.T) {
	needGroups(t)
	name, ready := fmt.Sprintf("killed-%d", os.Getpid()), filepath.Join(t.TempDir(), "ready")
	cmd := exec.Command("quell", "run", "--name", name, "--", "sh", "-c", "sleep 1000 & echo $$ $! > "+ready+".new; mv "+ready+".new "+ready+
		"; wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // it may have ended
	var program, child int
	await(t, "the program starts", func() bool {
		text, err := os.ReadFile(ready)
		_, wrong := fmt.Sscan(string(text), &program, &child)
		return err == nil && wrong == nil
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	await(t, "the program is killed", func() bool { return hasEnded(program) })
	if hasEnded(child) {
		t.Error("what the program had started has ended, too: this test shows nothing")
	}
	if out, err := exec.Command("quell", "run", "--", "true").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("the next quell run: %v\n%s", err, out)
	}
	if !hasEnded(child) {
		t.Errorf("process %d still runs", child)
	}
	if left := leftOf(t, name); len(left) > 0 {
		t.Errorf("the group is left in %v", left)
	}
	if left, err := filepath.Glob(string(marksOf()) + "/" + name); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// hasEnded returns whether a process has ended. One that nobody waits for (a zombie) has.
func hasEnded(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ")
	return err != nil || strings.HasPrefix(after, "Z")
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
