package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lookEvery = 200 * time.Millisecond // between checks of an adopted instance, because the system does not report its exit
	tendEvery = time.Second
)

// running is a listed instance that has not exited.
type running struct {
	*record
	cmd    *exec.Cmd     // nil if the instance was adopted
	ready  bool          // guarded by Driver.mu
	exited chan struct{} // closed when its exit has been recorded

	// signals is held while the process is signalled or reaped. So no signal is sent to a pid that may belong to another process.
	signals sync.Mutex
	reaped  bool
}

func newRunning(r *record, cmd *exec.Cmd) *running {
	return &running{record: r, cmd: cmd, exited: make(chan struct{})}
}

// alive returns whether the recorded process still runs; a later process with the same pid does not count.
func (r *record) alive() (bool, error) {
	if r.PID == 0 || r.Exited != nil {
		return false, nil
	}
	identity, dead, err := identify(r.PID)
	if errors.Is(err, os.ErrProcessDone) {
		return false, nil
	}
	return err == nil && !dead && identity == r.ProcessStart, err
}

// follow waits for an instance's exit and, if it is not ready yet, until it is ready. d.mu is held.
func (d *Driver) follow(in *running) {
	d.running[in.ID] = in
	if in.cmd != nil {
		go d.watchChild(in) // not counted in d.work, because it reaps the child even after Close
	} else {
		d.work.Go(func() { d.watchAdopted(in) })
	}
	if !in.ready {
		within := d.opts.Ready.Timeout // Refit may change it
		d.work.Go(func() { d.awaitReady(in, within) })
	}
}

func (d *Driver) watchChild(in *running) {
	awaitExit(in.PID)
	in.signals.Lock()
	syscall.Kill(-in.PID, unix.SIGKILL) // kill what it left behind
	in.cmd.Wait()                       // the exit status is in ProcessState
	in.reaped = true
	in.signals.Unlock()
	d.noteExit(in, in.cmd.ProcessState.String())
}

func (d *Driver) watchAdopted(in *running) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-look.C:
		}
		if in.vanished() {
			d.noteExit(in, "exit status unknown")
			return
		}
	}
}

// vanished returns whether an adopted instance has exited, and kills what it left behind. As long as its process group exists, no new
// process gets its pid. So if the pid belongs to another process, nothing was left behind, and nothing is killed.
func (in *running) vanished() bool {
	in.signals.Lock()
	defer in.signals.Unlock()
	if alive, err := in.alive(); alive || err != nil {
		return false
	}
	in.reaped = true
	if _, dead, _ := identify(in.PID); dead {
		syscall.Kill(-in.PID, unix.SIGKILL)
	}
	return true
}

func (d *Driver) noteExit(in *running, how string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer close(in.exited)
	if d.detached {
		return
	}
	delete(d.running, in.ID)
	d.ledger.exit(in.record, d.opts.Now())
	if in.Stopping {
		d.opts.Logger.Info("instance stopped", "instance", in.ID, "how", how)
		d.forget(in.record)
	} else {
		d.opts.Logger.Warn("instance failed: it exited without being stopped", "instance", in.ID, "how", how, "log", d.folder.log(in.ID))
	}
	d.saveOrWarn()
}

// awaitReady checks until the instance is ready. If that takes too long, it kills the instance.
func (d *Driver) awaitReady(in *running, within time.Duration) {
	ctx, cancel := context.WithTimeout(d.ctx, within)
	defer cancel()
	tick := time.NewTicker(d.opts.Ready.Interval)
	defer tick.Stop()
	var why error
	for ctx.Err() == nil {
		err := d.answers(ctx, in.Address)
		if err == nil {
			d.mu.Lock()
			in.ready = true
			d.mu.Unlock()
			d.opts.Logger.Info("instance ready", "instance", in.ID)
			return
		}
		if ctx.Err() == nil || why == nil {
			why = err
		}
		select {
		case <-in.exited:
			return
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	if d.ctx.Err() == nil {
		d.giveUp(in, within, why)
	}
}

func (d *Driver) giveUp(in *running, within time.Duration, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if in.Stopping || in.Exited != nil {
		return
	}
	d.opts.Logger.Warn("instance failed: it was not ready in time, and is killed", "instance", in.ID,
		"within", within, "because", why, "log", d.folder.log(in.ID))
	in.signal(unix.SIGKILL)
}

// end sends TERM to the instance, and KILL if it has not ended after Options.Drain.
func (d *Driver) end(in *running) {
	in.signal(unix.SIGTERM)
	drain := time.NewTimer(d.opts.Drain)
	defer drain.Stop()
	select {
	case <-in.exited:
		return
	case <-d.ctx.Done(): // the driver was closed: the next one continues
		return
	case <-d.cut:
	case <-drain.C:
	}
	d.opts.Logger.Warn("instance did not end when asked to, and is killed", "instance", in.ID, "after", d.opts.Drain)
	in.signal(unix.SIGKILL)
}

// signal signals the instance's whole process group and no other process. It ignores errors, because the group may have ended already.
func (in *running) signal(sig syscall.Signal) {
	in.signals.Lock()
	defer in.signals.Unlock()
	if in.reaped {
		return
	}
	if in.cmd == nil {
		if alive, _ := in.alive(); !alive {
			return
		}
	}
	syscall.Kill(-in.PID, sig)
}

// tend regularly records that the instances are alive, and cuts their logs that have become too large.
func (d *Driver) tend() {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-tick.C:
		}
		err := d.tendOnce()
		if err == nil {
			said = ""
		} else if err.Error() != said {
			said = err.Error()
			d.opts.Logger.Warn("the state folder is in trouble", "error", err)
		}
	}
}

func (d *Driver) tendOnce() error {
	d.saveMissed()
	if err := d.seekAgain(); err != nil {
		return err
	}
	d.mu.Lock()
	ids := make([]string, 0, len(d.running))
	for id := range d.running {
		ids = append(ids, id)
	}
	d.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids) // so that the same error always has the same text
	errs := []error{d.folder.touch(d.opts.Now())}
	for _, id := range ids {
		errs = append(errs, d.folder.cutLog(id, d.opts.LogBytes))
	}
	return errors.Join(errs...)
}
