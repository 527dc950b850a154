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
	root   fs.FS
	wanted []Group
	last   time.Time
	before *hostAccounts
	named  map[string]found        // the groups in the last sample
	ready  map[string]*readyCounts // of groups whose work is done by tasks that come and go, by path
	files  *keptFiles              // nil: files are opened anew each time

	mounted *hierarchy
	looked  time.Time // when mounted was found
}

// remount is how long what is mounted counts as known. Reading it takes as long as reading the rest of a small machine.
const remount = 10 * time.Second

// hostAccounts holds the counters of a machine and of its groups at one moment.
type hostAccounts struct {
	machine *machineAccount
	groups  map[string]*groupAccount // by path
}

// NewGroups returns a reader of the groups below root, which holds proc and sys.
func NewGroups(root fs.FS, wanted []Group) (*Groups, error) {
	for _, g := range wanted {
		if problem := g.Check(); problem != "" {
			return nil, &quell.UserError{Err: errors.New(problem)}
		}
	}
	files := keepFiles(root)
	return &Groups{root: files, wanted: wanted, files: files}, nil
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
// the groups that exist. A group that is read for the first time has no observation yet.
func (g *Groups) Sample(now time.Time) (quell.Snapshot, []Failure) {
	s := quell.Snapshot{At: now.UTC()}
	window := now.Sub(g.last)
	if g.last.IsZero() || window <= 0 {
		window = 0 // there is no previous reading to compare with
	}
	g.Glance(now)
	before, ready := g.before, map[string]*readyCounts{}
	after := &hostAccounts{groups: map[string]*groupAccount{}}
	g.last, g.before, g.named = now, after, map[string]found{}

	var failures []Failure
	fail := func(what string, err error) {
		if err != nil {
			failures = append(failures, Failure{what, err})
		}
	}
	var err error
	after.machine, err = readMachine(g.root)
	fail("machine", err)
	if window > 0 && before.machine != nil && after.machine != nil {
		s.Machine, err = before.machine.until(after.machine, now, window)
		fail("machine", err)
	}
	h, err := g.hierarchy(now)
	if err != nil {
		fail("groups", err)
		return s, failures
	}
	list, missing := g.find(h)
	failures = append(failures, missing...)
	tasks := newTaskReader(g.root)
	tasks.always = true
	if tasks.files = g.files; g.files != nil {
		defer g.files.closeUnused()
	}
	for _, one := range list {
		account, err := readGroup(h.group(one.path), now, tasks)
		fail("group "+one.name, err)
		if account == nil {
			continue
		}
		after.groups[one.path], g.named[one.name] = account, one
		in := quell.Instance{ID: one.name, State: quell.Ready, Within: path.Dir(one.path)}
		if one.entry.Share > 0 {
			in.Share = &one.entry.Share
		}
		if account.quota > 0 {
			in.Limits = map[quell.Resource]float64{quell.CPU: account.quota}
		}
		if window > 0 && before.groups[one.path] != nil {
			in.Observation, err = before.groups[one.path].until(account, now, window)
			fail("group "+one.name, err)
			if err == nil && account.tasks != nil {
				if counts := g.estimate(h.group(one.path), account.known, g.ready[one.path], in.Observation); counts != nil {
					ready[one.path] = counts
				}
			}
		}
		s.Instances = append(s.Instances, in)
	}
	g.ready = ready
	fail("tasks", tasks.err())
	return s, failures
}

// Named returns the path of a group in the last sample, and the entry that it was found by; ok is false if it was not there.
func (g *Groups) Named(name string) (path string, entry Group, ok bool) {
	f, ok := g.named[name]
	return f.path, f.entry, ok
}
