package daemon_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell/internal/need"
)

// roleVariable makes the test binary play a part of a test.
const roleVariable = "DAEMON_TEST_ROLE"

// playRole fills a small disk, which only this process sees, and becomes a controller that keeps its data there.
func playRole(_ string, args []string) int {
	program, config, dir := args[0], args[1], args[2]
	err := errors.Join(os.MkdirAll(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"), fill(filepath.Join(dir, "ballast")))
	if err == nil {
		err = unix.Exec(program, []string{program, "controller", "--config", config}, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 100
}

func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = io.Copy(f, zeros{}); errors.Is(err, unix.ENOSPC) {
		return nil
	}
	return fmt.Errorf("the disk does not fill up: %w", err)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestAFullDisk(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	r.write(hosts(r))
	cmd := exec.Command(os.Args[0], quellProgram, r.config, filepath.Join(r.dir, "data"))
	cmd.Env = append(os.Environ(), roleVariable+"=full-disk")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	p, err := r.tryLaunch("full-disk", cmd)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSPC) {
		need.Skip(t, "needs user namespaces (sysctl kernel.unprivileged_userns_clone=1, or root): "+err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	if p.ends(t) == 100 && has(p.said(), "operation not permitted") {
		need.Skip(t, "needs to mount a file system in a user namespace: "+p.said())
	}
	wantRefusal(t, p, 1, filepath.Join(r.dir, "data", "bus"), "no space left on device")
	wantFree(t, r.bus, r.metrics)
}
