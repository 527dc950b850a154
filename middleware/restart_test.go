package middleware

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// signalled makes the toy a server that reads its file when it starts and at USR1. has starts another process of it.
func (r *toy) signalled() (start func() *exec.Cmd) {
	r.t.Helper()
	s := r.server.Settings
	kind := *s.server
	kind.signal = syscall.SIGUSR1
	s.server, s.Reload, s.PID = &kind, nil, filepath.Join(r.dir, "pid")
	const script = `trap 'cat "$0" > "$1/force"' USR1; cat "$0" > "$1/force"; echo $$ > "$1/ready"; while :; do sleep 0.01; done`
	return func() *exec.Cmd {
		r.t.Helper()
		cmd := exec.Command("sh", "-c", script, r.config, r.dir)
		if err := cmd.Start(); err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // the test may have ended it
		pid := strconv.Itoa(cmd.Process.Pid)
		r.eventually("the server is ready", func() bool {
			data, err := os.ReadFile(filepath.Join(r.dir, "ready"))
			return err == nil && string(data) == pid+"\n"
		})
		if err := os.WriteFile(s.PID, []byte(pid), 0o600); err != nil {
			r.t.Fatal(err)
		}
		return cmd
	}
}

// TestAServerThatIsRestartedDuringItsReload is about a process that starts with the new file while the old process is still awaited: the
// wait ends, and the undo is for the new process.
func TestAServerThatIsRestartedDuringItsReload(t *testing.T) {
	r := newToy(t)
	start := r.signalled()
	old := start()
	restarted, generation := false, 0
	r.server.Settings.server.workers = func(pid int) []string {
		switch {
		case pid != old.Process.Pid:
			generation++ // always new ones
			return []string{strconv.Itoa(generation)}
		case restarted:
			t.Error("the workers of a process that has ended are awaited")
		case r.force() == with(20): // it has read the new file, and its new workers are awaited
			end(t, old)
			start()
			restarted = true
		}
		return []string{"the old one"}
	}
	d := r.open()
	err := d.Set(t.Context(), "workers", 20)
	if err == nil || !strings.Contains(err.Error(), "the old one is back and in force: after the reload toy is not running") {
		t.Errorf("%v", err)
	}
	r.has(original, false)
	r.eventually("the new process has read the old file", func() bool { return r.force() == original })
	r.close(d)
}

// TestAServerThatIsRestartedDuringTheCheck: the signal goes to the process that runs after the check.
func TestAServerThatIsRestartedDuringTheCheck(t *testing.T) {
	r := newToy(t)
	start := r.signalled()
	start()
	s := r.server.Settings
	pid, err := os.ReadFile(s.PID)
	if err != nil {
		t.Fatal(err)
	}
	old := r.sleeper() // USR1 would end it
	s.Check = []string{"sh", "-c", `printf "$0" > "$1"`, string(pid), s.PID, "{file}"}
	d := r.open()
	r.set(d, "workers", 20)
	r.eventually("the new process has read the file", func() bool { return r.force() == with(20) })
	if err := d.runs(old.Process.Pid); err != nil {
		t.Errorf("the old process got a signal: %v", err)
	}
	r.close(d)
}
