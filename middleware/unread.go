package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// unreadEvery is the time between two attempts to make a server read a restored file.
const unreadEvery = 5 * time.Second

// unread is a file's content of before that a running server has not read yet. The file's record stays until then, so that the next agent
// makes the server read it if this one is killed.
type unread struct {
	content string
	then    *record // of the content
	why     error   // what is to be said about it
	stuck   bool    // the content could not be put back, and the log says so
}

// owe notes that the server must read a file's content of before.
func (d *Driver) owe(f *file, content string, then *record) {
	if f.record == nil {
		f.record, f.last = &record{Original: []byte(content)}, &content
		if err := f.note(f.record); err != nil {
			d.log.Error("what the server must read is not recorded", "file", f.path, "error", err)
		}
	}
	f.unread = &unread{content: content, then: then}
}

// catchUp makes the server read what it has not read yet. After an error, it is tried again every unreadEvery. A file that somebody edited
// is left to him.
func (d *Driver) catchUp(ctx context.Context) error {
	var errs []error
	var back []*file
	for _, path := range slices.Sorted(maps.Keys(d.files)) {
		f := d.files[path]
		if f.unread == nil {
			continue
		}
		if err := f.put(f.unread.content); err != nil && f.unread != nil {
			errs = append(errs, f.unread.says("the old file could not be restored: %w", err))
			d.stuck(f)
		} else if err == nil {
			back = append(back, f)
			d.freed(f)
		}
		d.report(f)
	}
	if len(back) > 0 {
		errs = append(errs, d.reread(ctx, back))
	}
	err := errors.Join(errs...)
	if err != nil {
		d.remindLater()
	}
	return err
}

// stuck logs once that a file's content of before could not be put back.
func (d *Driver) stuck(f *file) {
	if !f.unread.stuck {
		f.unread.stuck = true
		d.log.Error("an old file could not be put back, and is tried again", "file", f.path, "error", f.unread.why)
	}
}

// freed logs that a content that had been stuck is back.
func (d *Driver) freed(f *file) {
	if !f.unread.stuck {
		return
	}
	f.unread.stuck = false
	d.log.Info("the old file is back", "file", f.path)
	if d.fate != nil {
		d.fate.kept = nil
	}
}

// reread makes the server read files whose content of before is back.
func (d *Driver) reread(ctx context.Context, back []*file) error {
	_, failed := d.reload(ctx)
	var errs []error
	for _, f := range back {
		owed, err := f.unread, failed
		if err == nil {
			err = f.note(owed.then)
		}
		if err != nil {
			errs = append(errs, owed.says("the old file is back, and the server has not read it: %w", err))
			continue
		}
		d.log.Info("the old file is back, and the server has read it", "file", f.path)
	}
	return errors.Join(errs...)
}

// says keeps and returns why the content is not in force.
func (u *unread) says(format string, err error) error {
	u.why = fmt.Errorf(format, err)
	return u.why
}

// remindLater starts a loop that catches up.
func (d *Driver) remindLater() {
	if !d.reminding && d.life.Err() == nil {
		d.reminding = true
		d.every(d.unreadEvery, d.remindOnce)
	}
}

// remindOnce returns whether there is nothing left to catch up on.
func (d *Driver) remindOnce() (over bool) {
	defer d.begin()()
	over = d.life.Err() != nil || d.catchUp(d.life) == nil
	d.reminding = !over
	return over
}
