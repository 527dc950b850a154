package sensor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/cgroup"
)

// Pair is two events that processors count at the same time. The first divided by the second tells how well the instance's work proceeds.
type Pair int

// The pairs of events that are counted.
const (
	Instructions Pair = iota // cycles, and the instructions that were completed in them
	Cache                    // accesses of the last cache that missed, and all of them
)

// pairs says what each pair gives.
var pairs = []struct{ counter, first, second string }{
	Instructions: {quell.CounterCPI, "cycles", "instructions"},
	Cache:        {quell.CounterMissRate, "cache misses", "cache references"},
}

// OpenEvents begins to count a pair of events on one processor: of everything that runs there or, if a folder is given, of the control
// group with that folder. The folder is a path without the leading slash. Each Read gives the counts so far in the format of
// perf_event_open(2) with PERF_FORMAT_GROUP, PERF_FORMAT_TOTAL_TIME_ENABLED and PERF_FORMAT_TOTAL_TIME_RUNNING.
type OpenEvents func(pair Pair, processor int, folder string) (io.ReadCloser, error)

// errGone is the error if a control group does not exist any more.
var errGone = errors.New("there is no such control group any more")

// Unavailable is the error of a sensor that a machine does not offer. It is not a failure, because nothing worked before.
type Unavailable struct {
	Why string
	Do  string // what a person can do about it
}

func (u *Unavailable) Error() string { return u.Why + ": " + u.Do }

// Counters measures cycles per instruction and the share of cache accesses that miss (ICE, section III), with the counters of the
// processors. Neighbours that use the same caches and the same memory raise both.
type Counters struct {
	root  fs.FS
	group string // a path below the hierarchy, OwnCgroup, or empty for the whole machine
	open  OpenEvents
	at    target
	pairs []*pairSensor
}

// target is what the counters are open for.
type target struct {
	folder     string // of the control group; empty: the whole machine
	inode      uint64 // of the folder: a group that is made again is another one
	processors string // those that are online, as the kernel lists them
}

// NewCounters returns a sensor that counts some pairs with o.Events; without any, it counts all.
func NewCounters(o Options, only ...Pair) *Counters {
	if len(only) == 0 {
		only = []Pair{Instructions, Cache}
	}
	c := &Counters{root: o.Root, group: o.Cgroup, open: o.Events}
	for _, pair := range only {
		c.pairs = append(c.pairs, &pairSensor{pair: pair})
	}
	return c
}

// Name is "counters".
func (c *Counters) Name() string { return "counters" }

// Close ends counting.
func (c *Counters) Close() error {
	for _, p := range c.pairs {
		p.close()
	}
	return nil
}

// Sample implements Sensor. If the machine does not offer a pair of counters, and nothing else is wrong, the error is *Unavailable.
func (c *Counters) Sample(now time.Time, obs *quell.Observation) error {
	at, err := c.find()
	if err != nil || at != c.at {
		_ = c.Close()
		c.at = at
	}
	if err != nil {
		return err
	}
	var missing *Unavailable
	var errs []error
	for _, p := range c.pairs {
		err := p.sample(now, c, obs)
		if !errors.As(err, &missing) && err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 && missing != nil {
		return missing
	}
	return errors.Join(errs...)
}

// find returns what is to be counted now.
func (c *Counters) find() (target, error) {
	text, err := fs.ReadFile(c.root, "sys/devices/system/cpu/online")
	if err != nil {
		return target{}, fmt.Errorf("listing the processors: %w", err)
	}
	at := target{processors: strings.TrimSpace(string(text))}
	if c.group == "" {
		return at, nil
	}
	if at.folder, err = c.folder(); err != nil {
		return target{}, err
	}
	info, err := fs.Stat(c.root, at.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return target{}, fmt.Errorf("control group %s (agent.cgroup): %w", c.group, errGone)
	}
	if err != nil {
		return target{}, fmt.Errorf("control group %s (agent.cgroup): %w", c.group, err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		at.inode = stat.Ino
	}
	return at, nil
}

// folder returns the folder of the control group, in the hierarchy in which the kernel counts events.
func (c *Counters) folder() (string, error) {
	layout, err := (&cgroupAccount{root: c.root, name: c.group}).layout()
	if err != nil || layout.unified {
		return layout.folder(), err
	}
	trees, err := cgroup.Find(c.root)
	if err != nil {
		return "", err
	}
	cpu, _ := trees.Of("cpu")
	events, ok := trees.Of("perf_event")
	if !ok {
		return "", &Unavailable{"the hierarchy perf_event of control groups, version 1, is not mounted",
			"use version 2 of control groups, or mount it and make the service's group in it"}
	}
	folder := events.Folder(cpu.Group(layout.cpu))
	if !isFolder(c.root, folder) && isFolder(c.root, layout.cpu) {
		return "", &Unavailable{fmt.Sprintf("control group %s (agent.cgroup) is not in the hierarchy perf_event", c.group),
			"use version 2 of control groups, or make the group in /" + events.Point + " as well"}
	}
	return folder, nil
}

// folder is the group's folder in the hierarchy of processors; empty for no layout.
func (l *groupLayout) folder() string {
	if l == nil {
		return ""
	}
	return l.cpu
}

func isFolder(root fs.FS, name string) bool {
	info, err := fs.Stat(root, name)
	return err == nil && info.IsDir()
}

// pairSensor counts one pair of events on all processors.
type pairSensor struct {
	pair    Pair
	files   []io.ReadCloser // by processor; nil while the pair is not counted
	last    []counts        // by processor; nil before the first reading
	missing *Unavailable    // why the machine does not count the pair, when it was last tried
	tried   time.Time
}

func (p *pairSensor) close() {
	for _, f := range p.files {
		_ = f.Close() // it was only read
	}
	p.files, p.last, p.missing = nil, nil, nil
}

// sample adds the pair's ratio since the last call.
func (p *pairSensor) sample(now time.Time, c *Counters, obs *quell.Observation) error {
	const again = time.Minute // a machine seldom gets counters while it runs
	if p.missing != nil && now.Sub(p.tried) < again {
		return p.missing
	}
	what := pairs[p.pair].first + " and " + pairs[p.pair].second
	if p.files == nil {
		p.tried = now
		if err := p.openAll(c); err != nil {
			p.close()
			if errors.As(err, &p.missing) {
				return p.missing
			}
			return fmt.Errorf("counting %s: %w", what, err)
		}
	}
	before := p.last
	after, err := p.read()
	if err != nil {
		p.close()
		return fmt.Errorf("reading the counts of %s: %w", what, err)
	}
	p.last = after
	if before == nil {
		return nil
	}
	ratio, err := p.pair.ratio(before, after)
	if err != nil || ratio == nil {
		return err
	}
	quell.Put(&obs.Counters, pairs[p.pair].counter, *ratio)
	return nil
}

// openAll begins to count on all processors.
func (p *pairSensor) openAll(c *Counters) error {
	processors, err := parseProcessors(c.at.processors)
	if err != nil {
		return err
	}
	for _, processor := range processors {
		f, err := c.open(p.pair, processor, c.at.folder)
		if err != nil {
			return refusal(c.root, err)
		}
		p.files = append(p.files, f)
	}
	p.missing = nil
	return nil
}

// refusal explains why the kernel refuses to count events.
func refusal(root fs.FS, err error) error {
	switch {
	case errors.Is(err, errGone):
		return err
	case errors.Is(err, fs.ErrPermission):
		level := "its level is unknown"
		if text, err := fs.ReadFile(root, "proc/sys/kernel/perf_event_paranoid"); err == nil {
			level = "it is " + strings.TrimSpace(string(text))
		}
		return &Unavailable{"the kernel does not let this process count events of all processors (kernel.perf_event_paranoid: " + level + ")",
			"run the agent as root or with CAP_PERFMON, or set kernel.perf_event_paranoid to 0; in a container, its seccomp profile must allow " +
				"perf_event_open"}
	case errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EOPNOTSUPP):
		return &Unavailable{"the kernel has no perf_event_open", "use Linux with CONFIG_PERF_EVENTS"}
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.EOPNOTSUPP):
		return &Unavailable{"the processors show no such counters, as on most virtual machines",
			"choose a type of machine that has a virtual PMU, or turn it on in the hypervisor; until then, other signals take their place"}
	}
	return err
}

// parseProcessors reads a list of processors such as "0-3,5".
func parseProcessors(text string) (list []int, err error) {
	const most = 1 << 16
	for part := range strings.SplitSeq(text, ",") {
		from, to, several := strings.Cut(part, "-")
		if !several {
			to = from
		}
		first, errFirst := strconv.ParseUint(from, 10, 31)
		last, errLast := strconv.ParseUint(to, 10, 31)
		if err := errors.Join(errFirst, errLast); err != nil || last < first || last >= most {
			return nil, fmt.Errorf("%q is no list of processors", text)
		}
		for n := first; n <= last; n++ {
			list = append(list, int(n))
		}
	}
	return list, nil
}

// counts are the state of a pair on one processor.
type counts struct {
	enabled, running uint64 // time, in ns, in which the events were to be counted, and in which they were
	first, second    uint64
}

const countsSize = 5 * 8

// read reads the counts on all processors.
func (p *pairSensor) read() ([]counts, error) {
	var buffer [countsSize + 1]byte // one more, so that a longer answer is noticed
	list := make([]counts, len(p.files))
	for i, f := range p.files {
		n, err := f.Read(buffer[:])
		if err != nil {
			return nil, err
		}
		if list[i], err = parseCounts(buffer[:n]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// parseCounts reads the number of events, which must be 2, the times enabled and running, and the two counts.
func parseCounts(data []byte) (counts, error) {
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(data[8*i:]) }
	if len(data) != countsSize || word(0) != 2 {
		return counts{}, fmt.Errorf("want the counts of two events in %d bytes, got %d bytes", countsSize, len(data))
	}
	return counts{enabled: word(1), running: word(2), first: word(3), second: word(4)}, nil
}

// A pair's ratio counts if it was counted for leastCounted of the time in which it should have been. A count of 0 is an error if the pair
// was counted for longer than leastNonzero, in ns.
const (
	leastCounted = 0.5
	leastNonzero = 1e6
)

// ratio returns the first event's count over the second's between two readings, nil if nothing ran. If more events are to be counted than
// a processor has counters for, the kernel counts each for a part of the time, in turn. So a processor's count is multiplied by the time in
// which the event should have been counted, over the time in which it was.
func (pair Pair) ratio(before, after []counts) (*float64, error) {
	var first, second, counted, missed float64
	for i, now := range after {
		then := before[i]
		if now.enabled < then.enabled || now.running < then.running || now.first < then.first || now.second < then.second {
			return nil, fmt.Errorf("the counts of %s went back: reading skipped", pairs[pair].first)
		}
		enabled, running := float64(now.enabled-then.enabled), float64(now.running-then.running)
		if running == 0 {
			missed += enabled
			continue
		}
		scale := max(1, enabled/running)
		first += scale * float64(now.first-then.first)
		second += scale * float64(now.second-then.second)
		counted += max(enabled, running)
	}
	names := pairs[pair]
	switch {
	case counted+missed == 0:
		return nil, nil
	case counted < leastCounted*(counted+missed):
		return nil, fmt.Errorf("%s and %s were not counted, because others use the processors' counters: end perf or another "+
			"profiler, or set kernel.nmi_watchdog to 0", names.first, names.second)
	case second == 0 || pair == Instructions && first == 0:
		if counted < leastNonzero {
			return nil, nil
		}
		return nil, fmt.Errorf("the processors counted %.4g %s and %.4g %s, so the hypervisor does not really count them", first, names.first,
			second, names.second)
	case pair == Cache && first > second:
		return nil, fmt.Errorf("the processors counted more misses (%.4g) than references (%.4g) of the cache: reading skipped", first, second)
	}
	return new(first / second), nil
}
