package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Lab is a set of physical machines in one kernel.
type Lab struct {
	options  Options
	groups   groups
	machines map[string]*Machine
}

// New makes everything that o asks for. If it fails, it removes what it made. If a lab with that prefix exists, in use or left over, the
// error is a *quell.UserError.
func New(o Options) (_ *Lab, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := Check(); err != nil {
		return nil, err
	}
	g, err := findGroups(machine)
	if err != nil {
		return nil, err
	}
	if err := g.check(o.Hosts); err != nil {
		return nil, err
	}
	if err := mustBeFree(g, o.Prefix); err != nil {
		return nil, err
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the lab's folder: %w", err)
	}
	l := &Lab{options: o, groups: g, machines: map[string]*Machine{}}
	err = l.build()
	if errors.Is(err, errTaken) { // another lab, which is being made at the same moment, has the name: it stays
		return nil, userErrorf("making the lab: %w; choose another prefix than %s", err, o.Prefix)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the lab: %w", err), l.Close())
	}
	return l, nil
}

func mustBeFree(g groups, prefix string) error {
	spaces, err := namespacesOf(prefix)
	if err != nil {
		return err
	}
	folders, err := g.existing(prefix)
	if err != nil {
		return err
	}
	if there := append(spaces, folders...); len(there) > 0 {
		return userErrorf("a lab of prefix %s is there already (%s): if it is not in use, `quell lab clean --prefix %s` removes it; else "+
			"choose another prefix",
			prefix, strings.Join(there[:min(3, len(there))], ", "), prefix)
	}
	return nil
}

func (l *Lab) build() error {
	if err := l.layNetwork(); err != nil {
		return err
	}
	if err := os.MkdirAll(RunDir(l.options.Prefix), 0o700); err != nil {
		return err
	}
	if err := l.groups.makeTop(l.options.Prefix); err != nil {
		return err
	}
	for _, h := range l.options.Hosts {
		disk := ""
		if h.DiskIOPS > 0 {
			var err error
			if disk, err = diskOf(l.options.Dir); err != nil {
				return err
			}
		}
		if err := l.groups.make(l.options.Prefix, h, disk); err != nil {
			return fmt.Errorf("host %s: %w", h.ID, err)
		}
		m, err := newMachine(l, h)
		if err != nil {
			return fmt.Errorf("host %s: %w", h.ID, err)
		}
		l.machines[h.ID] = m
		if err := m.prepare(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// Place returns one of this lab's places.
func (l *Lab) Place(host string, role Role) (Place, error) {
	return PlaceOf(l.options.Prefix, host, role)
}

// Machine returns the host with this id, or nil.
func (l *Lab) Machine(host string) *Machine { return l.machines[host] }

// Close ends the interferers, then every other process in the lab's places, and removes everything that New made except Options.Dir. It
// may be called several times, and after Clean.
func (l *Lab) Close() error {
	var errs []error
	for _, m := range l.machines {
		errs = append(errs, m.stopAll())
	}
	_, err := Clean(l.options.Prefix)
	return errors.Join(append(errs, err)...)
}
