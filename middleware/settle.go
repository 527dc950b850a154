package middleware

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A server may read a bad file, and end, long after the signal to reload: php-fpm waits for its children first. So after a reload that
// seems to succeed, the server is watched for settleTime, beside everything else that the driver does.
const (
	settleTime  = 20 * time.Second
	settleEvery = 200 * time.Millisecond
)

// trial holds the changes after which the server has not settled yet.
type trial struct {
	steps  []step
	undone bool      // the server ended, so the files are as before
	ends   time.Time // of a trial that is undone
}

// step is one change of a file.
type step struct {
	change
	at     time.Time // of the reload
	pid    int       // of the server that reloaded
	file   *file
	before proven
}

// change is the value that a parameter was given.
type change struct {
	name  string
	value float64
}

func (c change) String() string { return fmt.Sprintf("%s was set to %g", c.name, c.value) }

// proven is a file's content and its record before a change.
type proven struct {
	content string
	record  *record
}

// try puts a change of a file on trial.
func (d *Driver) try(f *file, before proven, c change, pid int) {
	if pid == 0 {
		return // the configuration names no process to watch
	}
	watched := d.trial != nil
	if !watched || d.trial.undone {
		d.trial = &trial{}
	}
	d.trial.steps = append(d.trial.steps, step{c, time.Now(), pid, f, before})
	if !watched {
		d.every(d.settleEvery, d.look)
	}
}

// settled ends the trial of a file's changes.
func (d *Driver) settled(f *file) {
	if d.trial != nil && !d.trial.undone {
		d.trial.steps = slices.DeleteFunc(d.trial.steps, func(s step) bool { return s.file == f })
	}
}

// every starts a loop that takes a step in each period, until a step says that it is over or the driver is closed.
func (d *Driver) every(period time.Duration, step func() (over bool)) {
	d.watching.Go(func() {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		for {
			select {
			case <-d.life.Done():
				return
			case <-ticker.C:
			}
			if step() {
				return
			}
		}
	})
}

// look undoes the changes on trial if the server has ended. It returns whether the trial has ended.
func (d *Driver) look() (over bool) {
	defer d.begin()()
	t, now := d.trial, time.Now()
	if len(t.steps) == 0 { // the original files are back
		d.trial = nil
		return true
	}
	_, err := d.running()
	if err != nil && d.runs(t.steps[len(t.steps)-1].pid) == nil { // a server may write its pid file anew at a reload
		err = nil
	}
	switch {
	case d.life.Err() != nil:
		return true
	case err != nil && !t.undone:
		d.undo(t, err)
		t.undone, t.ends = true, now.Add(d.settleTime)
		return false
	case err != nil:
		_ = d.catchUp(d.life) // the log has its error; the old file should be back before somebody starts the server
		over = !now.Before(t.ends)
	case t.undone: // somebody started it again, perhaps before the old file was back
		d.readAgain(t)
		over = true
	default:
		t.steps = slices.DeleteFunc(t.steps, func(s step) bool { return now.Sub(s.at) >= d.settleTime })
		over = len(t.steps) == 0
	}
	if over {
		d.trial = nil
	}
	return over
}

// fate is why the server does not run, if a change ended it.
type fate struct {
	change change
	kept   error // why the old file could not be put back
}

func (f fate) String() string {
	if f.kept != nil {
		return fmt.Sprintf("it ended after %v, and the old file could not be put back: %v", f.change, f.kept)
	}
	return fmt.Sprintf("it ended after %v, so the old file is back: its error log says why; start it again", f.change)
}

// undo puts the files of before the trial back, and remembers the changes, so that they are not tried again.
func (d *Driver) undo(t *trial, why error) {
	last := t.steps[len(t.steps)-1]
	d.fate = &fate{change: last.change}
	restored := map[*file]bool{}
	for _, s := range t.steps {
		if !slices.Contains(d.ended, s.change) {
			d.ended = append(d.ended, s.change)
		}
		if restored[s.file] {
			continue
		}
		restored[s.file] = true
		if err := s.file.back(s.before.content, s.before.record); err != nil {
			d.fate.kept = err
			d.putLater(s.file, s.before, err)
		}
	}
	d.log.Error("the server ended after a change", "after", time.Since(last.at).Round(time.Millisecond), "error",
		fmt.Errorf("%w; %s", why, d.fate))
}

// putLater tries again to put an old file back, for example when the disk is not full any more, unless somebody edited it.
func (d *Driver) putLater(f *file, before proven, why error) {
	if f.record == nil {
		return
	}
	d.owe(f, before.content, before.record)
	f.unread.stuck, f.unread.why = true, why
	d.remindLater()
}

// readAgain makes a server that was started again read the old files.
func (d *Driver) readAgain(t *trial) {
	edited := true
	for _, s := range t.steps {
		content, err := s.file.read()
		edited = edited && errors.Is(err, errEdited)
		if err == nil && s.file.unread == nil {
			d.owe(s.file, content, s.file.record)
		}
	}
	if edited {
		return // the person has seen to it
	}
	if err := d.catchUp(d.life); err != nil {
		d.log.Error("the server runs again, but does not read the old file", "error", err)
		return
	}
	d.log.Info("the server runs again, with the old file")
}

// refused returns an error if the server ended after a parameter was given a value. An original value may always come back: the server ran
// with it, and a person may have restarted the server just then.
func (d *Driver) refused(p Parameter, value float64) error {
	c := change{p.Name, value}
	if !slices.Contains(d.ended, c) || d.isOriginal(p, value) {
		return nil
	}
	return fmt.Errorf("%s ended the last time after %v: it is not set again until the agent is restarted", d.target, c)
}

// stopWatching ends a trial.
func (d *Driver) stopWatching() {
	d.cancel()
	d.watching.Wait()
}
