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

// Signals reach the program.
func TestRunPassesSignals(t *testing.T) {
	needGroups(t)
	name, ready := fmt.Sprintf("signals-%d", os.Getpid()), filepath.Join(t.TempDir(), "ready")
	cmd := exec.Command("quell", "run", "--name", name, "--", "sh", "-c", "trap 'exit 5' TERM; echo > "+ready+"; while :; do sleep 0.01; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // it may have ended
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the program does not start")
		}
	}
	if again, err := exec.Command("quell", "run", "--name", name, "--", "true").CombinedOutput(); err == nil ||
		!strings.Contains(string(again), "file exists") {
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
