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
	lookEvery = 200 * time.Millisecond // at an adopted instance, whose exit nobody reports
	tendEvery = time.Second
)

// running is a listed instance that has not exited.
type running struct {
	*record
	cmd    *exec.Cmd     // nil where it was adopted
	ready  bool          // guarded by Driver.mu
	exited chan struct{} // closed once its exit is noted

	// signals is held to signal the process and to reap it: no signal goes to a pid that may be a stranger's.
	signals sync.Mutex
	reaped  bool
}

func newRunning(r *record, cmd *exec.Cmd) *running {
	return &running{record: r, cmd: cmd, exited: make(chan struct{})}
}

// alive says whether the very process that was recorded still runs.
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

// follow watches an instance for its exit and, unless it is ready already, until it is. d.mu is held.
func (d *Driver) follow(in *running) {
	d.running[in.ID] = in
	if in.cmd != nil {
		go d.watchChild(in) // not part of d.work: it reaps the child even after Close
	} else {
		d.work.Go(func() { d.watchAdopted(in) })
	}
	if !in.ready {
		d.work.Go(func() { d.awaitReady(in) })
	}
}

func (d *Driver) watchChild(in *running) {
	awaitExit(in.PID)
	in.signals.Lock()
	syscall.Kill(-in.PID, unix.SIGKILL) // what it left behind
	in.cmd.Wait()                       // the status stands in ProcessState
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

// vanished says whether an adopted instance has exited, and kills what it left behind. Its group keeps the pid from
// being given out again; where the pid belongs to another process there is nothing left, and nothing is signalled.
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

// awaitReady asks until the instance answers, and kills it where that takes too long.
func (d *Driver) awaitReady(in *running) {
	ctx, cancel := context.WithTimeout(d.ctx, d.opts.Ready.Timeout)
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
		d.giveUp(in, why)
	}
}

func (d *Driver) giveUp(in *running, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if in.Stopping || in.Exited != nil {
		return
	}
	d.opts.Logger.Warn("instance failed: it was not ready in time, and is killed", "instance", in.ID,
		"within", d.opts.Ready.Timeout, "because", why, "log", d.folder.log(in.ID))
	in.signal(unix.SIGKILL)
}

// end asks the instance to end, and then makes it.
func (d *Driver) end(in *running) {
	in.signal(unix.SIGTERM)
	drain := time.NewTimer(d.opts.Drain)
	defer drain.Stop()
	select {
	case <-in.exited:
		return
	case <-d.ctx.Done(): // closed meanwhile: the next driver goes on
		return
	case <-d.hurry:
	case <-drain.C:
	}
	d.opts.Logger.Warn("instance did not end when asked to, and is killed", "instance", in.ID, "after", d.opts.Drain)
	in.signal(unix.SIGKILL)
}

// signal reaches the instance's whole process group, and nobody else. That it may be gone already is no error.
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

// tend keeps the record of when the instances were last seen alive, and their logs within bounds.
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
	slices.Sort(ids) // the same trouble must read the same every time
	errs := []error{d.folder.touch(d.opts.Now())}
	for _, id := range ids {
		errs = append(errs, d.folder.cutLog(id, d.opts.LogBytes))
	}
	return errors.Join(errs...)
}
