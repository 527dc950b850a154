package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/quellhq/quell/internal/strictjson"
)

// Every instance has a mark in its environment: its own record, and the path of the state folder. By the mark, an instance is found again
// if instances.json was lost, or if the controller was killed after the fork but before it wrote instances.json.
const (
	markEnv     = "QUELL_RECORD"
	instanceEnv = "QUELL_INSTANCE" // the id, for use by the instance
)

// mark is the content of the mark.
type mark struct {
	Folder string `json:"folder"` // absolute path
	record
}

// marks are the environment variables of an instance.
func marks(dir string, r *record) ([]string, error) {
	folder, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	m := mark{folder, *r}
	m.PID, m.ProcessStart = 0, ""
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return []string{instanceEnv + "=" + r.ID, markEnv + "=" + string(data)}, nil
}

// readMark finds the mark of a state folder in an environment.
func readMark(environ []string, folder string) (r record, ok bool) {
	i := slices.IndexFunc(environ, func(v string) bool { return strings.HasPrefix(v, markEnv+"=") })
	if i < 0 {
		return record{}, false
	}
	var m mark
	if strictjson.Decode([]byte(strings.TrimPrefix(environ[i], markEnv+"=")), &m) != nil || m.Folder != folder || m.check() != nil {
		return record{}, false
	}
	return m.record, true
}

// marked is a process with a mark.
type marked struct {
	record        // with pid and start
	parent, group int
	listens       bool // on the instance's port
}

// orphan is a running instance that is missing from instances.json.
type orphan struct {
	record
	listens bool
	why     string // why it cannot be adopted; empty if it can
}

// orphansOf separates instances from processes that they started, which have the same mark. An instance is the leader of a
// process group whose parent is outside the group, and it or a process that it started listens on its port.
func orphansOf(found []marked) (orphans []orphan) {
	byPID := map[int]marked{}
	for _, m := range found {
		byPID[m.PID] = m
	}
	listening := map[string]bool{}
	for _, m := range found {
		listening[m.ID] = listening[m.ID] || m.listens
	}
	for _, m := range found {
		if parent, ok := byPID[m.parent]; m.group == m.PID && !(ok && parent.ID == m.ID) {
			orphans = append(orphans, orphan{record: m.record, listens: listening[m.ID]})
		}
	}
	slices.SortFunc(orphans, func(a, b orphan) int { return a.Started.Compare(b.Started) })
	return orphans
}

// claim adopts an orphan, either into the record that was written before its fork or into a new one. why is the reason if it
// cannot.
func (l *ledger) claim(o orphan, slots int) (r *record, why string) {
	r = l.find(o.ID)
	switch {
	case r != nil && r.PID == 0 && r.Exited == nil && r.Port == o.Port:
		r.PID, r.ProcessStart = o.PID, o.ProcessStart
		return r, ""
	case !o.listens:
		return nil, fmt.Sprintf("none of its processes listens on port %d", o.Port)
	case r != nil:
		return nil, "another instance has its id"
	case o.Slot > slots:
		return nil, fmt.Sprintf("there are %d slots, and it has number %d", slots, o.Slot)
	case slices.ContainsFunc(l.Instances, func(other *record) bool { return other.Exited == nil && other.Slot == o.Slot }):
		return nil, fmt.Sprintf("another instance has its slot, %d", o.Slot)
	}
	taken := o.record
	l.Instances = append(l.Instances, &taken)
	slices.SortStableFunc(l.Instances, func(a, b *record) int { return a.Started.Compare(b.Started) })
	l.FreedSlots = without(l.FreedSlots, taken.Slot)
	return &taken, ""
}

// passOver makes sure that an id is not used again.
func (l *ledger) passOver(prefix, id string) {
	number, ok := strings.CutPrefix(id, prefix)
	if n, err := strconv.Atoi(number); ok && err == nil && n < math.MaxInt32 {
		l.Next = max(l.Next, n+1)
	}
}

// seek finds running instances that are not listed, adopts those that can be, and remembers the others.
func (d *Driver) seek() (adopted []*record, err error) {
	found, err := findMarked(d.opts.Dir)
	if err != nil {
		return nil, err
	}
	known := map[int]bool{}
	for _, r := range d.ledger.Instances {
		known[r.PID] = r.Exited == nil
	}
	before := d.orphans
	d.orphans = nil
	for _, o := range orphansOf(found) {
		if known[o.PID] {
			continue
		}
		d.ledger.passOver(d.opts.Prefix, o.ID)
		r, why := d.ledger.claim(o, d.opts.Slots)
		if r != nil {
			d.opts.Logger.Warn("an instance that was not listed is found by its mark", "instance", o.ID, "pid", o.PID, "address", o.Address)
			adopted = append(adopted, r)
			continue
		}
		o.why = why
		d.orphans = append(d.orphans, o)
		if !slices.ContainsFunc(before, func(b orphan) bool { return b.PID == o.PID && b.why == o.why }) {
			d.opts.Logger.Warn("an instance runs that is not listed, and cannot be adopted", "instance", o.ID, "pid", o.PID, "because", why)
		}
	}
	return adopted, nil
}

// seekAgain checks the instances that could not be adopted before: one may listen by now, or have ended.
func (d *Driver) seekAgain() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.orphans) == 0 || d.closed {
		return nil
	}
	adopted, err := d.seek()
	if len(adopted) == 0 {
		return err
	}
	for _, r := range adopted {
		d.follow(newRunning(r, nil))
	}
	d.saveOrWarn()
	return err
}

// Report lists instances of this folder that run without being listed, and why they are not adopted.
func (d *Driver) Report() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, o := range d.orphans {
		errs = append(errs,
			fmt.Errorf("process %d is instance %s of this folder, but is not listed and cannot be adopted: %s. End it if nothing needs it", o.PID,
				o.ID, o.why))
	}
	return errors.Join(errs...)
}
