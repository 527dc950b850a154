package sensor

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/cgroup"
	"github.com/quellhq/quell/internal/terminal"
)

// Top finds which program uses most of the processors and of the disks, apart from the service: from the programs that wait for
// connections, and from the agent itself. It sees the control group of the service, or else the whole machine. It must be sampled after
// CPU, Disk and Memory. Programs that it may not look at count as the service's.
type Top struct {
	opts  Options
	group *cgroupAccount // nil: all processes
	memo  *Memory        // tells whether the processors stand for the memory; nil: the memory is not measured
	last  map[process]spent
	at    time.Time
}

// process identifies a process: its number may be used again.
type process struct {
	pid   int
	start uint64
}

// spent is what a process has used since it started.
type spent struct {
	name  string
	ticks uint64
	bytes uint64 // read from disks and written to them
}

const (
	// mostProcesses is the largest number of processes that are looked at in each period.
	mostProcesses = 4096
	// topLooked is how many of the largest users are looked at for connections that they wait for.
	topLooked = 5
	// leastTop is the least use, a fraction of the resource, that is worth telling.
	leastTop = 0.02
)

// NewTop returns a sensor of the largest users. memory may be nil.
func NewTop(o Options, memory *Memory) *Top {
	t := &Top{opts: o, memo: memory}
	if o.Cgroup != "" {
		t.group = &cgroupAccount{root: o.Root, name: o.Cgroup}
	}
	return t
}

// Name is "top".
func (t *Top) Name() string { return "top" }

// Sample implements Sensor.
func (t *Top) Sample(now time.Time, obs *quell.Observation) error {
	before, since := t.last, t.at
	t.last = nil
	after, err := t.read()
	if err != nil {
		return err
	}
	t.last, t.at = after, now
	window := now.Sub(since).Seconds()
	if before == nil || window <= 0 {
		return nil
	}
	seconds, operations, bytes := map[string]float64{}, map[string]float64{}, map[string]float64{}
	largest := map[string]process{} // of each program, for a look at its connections
	most := map[string]float64{}
	for id, a := range after {
		b := before[id] // a new process has used all of it since
		ran := float64(a.ticks-min(a.ticks, b.ticks)) / ticksPerSecond
		moved := float64(a.bytes - min(a.bytes, b.bytes))
		seconds[a.name] += ran
		operations[a.name] += moved / pageBytes
		bytes[a.name] += moved
		if weight := ran + moved/(1<<20); weight > most[a.name] || largest[a.name].pid == 0 {
			most[a.name], largest[a.name] = weight, id
		}
	}
	if s := obs.Sched; s != nil && s.Cores > 0 {
		t.tell(obs, quell.CPU, seconds, window*s.Cores, largest)
		if top, told := obs.Top[quell.CPU]; told && t.memo != nil && t.memo.Substitute() != "" {
			obs.Top[quell.Memory] = top
		}
	}
	if capacity := t.opts.Capacity[quell.Disk]; capacity > 0 {
		t.tell(obs, quell.Disk, operations, window*capacity, largest)
	} else if t.opts.DiskBytes > 0 {
		t.tell(obs, quell.Disk, bytes, window*t.opts.DiskBytes, largest)
	}
	return nil
}

// tell enters the program with the highest use, apart from those that wait for connections. whole is the use of the whole resource.
func (t *Top) tell(obs *quell.Observation, r quell.Resource, used map[string]float64, whole float64, largest map[string]process) {
	names := slices.SortedFunc(maps.Keys(used), func(a, b string) int {
		return cmp.Or(cmp.Compare(used[b], used[a]), strings.Compare(a, b))
	})
	for _, name := range names[:min(len(names), topLooked)] {
		use := used[name] / whole
		if use < leastTop {
			return
		}
		pid := strconv.Itoa(largest[name].pid)
		if t.serves(pid) {
			continue
		}
		quell.Put(&obs.Top, r, quell.User{Name: t.label(pid, name), Use: min(use, 1)})
		return
	}
}

// read lists what the processes have used.
func (t *Top) read() (map[process]spent, error) {
	pids, err := t.processes()
	if err != nil {
		return nil, err
	}
	if len(pids) > mostProcesses {
		return nil, &Unavailable{fmt.Sprintf("there are more than %d processes", mostProcesses),
			"set agent.cgroup, and only those of the service are looked at"}
	}
	self, _ := fs.ReadLink(t.opts.Root, "proc/self") // absent in trees of files: then no process is this one
	all := make(map[process]spent, len(pids))
	disks := t.opts.Capacity[quell.Disk] > 0 || t.opts.DiskBytes > 0
	for _, pid := range pids {
		text, err := fs.ReadFile(t.opts.Root, path.Join("proc", pid, "stat"))
		if err != nil || pid == self {
			continue // it has just ended
		}
		id, s, ok := parseProcess(text)
		if !ok {
			continue
		}
		if disks {
			s.bytes, _ = cgroup.ProcessBytes(t.opts.Root, pid) // of another user's process they are not told
		}
		all[id] = s
	}
	return all, nil
}

// processes lists the processes of the service's control group and of the groups below it, or of the machine.
func (t *Top) processes() (pids []string, err error) {
	if t.group == nil {
		entries, err := fs.ReadDir(t.opts.Root, "proc")
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if name := e.Name(); name[0] >= '1' && name[0] <= '9' {
				pids = append(pids, name)
			}
		}
		return pids, nil
	}
	layout, err := t.group.layout()
	if err != nil {
		return nil, t.group.failed(err)
	}
	reader := taskReader{root: t.opts.Root, left: mostProcesses + 1}
	reader.walk(layout.tasks(), "cgroup.procs", func(pid string) { pids = append(pids, pid) })
	return pids, nil
}

// kernelThread is the flag of the kernel's own threads in /proc/PID/stat (PF_KTHREAD of linux/sched.h).
const kernelThread = 0x00200000

// parseProcess reads /proc/PID/stat (proc(5)); ok is false for threads of the kernel and for what cannot be read.
func parseProcess(text []byte) (id process, s spent, ok bool) {
	begin, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if begin < 2 || end < begin {
		return id, s, false
	}
	f := strings.Fields(string(text[end+1:])) // from the state on, which is field 3
	if len(f) < 20 {
		return id, s, false
	}
	var numbers [4]uint64
	for i, k := range []int{6, 11, 12, 19} { // flags, utime, stime, starttime
		n, err := strconv.ParseUint(f[k], 10, 64)
		if err != nil {
			return id, s, false
		}
		numbers[i] = n
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:begin])))
	if err != nil || pid <= 0 || numbers[0]&kernelThread != 0 {
		return id, s, false
	}
	name := terminal.Printable(string(text[begin+1:end]), 64)
	return process{pid, numbers[3]}, spent{name: name, ticks: numbers[1] + numbers[2]}, name != ""
}

// serves returns whether a process waits for connections, as servers do. One whose sockets cannot be listed counts as one.
func (t *Top) serves(pid string) bool {
	listening, err := t.listening(pid)
	if err != nil {
		return true
	}
	if len(listening) == 0 {
		return false
	}
	folder := path.Join("proc", pid, "fd")
	entries, err := fs.ReadDir(t.opts.Root, folder)
	if err != nil {
		return true
	}
	for _, e := range entries {
		link, err := fs.ReadLink(t.opts.Root, path.Join(folder, e.Name()))
		if err == nil && listening[link] {
			return true
		}
	}
	return false
}

// listening lists the sockets of a process's network namespace that wait for connections, as their links are written.
func (t *Top) listening(pid string) (map[string]bool, error) {
	found := map[string]bool{}
	for _, file := range []string{"tcp", "tcp6"} {
		text, err := fs.ReadFile(t.opts.Root, path.Join("proc", pid, "net", file))
		if err != nil && file == "tcp" {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" {
				found["socket:["+f[9]+"]"] = true
			}
		}
	}
	return found, nil
}

// label adds the service or scope of the system's manager to a program's name, if it runs in one.
func (t *Top) label(pid, name string) string {
	groups, err := fs.ReadFile(t.opts.Root, path.Join("proc", pid, "cgroup"))
	if err != nil {
		return name
	}
	for line := range strings.Lines(string(groups)) {
		unit := path.Base(strings.TrimSpace(line))
		if strings.HasSuffix(unit, ".service") || strings.HasSuffix(unit, ".scope") {
			return name + " (" + terminal.Printable(unit, 64) + ")"
		}
	}
	return name
}
