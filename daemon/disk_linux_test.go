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
	"time"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// roleVariable makes the test binary run a part of a test.
const roleVariable = "DAEMON_TEST_ROLE"

// playRole plays a part of a test.
func playRole(role string, args []string) int {
	if role == fullDiskRole {
		return fillDisk(args)
	}
	return playToy(role, args)
}

const fullDiskRole = "full-disk"

// fillDisk fills a small disk, which only this process sees, and becomes a controller that keeps its data there.
func fillDisk(args []string) int {
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
	cmd.Env = append(os.Environ(), roleVariable+"="+fullDiskRole)
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

// TestTheDiskFillsUp checks that a controller whose disk is full keeps its lease, replaces failed instances, obeys an operator and
// reports its state. Once there is space, it stores everything again. No request fails.
func TestTheDiskFillsUp(t *testing.T) {
	t.Parallel()
	need.Root(t)
	r := newRig(t, "")
	r.write(hosts(r))
	data := filepath.Join(r.dir, "data")
	smallDisk(t, data)
	r.start("controller")
	r.start("balancer")
	r.awaitServing("i1", "i2")
	ballast := filepath.Join(data, "ballast")
	began := time.Now()
	if err := fill(ballast); err != nil {
		t.Fatal(err)
	}
	s := r.awaitStatus("the controller to notice", func(s controller.Status) bool { return s.Store != "" })
	if !has(s.Store, "opened again once its disk has space") {
		t.Errorf("the status says %q", s.Store)
	}
	r.wantReady(200, "ok, from memory: ")
	r.wantMetric("quell_store_ok", "0")

	if err := syscall.Kill(r.pids()["i2"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.awaitServing("i1", "i3")
	load := flow(r)
	if out, status := r.quell("pause", "--config", r.config); status != 0 || !has(out, "paused by", "a restart would forget it") {
		t.Errorf("pause: status %d: %s", status, out)
	}
	if out, status := r.quell("resume", "--config", r.config); status != 0 {
		t.Errorf("resume: status %d: %s", status, out)
	}
	const lease = 10 * time.Second
	for time.Since(began) < lease+3*time.Second { // longer than a lease lasts without renewal
		if s, err := r.status(); err != nil || !s.Leading {
			t.Fatalf("on a full disk the controller does not lead: %+v, %v", s, err)
		}
		time.Sleep(100 * time.Millisecond)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	r.awaitStatus("the store to be open again", func(s controller.Status) bool { return s.Store == "" && s.Leading })
	r.wantReady(200, "ok\n")
	r.wantMetric("quell_store_ok", "1")
	r.await("the new instance to stand in the list", func() (bool, any) {
		ledger, err := os.ReadFile(filepath.Join(data, "instances", "instances.json"))
		return err == nil && has(string(ledger), `"id": "i3"`) && !has(string(ledger), `"id": "i2"`), string(ledger)
	})
	entries := len(r.journal(r.connect()))
	r.await("the journal to go on", func() (bool, any) { n := len(r.journal(r.connect())); return n > entries, n })
	load.wantNoFailures()
}
