// Package limit limits what control groups of this machine may use, what its network interfaces send, and the containers of pods, and puts
// back what was there before.
//
// A record is written before the first change of a limit. It holds the setting that was in force before. The owner of a limit locks its
// record, so each limit has one owner at a time, and the lock ends with the owner. After a kill the record is still there: Restore puts the
// old setting back.
package limit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/quellhq/quell"
)

// DefaultRecords is the usual folder of the records. It is empty after a reboot, like the tree of control groups.
const DefaultRecords = "/run/quell/limits"

// Options say where groups and records are.
type Options struct {
	Root     string // folder below which sys and proc are; empty: /
	Records  string // folder of the records; all agents of a machine must use the same one; empty: DefaultRecords
	Disk     string // major:minor of the disk whose operations are limited; empty: the one that holds Root
	TakeOver bool   // also replace limits that somebody else has set, and put them back in the end

	Containers Containers // of pods; nil: none can be resized
}

func (o Options) filled() Options {
	o.Root, o.Records = cmp.Or(o.Root, "/"), cmp.Or(o.Records, DefaultRecords)
	return o
}

// setting is a limit as the kernel's files write it.
type setting string

// kind limits one resource of control groups, or of network interfaces.
type kind interface {
	// read returns the setting in force.
	read(group string) (setting, error)
	// write puts a setting in force, completely or not at all.
	write(group string, s setting) error
	// to returns the setting that limits a group to value, which is positive. now is the setting in force.
	to(value float64, now setting) setting
	// value returns what a setting allows; limited is false if it allows everything.
	value(s setting) (value float64, limited bool)
	// unit is the unit of values.
	unit() string
	// identity distinguishes a group from another one that has the same name later.
	identity(group string) (uint64, error)
}

// kind is the table of what can be limited.
func (o Options) kind(t Target) (kind, error) {
	switch (Target{Resource: t.Resource, Form: t.Form}) {
	case Target{Resource: quell.CPU}:
		return newCPU(o)
	case Target{Resource: quell.CPU, Form: Weight}:
		return newWeight(o)
	case Target{Resource: quell.CPU, Form: Resize}:
		return newResize(o)
	case Target{Resource: quell.Disk}:
		return newDisk(o)
	case Target{Resource: quell.Network}:
		return newNetwork()
	case Target{Resource: quell.Network, Form: Receiving}:
		return newIngress()
	}
	return nil, fmt.Errorf("%s cannot be limited", t.What())
}

// Form is how a limit bounds a resource. Without a form, it is the most that may be used.
type Form string

// Weight says how much a group gets relative to the other groups in the same group, while they want more than there is. Value 1 is the
// kernel's usual weight. Unlike a maximum, a weight wastes nothing: what a group does not use goes to the others. Receiving limits what an
// interface receives; without a form, what it sends is limited. Resize limits a container of a pod of Kubernetes through the API; its own
// limit is the most that it gets.
const (
	Weight    Form = "weight"
	Receiving Form = "receiving"
	Resize    Form = "resize"
)

// ErrChanged is part of the error if somebody else changed a limit after Apply had set it.
var ErrChanged = errors.New("somebody else changed it")

// Target is one resource of one control group or interface.
type Target struct {
	Group    string         `json:"group"` // path below the hierarchy, interface, or NAMESPACE/POD/CONTAINER
	Resource quell.Resource `json:"resource"`
	Form     Form           `json:"form,omitempty"`
}

// TargetOf returns what a limit of a plan limits, on the group with this path or the interface with this name.
func TargetOf(group string, l quell.Limit) Target {
	forms := map[string]Form{quell.WeightUnit: Weight, quell.ReceivedUnit: Receiving}
	return Target{Group: group, Resource: l.Resource, Form: forms[l.Unit]}
}

func (t Target) String() string { return t.What() + " of " + t.Group }

// What names what is limited, without the group.
func (t Target) What() string { return strings.TrimSuffix(string(t.Resource)+" "+string(t.Form), " ") }

// check returns what is wrong with the target's name, or "".
func (t Target) check() string {
	if t.Form == Resize {
		if strings.Count(t.Group, "/") != 2 {
			return fmt.Sprintf("%q is no container: give NAMESPACE/POD/CONTAINER", t.Group)
		}
		return ""
	}
	if t.Resource == quell.Network {
		if t.Group == "" || strings.ContainsAny(t.Group, "/ ") {
			return fmt.Sprintf("%q is no name of an interface", t.Group)
		}
		return ""
	}
	if !filepath.IsAbs(t.Group) || filepath.Clean(t.Group) != t.Group || t.Group == "/" {
		return fmt.Sprintf("%q is no control group below the root: give a path as in /system.slice/web.service", t.Group)
	}
	return ""
}

func byName(a, b Target) int {
	return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.What(), b.What()))
}

// Limits are the limits that this process has in force. It is not safe for concurrent use.
type Limits struct {
	opts Options
	held map[Target]*held
}

// held is a limit in force: its record, and the setting that was written last.
type held struct {
	*record
	kind kind
	ours setting
}

// New returns limits of which none is in force.
func New(o Options) *Limits { return &Limits{opts: o.filled(), held: map[Target]*held{}} }

// Apply makes these limits the only ones of this process that are in force. Values are in processors (cpu), in operations per second
// (disk), or in bit/s (network); weights are relative to the kernel's usual one. It writes only what differs, and reads back what it wrote.
// For each limit that is not in force it returns the reason.
func (l *Limits) Apply(wanted map[Target]float64) map[Target]error {
	failed := map[Target]error{}
	for _, t := range slices.SortedFunc(maps.Keys(l.held), byName) {
		if _, stays := wanted[t]; !stays {
			if err := l.lift(t); err != nil {
				failed[t] = err
			}
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(wanted), byName) {
		if err := l.set(t, wanted[t]); err != nil {
			failed[t] = err
		}
	}
	return failed
}

// Close puts back what was there before this process's limits.
func (l *Limits) Close() error {
	var errs []error
	for t, err := range l.Apply(nil) {
		errs = append(errs, fmt.Errorf("%s: %w", t, err))
	}
	return errors.Join(errs...)
}

// Before returns what a limit that this process has in force allowed before; ok is false if it has none.
func (l *Limits) Before(t Target) (value float64, ok bool) {
	h := l.held[t]
	if h == nil {
		return 0, false
	}
	value, _ = h.kind.value(h.record.Before)
	return value, true
}

// set puts one limit in force.
func (l *Limits) set(t Target, value float64) error {
	if !(value > 0) || math.IsInf(value, 0) {
		return fmt.Errorf("%v is no limit: it must be a positive number", value)
	}
	if problem := t.check(); problem != "" {
		return errors.New(problem)
	}
	h, now, err := l.hold(t)
	if err != nil {
		return err
	}
	next := h.kind.to(value, h.Before)
	if next != now {
		if err := h.kind.write(t.Group, next); err != nil {
			return errors.Join(err, l.dropUnused(t, now))
		}
		h.ours = next // also if it cannot be read back: it is not somebody else's
		inForce, err := h.kind.read(t.Group)
		if err != nil {
			return err
		}
		if h.ours = inForce; inForce != next {
			return fmt.Errorf("wrote %q, but %q is in force", next, inForce)
		}
	}
	return nil
}

// hold returns the record of a limit and the setting in force. Before a first change it makes the record.
func (l *Limits) hold(t Target) (*held, setting, error) {
	h := l.held[t]
	if h == nil {
		k, err := l.opts.kind(t)
		if err != nil {
			return nil, "", err
		}
		h = &held{kind: k}
	}
	now, err := h.kind.read(t.Group)
	if err != nil {
		return nil, "", err
	}
	id, err := h.kind.identity(t.Group)
	if err != nil {
		return nil, "", err
	}
	if h.record != nil {
		switch {
		case h.Folder != id: // the group was removed and made again, without our limit
			err = l.forget(t)
		case h.foreign(now):
			return nil, "", errors.Join(fmt.Errorf("%w from %q to %q: left as it is", ErrChanged, h.ours, now), l.forget(t))
		default:
			return h, now, nil
		}
		if err != nil {
			return nil, "", err
		}
		h = &held{kind: h.kind}
	}
	if value, limited := h.kind.value(now); limited && !l.opts.TakeOver && t.Form != Resize {
		return nil, "", fmt.Errorf("%s already has a limit of %g %s that somebody else set: remove it, or set take_over", t.Group, value,
			h.kind.unit())
	}
	found := content{Target: t, Folder: id, Before: now, PID: os.Getpid(), At: time.Now().UTC()}
	if h.record, err = newRecord(l.opts.Records, found); err != nil {
		return nil, "", err
	}
	h.ours = now
	l.held[t] = h
	return h, now, nil
}

// foreign returns whether somebody else has made the setting in force. What the API has carried out, although its answer got lost, is ours.
func (h *held) foreign(now setting) bool {
	others, told := h.kind.(shared)
	return now != h.ours && !(told && !others.changed(h.Group))
}

// dropUnused removes a record if nothing differs from it: the first change failed. If that is not sure, it stays.
func (l *Limits) dropUnused(t Target, now setting) error {
	h := l.held[t]
	if h == nil {
		return nil
	}
	if _, unsure := h.kind.(shared); !unsure && h.Before == now {
		return l.forget(t)
	}
	return nil
}

// forget removes a record and leaves the setting as it is.
func (l *Limits) forget(t Target) error {
	h := l.held[t]
	delete(l.held, t)
	return h.remove()
}

// lift puts back what was there before one limit. If that fails, the limit is still held, so that it can be tried again.
func (l *Limits) lift(t Target) error {
	h := l.held[t]
	if now, err := h.kind.read(t.Group); err == nil && h.foreign(now) {
		return l.forget(t)
	}
	if _, err := h.restore(h.kind); err != nil {
		return err
	}
	delete(l.held, t)
	return nil
}

// inode is the identity of a folder.
func inode(folder string) (uint64, error) {
	info, err := os.Stat(folder)
	if err != nil {
		return 0, explain(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("the inode of %s is not known", folder)
	}
	return stat.Ino, nil
}
