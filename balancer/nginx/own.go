package nginx

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/internal/lockfile"
)

// Own makes a controller the only one that changes the file, with a lock on a file beside it. The lock ends with the process.
func (d *Driver) Own(_ context.Context, owner quell.Owner) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.release != nil {
		return nil
	}
	path := d.ownerPath()
	release, err := lockfile.Take(path, 0o644)
	if errors.Is(err, lockfile.ErrHeld) {
		name, _ := os.ReadFile(path)
		return &quell.OwnedError{Balancer: "nginx's servers in " + d.opts.Include, Lease: time.Second,
			Owner: quell.Owner{ID: "another controller", Name: strings.TrimSpace(string(name))}}
	}
	if err != nil {
		return fmt.Errorf("becoming the only controller of %s: %w", d.opts.Include, err)
	}
	d.release = release
	return os.WriteFile(path, []byte(owner.Name+"\n"), 0o644)
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

func (d *Driver) ownerPath() string {
	dir, base := filepath.Split(d.opts.Include)
	return filepath.Join(dir, "."+base+".quell-owner")
}

// realPath returns the file that a path stands for, so that a symbolic link is not replaced.
func realPath(path string) (string, error) { return filepath.EvalSymlinks(path) }

// Restore gives the servers the weights that people wrote, removes those that Quell added, and forgets all of them.
func (d *Driver) Restore(ctx context.Context) (unknown []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := d.read()
	if err != nil {
		return nil, err
	}
	if len(d.entries) == 0 {
		return []string{"the record of " + d.opts.Include + " is missing, so the weights before Quell are not known: set them yourself"}, nil
	}
	d.notice(ctx, f)
	var edits []edit
	for _, e := range d.entries {
		s := d.find(ctx, f, e.Address)
		switch {
		case s == nil || e.ByHand:
		case e.Added:
			start, end := whole(f.text, s.directive)
			edits = append(edits, edit{start, end, ""})
		case s.weight != e.Base || s.down:
			edits = append(edits, edit{s.start, s.end, s.with(e.Base, false)})
		}
	}
	if text := apply(f.text, edits); text != f.text {
		if err := d.write(ctx, f, text); err != nil {
			return nil, err
		}
	}
	d.entries, d.asked = nil, nil
	d.memory.Keep(d.entries)
	return nil, nil
}

var _ balancer.Restorer = (*Driver)(nil)
