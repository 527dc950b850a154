package sensor

import (
	"errors"
	"io/fs"
	"path"
	"time"

	"github.com/quellhq/quell"
)

// Groups reads several control groups, of version 1 or 2, and the machine that they run on. It is not safe for concurrent use.
type Groups struct {
	root    fs.FS
	wanted  []Group
	files   *keptFiles // nil: files are opened anew each time
	mounted *hierarchy
	looked  time.Time // when mounted was found

	// Of the last sample:
	last    time.Time
	machine *machineAccount
	groups  map[string]*groupHistory // by path
	named   map[string]found
}

// remount is how long what is mounted counts as known. Reading it takes as long as reading the rest of a small machine.
const remount = 10 * time.Second

// groupHistory is what the samples up to now tell about a group.
type groupHistory struct {
	account *groupAccount
	demand  *Demand
	ready   *readyCounts // nil: its work is not done by tasks that come and go
}

// tasks is how many tasks the group had; 0 if it is new.
func (h *groupHistory) tasks() int {
	if h == nil {
		return 0
	}
	return len(h.account.tasks)
}

// NewGroups returns a reader of the groups below root, which holds proc and sys.
func NewGroups(root fs.FS, wanted []Group) (*Groups, error) {
	files := keepFiles(root)
	g := &Groups{root: files, files: files}
	if err := g.Want(wanted); err != nil {
		return nil, err
	}
	return g, nil
}

// Want replaces the groups that are read from the next sample on. What is known of those that stay is kept.
func (g *Groups) Want(wanted []Group) error {
	for _, one := range wanted {
		if problem := one.Check(); problem != "" {
			return &quell.UserError{Err: errors.New(problem)}
		}
	}
	g.wanted = wanted
	return nil
}

// hierarchy returns where groups are mounted.
func (g *Groups) hierarchy(now time.Time) (*hierarchy, error) {
	if age := now.Sub(g.looked); g.mounted != nil && age >= 0 && age < remount {
		return g.mounted, nil
	}
	h, err := findHierarchy(g.root)
	g.mounted, g.looked = h, now
	return h, err
}

// Sample returns what was measured since the previous call, and what could not be read. The snapshot has no host name; its instances are
// the groups that exist. A group that is read for the first time, or that cannot be read now, has no observation. If it is not known which
// groups exist, the snapshot is empty, and the next call returns what was measured since the last one that succeeded.
func (g *Groups) Sample(now time.Time) (quell.Snapshot, []Failure) {
	s := quell.Snapshot{At: now.UTC()}
	window := now.Sub(g.last)
	if g.last.IsZero() || window <= 0 {
		window = 0 // there is no previous reading to compare with
	}
	g.Subsample(now)
	h, err := g.hierarchy(now)
	if err != nil {
		return s, []Failure{{"groups", err}}
	}
	var failures []Failure
	fail := func(what string, err error) {
		if err != nil {
			failures = append(failures, Failure{what, err})
		}
	}
	machine, err := readMachine(g.root)
	fail("machine", err)
	if window > 0 && g.machine != nil && machine != nil {
		s.Machine, err = g.machine.until(machine, now, window)
		fail("machine", err)
	}
	before := g.groups
	g.last, g.machine, g.groups, g.named = now, machine, map[string]*groupHistory{}, map[string]found{}
	list, missing := g.find(h)
	failures = append(failures, missing...)
	tasks := newTaskReader(g.root)
	tasks.always = true
	if tasks.files = g.files; g.files != nil {
		defer g.files.closeUnused()
	}
	// A group that has very many tasks all at once must not take what the groups after it need.
	for _, one := range list {
		tasks.kept += before[one.path].tasks()
	}
	for _, one := range list {
		l := h.group(one.path)
		tasks.kept -= before[one.path].tasks()
		account, err := readGroup(l, now, tasks)
		fail("group "+one.name, err)
		last := before[one.path]
		if account == nil {
			if last != nil {
				g.groups[one.path], g.named[one.name] = last, one
				s.Instances = append(s.Instances, one.instance(last.account))
			}
			continue
		}
		in := one.instance(account)
		history := &groupHistory{account: account, demand: &Demand{}}
		if last != nil && now.After(last.account.at) {
			in.Observation, err = last.account.until(account, now, now.Sub(last.account.at))
			fail("group "+one.name, err)
			if err == nil && account.tasks != nil {
				history.demand, history.ready = g.demand(l, last, account, in.Observation)
			}
		}
		g.groups[one.path], g.named[one.name] = history, one
		s.Instances = append(s.Instances, in)
	}
	fail("tasks", tasks.err())
	return s, failures
}

// instance is the group in a snapshot, without what was measured.
func (f found) instance(account *groupAccount) quell.Instance {
	in := quell.Instance{ID: f.name, State: quell.Ready, Within: path.Dir(f.path)}
	if f.entry.Share > 0 {
		in.Share = &f.entry.Share
	}
	if account.quota > 0 {
		in.Limits = map[quell.Resource]float64{quell.CPU: account.quota}
	}
	return in
}

// Named returns the path of a group in the last sample, and the entry that it was found by; ok is false if it was not there.
func (g *Groups) Named(name string) (path string, entry Group, ok bool) {
	f, ok := g.named[name]
	return f.path, f.entry, ok
}
