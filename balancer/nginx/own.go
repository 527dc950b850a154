package nginx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/nginx/include"
	"github.com/quellhq/quell/internal/lockfile"
)

// Own makes a controller the only one that changes the file, with a lock on a file beside it. The lock ends with the process.
func (d *Driver) Own(_ context.Context, owner quell.Owner) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.release != nil {
		return nil
	}
	release, holder, err := include.Claim(d.opts.Include, owner.Name)
	if errors.Is(err, lockfile.ErrHeld) {
		return &quell.OwnedError{Balancer: "nginx's servers in " + d.opts.Include, Lease: time.Second,
			Owner: quell.Owner{ID: "another controller", Name: holder}}
	}
	if err != nil {
		return fmt.Errorf("becoming the only controller of %s: %w", d.opts.Include, err)
	}
	d.release = release
	return nil
}

// Disown lets another controller take over.
func (d *Driver) Disown(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.release == nil {
		return nil
	}
	err := d.release()
	d.release = nil
	return err
}

// Close gives up the owner's file, if it is held.
func (d *Driver) Close() { _ = d.Disown(context.Background()) }

// Restore gives the servers the weights that people wrote, removes those that Quell added, and forgets all of them.
func (d *Driver) Restore(ctx context.Context) (unknown []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := include.Read(d.opts.Include)
	if err != nil {
		return nil, err
	}
	if len(d.entries) == 0 {
		return []string{"the record of " + d.opts.Include + " is missing, so the weights before Quell are not known: set them yourself"}, nil
	}
	d.notice(ctx, f)
	edit := f.Edit()
	for _, e := range d.entries {
		e.Restore(d.find(ctx, f, e.Address), edit)
	}
	if text, _ := edit.Text(); text != f.Text || d.unsure() {
		err := d.load(ctx, f, text, func() {
			for _, e := range d.entries {
				e.Wrote(e.Base, false)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	d.entries, d.asked = nil, nil
	d.memory.Keep(d.entries)
	return nil, nil
}

var _ balancer.Restorer = (*Driver)(nil)
