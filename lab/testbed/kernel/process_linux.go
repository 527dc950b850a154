package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a program that the lab runs in its own process group. It ends with the lab's own process.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string        // file for the program's output
	done chan struct{} // closed when the program has ended
}

// launch starts a program in a place. Its output goes to a file in dir that has the given name. The program gets the signal last when
// this process ends.
func launch(p Place, dir, name string, last syscall.Signal, program string, args ...string) (*process, error) {
	return launchCommand(p, dir, name, last, exec.Command(program, args...))
}

// launchCommand is launch for a command that may have attributes of its own.
func launchCommand(p Place, dir, name string, last syscall.Signal, cmd *exec.Cmd) (*process, error) {
	path := filepath.Join(dir, name+".log")
	log, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer log.Close()
	if cmd.Stdout, cmd.Stderr = log, log; cmd.Dir == "" {
		cmd.Dir = dir
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, last
	if err := p.Start(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	r := &process{name: name, cmd: cmd, log: path, done: make(chan struct{})}
	go func() {
		r.reap()
		close(r.done)
	}()
	return r, nil
}

// reap waits for the program, and ends processes that it leaves behind, because the workers of a killed nginx would keep its port. The
// group's id belongs to the program until it is reaped, so the group is killed first.
func (r *process) reap() {
	for errors.Is(unix.Waitid(unix.P_PID, r.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
	_ = r.cmd.Wait()
}

// failed returns why the program ended; nil while it runs.
func (r *process) failed() error {
	select {
	case <-r.done:
	default:
		return nil
	}
	text, _ := os.ReadFile(r.log)
	const most = 500
	said := strings.TrimSpace(string(text[max(0, len(text)-most):]))
	if said == "" {
		return fmt.Errorf("%s ended by itself (%v)", r.name, r.cmd.ProcessState)
	}
	return fmt.Errorf("%s ended by itself (%v): %s", r.name, r.cmd.ProcessState, said)
}

// stop sends the program a signal that asks it to end, and kills it if it still runs after the grace.
func (r *process) stop(signal syscall.Signal, grace time.Duration) error {
	if r.signal(signal); r.ended(grace) {
		return nil
	}
	if r.signal(syscall.SIGKILL); r.ended(patience) {
		return nil
	}
	return fmt.Errorf("%s (process %d) does not end", r.name, r.cmd.Process.Pid)
}

// signal signals the program's whole group, but only until the group's leader is reaped, because the id may then belong to another group.
func (r *process) signal(s syscall.Signal) {
	select {
	case <-r.done:
	default:
		_ = syscall.Kill(-r.cmd.Process.Pid, s)
	}
}

func (r *process) ended(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-r.done:
		return true
	case <-timer.C:
		return false
	}
}

// until calls ready repeatedly until it returns true, the program ends, or ctx ends.
func (r *process) until(ctx context.Context, ready func() bool) error {
	for !ready() {
		select {
		case <-r.done:
			return r.failed()
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s is not ready", r.name), context.Cause(ctx))
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}
