package middleware

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/quellhq/quell/internal/lockfile"
	"github.com/quellhq/quell/internal/program"
)

// commandLimits bound a server's check and its reload command.
var commandLimits = program.Limits{Time: 10 * time.Second, OutputMiB: 1}

// A server that reads bad files often ends shortly after its reload. So the order for the change waits this long; see also settleTime.
const (
	watch      = 100 * time.Millisecond
	watchEvery = 20 * time.Millisecond
)

// workersWait is how long new workers may take to start after a reload.
const workersWait = 5 * time.Second

// running returns the id of the server's main process; 0 if the configuration names no file for it. It is an error if the server does not
// run.
func (d *Driver) running() (pid int, err error) {
	if d.PID == "" {
		return 0, nil
	}
	data, err := readPlain(d.PID)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s is not running: there is no %s", d.target, d.PID)
	}
	if err != nil {
		return 0, err
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(data))); err != nil || pid <= 1 {
		return 0, fmt.Errorf("%s holds no process id", d.PID)
	}
	return pid, d.runs(pid)
}

// alive is like running. If a change ended the server, the error says so.
func (d *Driver) alive() (pid int, err error) {
	pid, err = d.running()
	switch {
	case err == nil:
		d.fate = nil
	case d.fate != nil:
		err = fmt.Errorf("%w; %s", err, d.fate)
	}
	return pid, err
}

// runs returns an error if a process has ended, or is another program's.
func (d *Driver) runs(pid int) error {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return fmt.Errorf("%s is not running: %s names process %d, which is not there", d.target, d.PID, pid)
	}
	stat, err := process.Stat()
	switch {
	case err != nil || stat.State == "Z" || stat.State == "X":
		return fmt.Errorf("%s is not running: its process %d has ended", d.target, pid)
	case d.server.programs != nil && !slices.ContainsFunc(d.server.programs, func(p string) bool { return strings.HasPrefix(stat.Comm, p) }):
		return fmt.Errorf("%s is not running: %s names process %d, which is %s", d.target, d.PID, pid, stat.Comm)
	}
	return nil
}

// reload makes the server that runs now read its files again, watches it for a moment, and returns its process. If its workers are known,
// some must be new afterwards: a server whose reload fails keeps its old workers.
func (d *Driver) reload(ctx context.Context) (pid int, err error) {
	awaitFile(d.PID)
	if pid, err = d.running(); err != nil { // it may be another process than when the change began
		return 0, err
	}
	before := d.workers(pid)
	if len(d.Reload) > 0 {
		err = d.runReload(ctx)
	} else if err = syscall.Kill(pid, d.server.signal); err != nil {
		err = fmt.Errorf("sending %v to process %d: %w", d.server.signal, pid, err)
	}
	if err != nil || pid == 0 {
		return pid, err
	}
	for range int(watch / watchEvery) {
		time.Sleep(watchEvery)
		if err := d.stays(pid); err != nil {
			return pid, err
		}
	}
	return pid, d.renews(pid, before)
}

// pidWait is how long a server may be without the file that names its process: php-fpm removes that while it reads its files again.
const pidWait = 2 * time.Second

// awaitFile waits until the file is there, but not for longer than pidWait.
func awaitFile(path string) {
	if path == "" {
		return
	}
	for end := time.Now().Add(pidWait); time.Now().Before(end); time.Sleep(watchEvery) {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
}

// stays returns an error if the server ended after its reload.
func (d *Driver) stays(pid int) error {
	if err := d.runs(pid); err != nil {
		return fmt.Errorf("after the reload %w", err)
	}
	return nil
}

// renews waits until one of the server's workers is new.
func (d *Driver) renews(pid int, before []string) error {
	if len(before) == 0 {
		return nil
	}
	for end := time.Now().Add(workersWait); time.Now().Before(end); time.Sleep(watchEvery) {
		if slices.ContainsFunc(d.workers(pid), func(w string) bool { return !slices.Contains(before, w) }) {
			return nil
		}
		if err := d.stays(pid); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s still has its old workers %v after the reload: its error log says why", d.target, workersWait)
}

// reloading is a file that the reload command keeps locked while it runs, even if the agent is killed meanwhile.
func (d *Driver) reloading() string { return d.files[d.Settings.files()[0]].beside("reload") }

// runReload runs the reload command.
func (d *Driver) runReload(ctx context.Context) error {
	lock, err := os.OpenFile(d.reloading(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(lock.Close(), os.Remove(d.reloading())) }() // what it started may go on, and is none of the command
	if err := lockfile.Hold(lock); err != nil {
		return fmt.Errorf("locking %s: %w", d.reloading(), err)
	}
	_, err = program.Run(ctx, d.Reload, nil, commandLimits, lock)
	return err
}

// awaitReload waits until the reload command of a killed agent has ended, but not for longer than a command may take. Otherwise that
// command could bring the killed agent's values into force after the original was restored.
func (d *Driver) awaitReload() error {
	for end := time.Now().Add(commandLimits.Time); ; {
		release, err := lockfile.Take(d.reloading(), 0o600)
		switch {
		case err == nil:
			return errors.Join(release(), os.Remove(d.reloading()))
		case !errors.Is(err, lockfile.ErrHeld):
			return err
		case time.Now().After(end):
			d.log.Warn("the reload command of an agent that was killed still runs: going on without it", "took", commandLimits.Time)
			return os.Remove(d.reloading())
		}
	}
}

// inPlace runs a command in a mount namespace in which the candidate is in the file's place. Nothing else sees that.
const inPlace = `mount --bind "$1" "$2" && shift 2 && exec "$@"`

// check runs the server's own check on a candidate.
func (d *Driver) check(ctx context.Context, f *file, candidate string) error {
	if len(d.Settings.Check) == 0 {
		return nil
	}
	argv := slices.Clone(d.Settings.Check)
	named := false
	for i, word := range argv {
		named = named || strings.Contains(word, fileMark)
		argv[i] = strings.ReplaceAll(word, fileMark, candidate)
	}
	if !named {
		argv = append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-c", inPlace, "sh", candidate, f.path}, argv...)
	}
	if _, err := program.Run(ctx, argv, nil, commandLimits); err != nil {
		return fmt.Errorf("the server's check does not accept the new file, so nothing is changed: %w", err)
	}
	return nil
}

// runningModule is the module of a process.
type runningModule struct {
	pid  int
	name string
}

// mpm returns the module of the running server that decides which blocks of its files count.
func (d *Driver) mpm() (string, error) {
	pid, err := d.running()
	if err != nil {
		return "", err
	}
	if pid == d.module.pid && pid != 0 {
		return d.module.name, nil
	}
	name, err := d.server.module(d.life, pid)
	if err != nil {
		return "", fmt.Errorf("asking process %d for its modules: %w", pid, err)
	}
	d.module = runningModule{pid, name}
	return name, nil
}
