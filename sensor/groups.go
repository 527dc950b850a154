package sensor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quellhq/quell"
)

// Limits of what is read in one period. Exceeding one is reported as a failure.
const (
	mostGroups = 1000
	mostTasks  = 20_000
)

// Group names control groups to read: either one path below the hierarchy, like /system.slice/web.service, or a pattern like
// /system.slice/*.service, in which a star stands for any part of one name.
type Group struct {
	Name  string // of a single group; empty: the last part of its path. A pattern's groups are named by what its stars stand for
	Path  string
	Share float64 // importance of each group, for policies that divide a resource; 0: not given, which counts as 1
	Alone float64 // units of work per second that each group reports when it has the machine to itself; 0: not given
}

// pattern returns whether the path is a pattern for several groups.
func (g Group) pattern() bool { return strings.ContainsAny(g.Path, `*?[\`) }

// fixed returns the folder that contains all groups of a pattern.
func (g Group) fixed() string {
	folder := path.Dir(g.Path)
	for strings.ContainsAny(folder, `*?[\`) {
		folder = path.Dir(folder)
	}
	return strings.TrimSuffix(folder, "/") + "/"
}

// Check returns what is wrong with a group's path, or "".
func (g Group) Check() string {
	switch _, err := path.Match(g.Path, ""); {
	case !path.IsAbs(g.Path) || path.Clean(g.Path) != g.Path:
		return fmt.Sprintf("%q is not a control group: give a path below the hierarchy as in /system.slice/web.service, or a pattern as in "+
			"/system.slice/*.service", g.Path)
	case g.Path == "/":
		return "\"/\" is the whole machine: name groups below it"
	case err != nil:
		return fmt.Sprintf("%q is no pattern: %v", g.Path, err)
	case g.Name != "" && g.pattern():
		return fmt.Sprintf("the groups of a pattern are named after their folders: remove the name %q", g.Name)
	}
	return ""
}

// found is a group that exists.
type found struct {
	name, path string
	entry      Group // of the configuration
}

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

// find lists the existing groups, each once, sorted by name, and reports missing ones as failures. A pattern without a match is not a
// failure, because its services may start later.
func (g *Groups) find(h *hierarchy) (list []found, failures []Failure) {
	seen := map[string]string{} // paths by name
	add := func(name, at string, entry Group) {
		other, taken := seen[name]
		within := slices.IndexFunc(list, func(f found) bool { return inside(at, f.path) || inside(f.path, at) })
		switch {
		case slices.ContainsFunc(list, func(f found) bool { return f.path == at }): // found by another entry
		case taken:
			failures = append(failures, Failure{"group " + at,
				fmt.Errorf("it is named %s like %s, and left out: give one of the two a name of its own", name, other)})
		case within >= 0:
			failures = append(failures, Failure{"group " + at,
				fmt.Errorf("it is left out: one of it and %s lies inside the other, and time would count twice", list[within].path)})
		case len(list) == mostGroups:
			failures = append(failures, Failure{"groups", fmt.Errorf("there are more than %d: the rest is left out", mostGroups)})
		default:
			seen[name] = at
			list = append(list, found{name, at, entry})
		}
	}
	for _, wanted := range g.wanted {
		if wanted.pattern() {
			for _, at := range h.match(wanted.Path) {
				add(strings.TrimPrefix(at, wanted.fixed()), at, wanted)
			}
			continue
		}
		name := cmp.Or(wanted.Name, path.Base(wanted.Path))
		if !h.exists(wanted.Path) {
			failures = append(failures, Failure{"group " + name, fmt.Errorf("there is no control group %s", wanted.Path)})
			continue
		}
		add(name, wanted.Path, wanted)
	}
	slices.SortFunc(list, func(a, b found) int { return strings.Compare(a.name, b.name) })
	return list, failures
}

// inside returns whether a group lies below another one.
func inside(at, around string) bool {
	return strings.HasPrefix(at, strings.TrimSuffix(around, "/")+"/")
}

// exists returns whether a group exists.
func (h *hierarchy) exists(group string) bool {
	info, err := fs.Stat(h.root, h.usage.Folder(group))
	return err == nil && info.IsDir()
}

// match lists the groups of a pattern, sorted. A folder that cannot be read counts as empty.
func (h *hierarchy) match(pattern string) (groups []string) {
	folders, _ := fs.Glob(h.root, h.usage.Folder(pattern)) // no error: the pattern was checked before
	for _, folder := range folders {
		if info, err := fs.Stat(h.root, folder); err == nil && info.IsDir() {
			groups = append(groups, h.usage.Group(folder))
		}
	}
	return groups
}

// machineAccount holds a machine's counters at one moment.
type machineAccount struct {
	ticks    cpuTicks
	wait     *float64 // seconds that tasks spent in run queues; nil if the kernel does not report it
	pressure map[string]stall
}

func readMachine(root fs.FS) (*machineAccount, error) {
	m, err := readProcessors(root)
	if m == nil {
		return nil, err
	}
	var errPressure error
	m.pressure, errPressure = readStalls(root, "proc/pressure", "")
	return m, errors.Join(errPressure, err)
}

// readProcessors reads a machine's counters except those of pressure. If it returns both an account and an error, the error is about values
// that the account lacks.
func readProcessors(root fs.FS) (*machineAccount, error) {
	text, err := fs.ReadFile(root, "proc/stat")
	if err != nil {
		return nil, fmt.Errorf("reading processor times: %w", err)
	}
	m := &machineAccount{}
	if m.ticks, err = parseStat(text); err != nil {
		return nil, fmt.Errorf("parsing /proc/stat: %w", err)
	}
	text, errSched := fs.ReadFile(root, "proc/schedstat")
	if errors.Is(errSched, fs.ErrNotExist) {
		return m, nil
	}
	if errSched == nil {
		var wait float64
		if wait, errSched = parseSchedstat(text); errSched == nil {
			m.wait = &wait
		}
	}
	return m, errSched
}

// until returns what the machine did between two moments.
func (before *machineAccount) until(after *machineAccount, now time.Time, window time.Duration) (*quell.Observation, error) {
	spent, err := before.ticks.until(after.ticks)
	if err != nil {
		return nil, err
	}
	cores := float64(after.ticks.cores)
	all := cores * window.Seconds()
	user, system := spent.User*all, spent.System*all
	obs := &quell.Observation{
		At: now.UTC(), WindowS: window.Seconds(), CPU: &spent, Pressure: pressureBetween(before.pressure, after.pressure, window),
		Utilization: map[quell.Resource]float64{quell.CPU: spent.User + spent.System},
		Sched:       &quell.Sched{Cores: cores, RunS: user + system, UserS: &user, SystemS: &system},
	}
	if before.wait != nil && after.wait != nil && *after.wait >= *before.wait {
		wait := *after.wait - *before.wait
		obs.Sched.WaitS = &wait
	}
	return obs, nil
}

// groupAccount holds a group's counters at one moment.
type groupAccount struct {
	groupReading
	user, system *time.Duration
	pressure     map[string]stall
	tasks        map[int]taskTimes // nil if they were not read
	disks        bool              // tasks has the time for which each waited for disks
	known        float64           // processor seconds, since the account before, of tasks that are in both
}

// readGroup returns what could be read of a group, and an error about what could not. If the processor time cannot be read, it returns only
// the error.
func readGroup(l *groupLayout, now time.Time, tasks *taskReader) (*groupAccount, error) {
	reading, err := l.read(now)
	if err != nil {
		return nil, err
	}
	account := &groupAccount{groupReading: *reading}
	account.user, account.system = l.split()
	if l.unified {
		account.pressure, err = readStalls(l.root, l.cpu, ".pressure")
	}
	if _, told := account.pressure["cpu"]; !told || tasks.always {
		account.tasks, account.disks = tasks.read(l), tasks.disks
	}
	return account, err
}

// split returns user and system time, nil if the kernel does not report them.
func (l *groupLayout) split() (user, system *time.Duration) {
	if l.unified {
		stat, err := l.stat(l.cpu)
		if err != nil {
			return nil, nil
		}
		of := func(key string) *time.Duration {
			us, ok := stat[key]
			if !ok {
				return nil
			}
			d := time.Duration(us) * time.Microsecond
			return &d
		}
		return of("user_usec"), of("system_usec")
	}
	of := func(file string) *time.Duration {
		ns, err := l.number(path.Join(l.usage, file))
		if err != nil {
			return nil
		}
		d := time.Duration(ns)
		return &d
	}
	return of("cpuacct.usage_user"), of("cpuacct.usage_sys")
}

// until returns what the group did between two moments.
func (before *groupAccount) until(after *groupAccount, now time.Time, window time.Duration) (*quell.Observation, error) {
	cores, throttled, err := before.groupReading.until(&after.groupReading)
	if err != nil {
		return nil, err
	}
	obs := &quell.Observation{At: now.UTC(), WindowS: window.Seconds(), Pressure: pressureBetween(before.pressure, after.pressure, window)}
	if throttled != nil {
		obs.Counters = map[string]float64{CounterThrottled: *throttled}
	}
	obs.Sched = &quell.Sched{
		Cores: after.quota, RunS: cores * window.Seconds(),
		UserS: elapsed(before.user, after.user), SystemS: elapsed(before.system, after.system),
	}
	if before.limited == after.limited { // otherwise a quota was set or removed, or another group has the least one now
		obs.Sched.ThrottledS = elapsed(&before.stopped, &after.stopped)
	}
	if before.tasks != nil && after.tasks != nil {
		if _, told := obs.Pressure["cpu"]; !told {
			obs.Sched.WaitS, obs.Sched.TaskRunS = waited(before.tasks, after.tasks, window)
		}
		obs.Sched.FreeS, after.known = free(before.tasks, after.tasks, window, obs.Sched.RunS)
	}
	return obs, nil
}

func elapsed(before, after *time.Duration) *float64 {
	if before == nil || after == nil || *after < *before {
		return nil
	}
	seconds := (*after - *before).Seconds()
	return &seconds
}

// waited returns how long tasks waited in run queues, in seconds, and a task's mean running time, weighted by how long each task waited. A
// task that is seen for the first time counts with its whole time, if it can have started within the window. Tasks that ended in between
// are not counted.
func waited(before, after map[int]taskTimes, window time.Duration) (wait, taskRun *float64) {
	var sum, product float64
	for id, now := range after {
		then, known := before[id]
		if known && (now.run < then.run || now.wait < then.wait) || !known && now.run+now.wait > window {
			continue // the task's number was reused, or an old task was moved into the group
		}
		w := (now.wait - then.wait).Seconds()
		sum += w
		product += w * (now.run - then.run).Seconds()
	}
	if sum > 0 {
		mean := product / sum
		taskRun = &mean
	}
	return &sum, taskRun
}

// free returns the processor time that a group would have used if each of its tasks had had a processor of its own, in seconds: a task that
// waited for a part of the window would have done its work in the rest of it. Tasks that started or ended in the window are thought to be
// like the others. run is the processor time of the whole group, and known that of the tasks whose waiting is known. The result is nil if
// there are none.
func free(before, after map[int]taskTimes, window time.Duration, run float64) (seconds *float64, known float64) {
	const least = 0.001 // part of the window: a task that hardly ran at all
	alone := 0.0
	for id, now := range after {
		then, ok := before[id]
		if !ok || now.run <= then.run || now.wait < then.wait {
			continue
		}
		ran := (now.run - then.run).Seconds()
		rest := max(1-(now.wait-then.wait).Seconds()/window.Seconds(), ran/window.Seconds(), least)
		known += ran
		alone += ran / rest
	}
	if known == 0 {
		return nil, 0
	}
	sum := run * alone / known
	return &sum, known
}

// taskReader reads how long tasks ran and waited.
type taskReader struct {
	root   fs.FS
	told   bool // the kernel reports it
	disks  bool // also how long they waited for disks
	always bool // also where pressure tells how long the group waits
	left   int
	files  *keptFiles // nil: files are opened anew each time
}

func newTaskReader(root fs.FS) *taskReader {
	_, err := fs.ReadFile(root, "proc/self/schedstat")
	return &taskReader{root: root, told: err == nil, left: mostTasks}
}

// err returns an error if some groups' tasks were not read.
func (t *taskReader) err() error {
	if t.left >= 0 {
		return nil
	}
	return fmt.Errorf("the groups have more than %d tasks: how the rest waits is not known; name fewer groups", mostTasks)
}

// read returns the times of the tasks of a group and of the groups below it; nil if they are unknown.
func (t *taskReader) read(l *groupLayout) map[int]taskTimes {
	if !t.told || t.left < 0 {
		return nil
	}
	times := map[int]taskTimes{}
	t.walk(l.usage, l.taskList(), func(id string) { t.add(times, id) })
	if t.left < 0 {
		return nil
	}
	return times
}

// taskList is the name of the file that lists the group's tasks.
func (l *groupLayout) taskList() string {
	if l.unified {
		return "cgroup.threads"
	}
	return "tasks"
}

// walk calls visit with each task that is listed in a folder and in those below it. A group that ends meanwhile is skipped.
func (t *taskReader) walk(folder, list string, visit func(id string)) {
	text, err := fs.ReadFile(t.opening(), path.Join(folder, list))
	if err != nil {
		return
	}
	for id := range strings.FieldsSeq(string(text)) {
		if t.left--; t.left < 0 {
			return
		}
		visit(id)
	}
	if !hasFolders(t.root, folder) {
		return
	}
	entries, _ := fs.ReadDir(t.root, folder) // the group may end meanwhile
	for _, e := range entries {
		if e.IsDir() && t.left >= 0 {
			t.walk(path.Join(folder, e.Name()), list, visit)
		}
	}
}

// hasFolders returns whether a folder may have folders in it. The kernel's file system of control groups counts them: a folder has a link
// for each, and two more. Reading the count is much faster than listing the folder.
func hasFolders(root fs.FS, folder string) bool {
	info, err := fs.Stat(root, folder)
	if err != nil {
		return true
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || stat.Nlink != 2
}

// opening returns the file system in which every file is opened anew. Lists of tasks need that: in version 1, a list that is read again
// within a second of the last reading still has the tasks of the moment in which it was opened.
func (t *taskReader) opening() fs.FS {
	if t.files == nil {
		return t.root
	}
	return t.files.root
}

func (t *taskReader) readFile(name string) ([]byte, error) {
	if t.files == nil {
		return fs.ReadFile(t.root, name)
	}
	return t.files.read(name)
}

// add reads the times of a task. One that ends meanwhile is skipped.
func (t *taskReader) add(times map[int]taskTimes, id string) {
	number, err := strconv.Atoi(id)
	if err != nil || number <= 0 {
		return
	}
	text, err := t.readFile("proc/" + id + "/schedstat")
	if err != nil {
		return
	}
	one, err := parseTaskSchedstat(text)
	if err != nil {
		return
	}
	if t.disks {
		text, err := fs.ReadFile(t.root, "proc/"+id+"/stat")
		if err != nil {
			return
		}
		if one.disk, err = parseTaskDisk(text); err != nil {
			return
		}
	}
	times[number] = one
}
