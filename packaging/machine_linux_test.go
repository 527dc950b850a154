package packaging

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

// machine is a copy of this machine with a systemd, a network and a host name of its own.
type machine struct {
	t    *testing.T
	init int // process id of its systemd
}

// patience is how long a test waits for what must come.
const patience = 2 * time.Minute

func newMachine(t *testing.T, hostname string) machine {
	t.Helper()
	need.Root(t)
	for _, name := range []string{"unshare", "nsenter", "pivot_root", "systemctl", "ip"} {
		need.Program(t, name)
	}
	logged, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer logged.Close()
	boot := exec.Command("sh", "-c", `echo 0 > "$0/cgroup.procs" && exec unshare --mount --cgroup testdata/machine "$1" "$2"`,
		controlGroup(t), t.TempDir(), hostname)
	boot.Stdout, boot.Stderr = logged, logged
	boot.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNET |
		syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	if err := boot.Start(); err != nil {
		t.Skip("this machine cannot make namespaces: " + err.Error())
	}
	ended := make(chan struct{})
	go func() {
		_ = boot.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = boot.Process.Kill()
		<-ended
	})

	m := machine{t: t, init: boot.Process.Pid}
	m.until("systemd starts", func() bool {
		select {
		case <-ended:
			text, _ := os.ReadFile(logged.Name())
			t.Skipf("this machine cannot boot a systemd in namespaces: %s", text)
		default:
		}
		state, _ := m.try("systemctl is-active basic.target")
		return state == "active\n"
	})
	return m
}

// controlGroup makes a group for the processes of a machine, which is removed when the test ends.
func controlGroup(t *testing.T) string {
	t.Helper()
	top := "/sys/fs/cgroup/unified" // beside control groups of version 1
	if _, err := os.Stat(top); err != nil {
		top = "/sys/fs/cgroup"
	}
	group := filepath.Join(top, "quell-packaging-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skip("this machine cannot make control groups: " + err.Error())
	}
	t.Cleanup(func() {
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			var folders []string
			_ = filepath.WalkDir(group, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					folders = append([]string{path}, folders...)
				}
				return nil
			})
			for _, folder := range folders { // the deepest first; its processes end meanwhile
				_ = os.Remove(folder)
			}
			if _, err := os.Stat(group); err != nil {
				return
			}
		}
		t.Errorf("%s cannot be removed", group)
	})
	return group
}

// path is the path of a machine's file here.
func (m machine) path(file string) string { return fmt.Sprintf("/proc/%d/root%s", m.init, file) }

// try runs a command of root's shell on the machine.
func (m machine) try(command string) (string, error) {
	pid := strconv.Itoa(m.init)
	cmd := exec.Command("nsenter", "-t", pid, "-m", "-p", "-C", "-n", "-u", "-i", "--root="+m.path(""), "--wd="+m.path("/root"),
		"env", "-i", "HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive",
		"sh", "-c", command)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (m machine) run(command string) string {
	m.t.Helper()
	out, err := m.try(command)
	if err != nil {
		units, _ := m.try("systemctl --failed --no-pager --plain; journalctl --no-pager -n 40")
		m.t.Fatalf("%s: %v\n%s\n%s", command, err, out, units)
	}
	return out
}

func (m machine) write(file, text string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.path(file)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.path(file), []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// until waits for a condition.
func (m machine) until(what string, holds func() bool) {
	m.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			units, _ := m.try("systemctl --no-pager --plain --failed; journalctl --no-pager -n 40")
			m.t.Fatalf("not seen in %v: %s\n%s", patience, what, strings.TrimSpace(units))
		}
	}
}
