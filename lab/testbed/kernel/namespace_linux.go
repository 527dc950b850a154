package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespaces is the folder of named network namespaces, the same that `ip netns` uses.
const namespaces = "/run/netns"

// onThread runs f on an operating-system thread of its own, which ends with f, so that changes that f makes to the thread affect nothing
// else.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// errTaken says that a name is already in use.
var errTaken = errors.New("there already")

// makeNamespace makes a named namespace and sets it up.
func makeNamespace(name string) error {
	return onThread(func() error {
		handle, err := netns.NewNamed(name)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("namespace %s is %w", name, errTaken)
		}
		if errors.Is(err, fs.ErrPermission) { // the root user of a user namespace may not name a network namespace
			return lacks("named network namespaces", "CONFIG_NET_NS", "", err)
		}
		if err != nil {
			return fmt.Errorf("making namespace %s: %w", name, err)
		}
		defer handle.Close()
		return setSysctls()
	})
}

// setSysctls sets the kernel parameters that the lab's experiments need, only in the namespace of the calling thread.
func setSysctls() error {
	for _, s := range []struct{ name, value string }{
		// Router solicitations and duplicate detection would be counted as traffic.
		{"ipv6/conf/all/disable_ipv6", "1"},
		// Every namespace may choose this congestion control; others model the link in a way that does not fit a shaper.
		{"ipv4/tcp_congestion_control", "reno"},
		// A load generator opens many connections to few addresses.
		{"ipv4/ip_local_port_range", "10000 65000"},
		{"core/somaxconn", "4096"},
	} {
		err := os.WriteFile("/proc/sys/net/"+s.name, []byte(s.value), 0o644)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("setting net/%s: %w", s.name, err)
		}
	}
	return nil
}

// Do runs f on a thread in the place's network: sockets that f itself opens are in that network.
func (p Place) Do(f func() error) error {
	handle, err := p.open()
	if err != nil {
		return err
	}
	defer handle.Close()
	return onThread(func() error {
		if err := netns.Set(handle); err != nil {
			return fmt.Errorf("entering namespace %s: %w", p.namespace, err)
		}
		return f()
	})
}

// Dial connects from the place.
func (p Place) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = p.Do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

func (p Place) open() (netns.NsHandle, error) {
	handle, err := netns.GetFromName(p.namespace)
	if errors.Is(err, fs.ErrNotExist) {
		return handle, userErrorf("there is no namespace %s: no lab of prefix %q is up, or it lacks that host", p.namespace, p.prefix)
	}
	if err != nil {
		return handle, fmt.Errorf("opening namespace %s: %w", p.namespace, err)
	}
	return handle, nil
}

// Start starts cmd in the place's namespace, and in its cgroup from the first instruction on. The caller must wait for cmd. If
// cmd.SysProcAttr.Pdeathsig is set, cmd gets the signal when this process ends (the kernel itself would send it when the thread that
// forked ends).
func (p Place) Start(cmd *exec.Cmd) error {
	groups, err := findGroups(machine)
	if err != nil {
		return err
	}
	return p.startIn(groups, cmd)
}

func (p Place) startIn(g groups, cmd *exec.Cmd) error {
	handle, err := p.open()
	if err != nil {
		return err
	}
	defer handle.Close()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := p.startOnThread(g, handle, cmd)
		if err != nil || cmd.SysProcAttr == nil || cmd.SysProcAttr.Pdeathsig == 0 {
			started <- err
			return
		}
		// The child would be killed when this thread ends, so the thread stays as long as the child.
		child, err := unix.PidfdOpen(cmd.Process.Pid, 0)
		if err != nil {
			_ = cmd.Process.Kill()
			started <- fmt.Errorf("watching %s: %w", cmd.Path, err)
			return
		}
		started <- nil
		waitFor(child)
	}()
	return <-started
}

func (p Place) startOnThread(g groups, handle netns.NsHandle, cmd *exec.Cmd) error {
	if err := netns.Set(handle); err != nil {
		return fmt.Errorf("entering namespace %s: %w", p.namespace, err)
	}
	if p.group == "" {
		return cmd.Start()
	}
	leave, err := g.enter(filepath.Join(base(p.prefix), p.group), cmd)
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, leave())
	}
	if err := leave(); err != nil {
		_ = cmd.Process.Kill()
		return err
	}
	return nil
}

// waitFor returns when the process behind a pidfd has ended, and closes the pidfd.
func waitFor(pidfd int) {
	defer unix.Close(pidfd)
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
