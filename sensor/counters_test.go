package sensor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

// stream is a recorded stream of counts: what each counter of each processor showed at each reading. One line is one reading of one pair
// on one processor: the pair, the processor, the times enabled and running in ns, and the two counts.
type stream struct {
	t       testing.TB
	lines   map[string][]counts // by pair and processor
	open    int                 // counters that are open
	opened  []string            // the folders that were named
	refuses map[Pair]error      // opening a pair fails
}

func readStream(t testing.TB, name string) *stream {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "counters", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{t: t, lines: map[string][]counts{}, refuses: map[Pair]error{}}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		var pair string
		var processor int
		var c counts
		if _, err := fmt.Sscan(line, &pair, &processor, &c.enabled, &c.running, &c.first, &c.second); err != nil {
			t.Fatalf("%s: %q: %v", name, line, err)
		}
		key := fmt.Sprint(pair, processor)
		s.lines[key] = append(s.lines[key], c)
	}
	return s
}

func (s *stream) events(pair Pair, processor int, folder string) (io.ReadCloser, error) {
	if err := s.refuses[pair]; err != nil {
		return nil, err
	}
	s.opened = append(s.opened, folder)
	s.open++
	return &track{s, fmt.Sprint([]string{"instructions", "cache"}[pair], processor)}, nil
}

// track is the stream of one pair on one processor.
type track struct {
	of  *stream
	key string
}

func (k *track) Read(data []byte) (int, error) {
	left := k.of.lines[k.key]
	if len(left) == 0 {
		return 0, io.EOF
	}
	k.of.lines[k.key] = left[1:]
	return copy(data, inKernelFormat(left[0])), nil
}

func (k *track) Close() error {
	k.of.open--
	return nil
}

func inKernelFormat(c counts) []byte {
	var b []byte
	for _, word := range []uint64{2, c.enabled, c.running, c.first, c.second} {
		b = binary.NativeEndian.AppendUint64(b, word)
	}
	return b
}

// twoProcessors is a machine without control groups.
func twoProcessors() fstest.MapFS {
	return fstest.MapFS{"sys/devices/system/cpu/online": {Data: []byte("0-1\n")}}
}

func wants(t *testing.T, obs quell.Observation, cpi, missRate *float64) {
	t.Helper()
	for name, want := range map[string]*float64{quell.CounterCPI: cpi, quell.CounterMissRate: missRate} {
		got, ok := obs.Counters[name]
		if ok != (want != nil) || ok && math.Abs(got-*want) > 1e-9 {
			t.Errorf("%s: %v, %v; want %v", name, got, ok, want)
		}
	}
}

// TestRecordedCounts replays a stream: two seconds alone, then two beside a neighbour on the same cache.
func TestRecordedCounts(t *testing.T) {
	s := readStream(t, "neighbour")
	set := NewSet(NewCounters(Options{Root: twoProcessors(), Events: s.events}))
	for i, want := range []struct{ cpi, missRate *float64 }{
		{nil, nil}, // only sets the starting point
		{new(0.9), new(0.02)},
		{new(0.9), new(0.02)},
		{new(2.1), new(0.35)},
		{new(2.1), new(0.35)},
	} {
		obs, failures := set.Sample(start.Add(time.Duration(i) * time.Second))
		mustNotFail(t, failures)
		wants(t, obs, want.cpi, want.missRate)
	}
	if s.open != 4 {
		t.Errorf("%d pairs are open on two processors", s.open)
	}
	if err := set.Close(); err != nil || s.open != 0 {
		t.Errorf("%d stay open, %v", s.open, err)
	}
}

// TestCountsThatTellNothing replays streams in which something is wrong: there is a message and no figure.
func TestCountsThatTellNothing(t *testing.T) {
	for name, c := range map[string]struct {
		cpi, missRate *float64
		want          string // part of the message; empty: no failure
	}{
		"multiplexed":      {cpi: new(1.5), missRate: new(0.1)},
		"starved":          {want: "cycles and instructions were not counted, because others use the processors' counters"},
		"partly":           {cpi: new(2.), missRate: new(0.25)},
		"idle":             {},
		"zero":             {missRate: new(0.5), want: "counted 1e+09 cycles and 0 instructions, so the hypervisor does not really count them"},
		"zero-for-a-while": {missRate: new(0.5)},
		"backwards":        {missRate: new(0.5), want: "the counts of cycles went back"},
		"too-many-misses":  {cpi: new(1.), want: "more misses (2e+06) than references (1e+06)"},
		"ends":             {missRate: new(0.5), want: "reading the counts of cycles and instructions: EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			s := readStream(t, name)
			sensor := NewCounters(Options{Root: twoProcessors(), Events: s.events})
			if err := sensor.Sample(start, &quell.Observation{}); err != nil {
				t.Fatal(err)
			}
			var obs quell.Observation
			err := sensor.Sample(start.Add(time.Second), &obs)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			wants(t, obs, c.cpi, c.missRate)
			if lack := (*Unavailable)(nil); errors.As(err, &lack) {
				t.Errorf("a failure counts as a sensor that is not there: %v", err)
			}
		})
	}
}

func TestMachinesWithoutCounters(t *testing.T) {
	root := twoProcessors()
	root["proc/sys/kernel/perf_event_paranoid"] = &fstest.MapFile{Data: []byte("2\n")}
	for name, c := range map[string]struct {
		err  error
		want string
		lack bool
	}{
		"no permission":     {syscall.EACCES, "(kernel.perf_event_paranoid: it is 2): run the agent as root or with CAP_PERFMON", true},
		"forbidden":         {syscall.EPERM, "its seccomp profile must allow perf_event_open", true},
		"no PMU":            {syscall.ENOENT, "the processors show no such counters, as on most virtual machines", true},
		"no such event":     {syscall.EOPNOTSUPP, "the processors show no such counters", true},
		"an old kernel":     {syscall.ENOSYS, "the kernel has no perf_event_open", true},
		"too many files":    {syscall.EMFILE, "too many open files", false},
		"a processor ended": {syscall.ENODEV, "no such device", false},
	} {
		s := readStream(t, "neighbour")
		s.refuses[Instructions], s.refuses[Cache] = fmt.Errorf("perf_event_open: %w", c.err), c.err
		sensor := NewCounters(Options{Root: root, Events: s.events})
		for range 2 {
			var obs quell.Observation
			err := sensor.Sample(start, &obs)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			lack := (*Unavailable)(nil)
			if errors.As(err, &lack) != c.lack {
				t.Errorf("%s: not available: %v, want %v", name, lack != nil, c.lack)
			}
			wants(t, obs, nil, nil)
		}
		if s.open != 0 {
			t.Errorf("%s: %d stay open", name, s.open)
		}
	}
}

// TestCountersThatComeLater is about a permission that is given while the agent runs, and a pair that the machine never has.
func TestCountersThatComeLater(t *testing.T) {
	s := readStream(t, "neighbour")
	s.refuses[Instructions], s.refuses[Cache] = syscall.EACCES, syscall.ENOENT
	sensor := NewCounters(Options{Root: twoProcessors(), Events: s.events})
	lack := (*Unavailable)(nil)
	if err := sensor.Sample(start, &quell.Observation{}); !errors.As(err, &lack) {
		t.Fatal(err)
	}
	delete(s.refuses, Instructions)
	if err := sensor.Sample(start.Add(59*time.Second), &quell.Observation{}); !errors.As(err, &lack) || s.open != 0 {
		t.Errorf("tried again too soon: %v, %d open", err, s.open)
	}
	for i := range 2 {
		var obs quell.Observation
		if err := sensor.Sample(start.Add(time.Duration(60+i)*time.Second), &obs); !errors.As(err, &lack) {
			t.Errorf("the cache is not counted, and nobody says so: %v", err)
		}
		if i == 1 {
			wants(t, obs, new(0.9), nil)
		}
	}
}

// withGroup is a machine with the control group /web, whose folder has that number.
func withGroup(version int, inode uint64) fstest.MapFS {
	root := twoProcessors()
	folder := func(name string, inode uint64) {
		root[name] = &fstest.MapFile{Mode: fs.ModeDir | 0o755, Sys: &syscall.Stat_t{Ino: inode}}
	}
	text := func(name, text string) { root[name] = &fstest.MapFile{Data: []byte(text)} }
	switch version {
	case 2:
		text("proc/self/mountinfo", "31 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
		text("sys/fs/cgroup/cgroup.controllers", "cpu\n")
		folder("sys/fs/cgroup/web", inode)
	case 1:
		text("proc/self/mountinfo", "31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"+
			"32 30 0:28 / /sys/fs/cgroup/perf_event rw - cgroup cgroup rw,perf_event\n")
		folder("sys/fs/cgroup/cpu/web", 1)
		folder("sys/fs/cgroup/perf_event/web", inode)
	}
	return root
}

// TestCountersOfAGroup checks that the group's own folder is counted, in the right hierarchy.
func TestCountersOfAGroup(t *testing.T) {
	for version, want := range map[int]string{1: "sys/fs/cgroup/perf_event/web", 2: "sys/fs/cgroup/web"} {
		s := readStream(t, "neighbour")
		sensor := NewCounters(Options{Root: withGroup(version, 7), Cgroup: "/web", Events: s.events})
		if err := sensor.Sample(start, &quell.Observation{}); err != nil || s.open != 4 || s.opened[0] != want {
			t.Errorf("version %d: %v, %d open, for %v", version, err, s.open, s.opened)
		}
	}
}

// TestAGroupThatGoes checks that the counts of one group never continue in another one.
func TestAGroupThatGoes(t *testing.T) {
	s := readStream(t, "neighbour")
	m := &machine{withGroup(2, 7)}
	sensor := NewCounters(Options{Root: m, Cgroup: "/web", Events: s.events})
	sample := func(second int) (quell.Observation, error) {
		var obs quell.Observation
		err := sensor.Sample(start.Add(time.Duration(second)*time.Second), &obs)
		return obs, err
	}
	if _, err := sample(0); err != nil {
		t.Fatal(err)
	}
	obs, err := sample(1)
	if err != nil {
		t.Fatal(err)
	}
	wants(t, obs, new(0.9), new(0.02))

	gone := withGroup(2, 7)
	delete(gone, "sys/fs/cgroup/web")
	m.FS = gone
	if _, err := sample(2); err == nil ||
		!strings.Contains(err.Error(), "control group /web (agent.cgroup): there is no such control group") ||
		s.open != 0 {
		t.Errorf("%v, %d open", err, s.open)
	}
	m.FS = withGroup(2, 8) // made again
	for second, want := range [][2]*float64{{nil, nil}, {new(2.1), new(0.35)}} {
		obs, err := sample(3 + second)
		if err != nil {
			t.Fatal(err)
		}
		wants(t, obs, want[0], want[1])
	}
	m.FS = withGroup(2, 9) // made again between two readings
	if obs, err := sample(5); err != nil || len(obs.Counters) > 0 {
		t.Errorf("%v, %v", obs.Counters, err)
	}
}

func TestGroupsThatCannotBeCounted(t *testing.T) {
	noHierarchy, notInIt := withGroup(1, 7), withGroup(1, 7)
	noHierarchy["proc/self/mountinfo"] = &fstest.MapFile{Data: []byte("31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n")}
	delete(notInIt, "sys/fs/cgroup/perf_event/web")
	for name, c := range map[string]struct {
		root fs.FS
		want string
		lack bool
	}{
		"no hierarchy":      {noHierarchy, "the hierarchy perf_event of control groups, version 1, is not mounted", true},
		"not in it":         {notInIt, "control group /web (agent.cgroup) is not in the hierarchy perf_event", true},
		"no control groups": {twoProcessors(), "finding the control groups", false},
		"no processors":     {fstest.MapFS{}, "listing the processors", false},
	} {
		sensor := NewCounters(Options{Root: c.root, Cgroup: "/web", Events: readStream(t, "neighbour").events})
		err := sensor.Sample(start, &quell.Observation{})
		lack := (*Unavailable)(nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &lack) != c.lack {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestParseProcessors(t *testing.T) {
	for text, want := range map[string]string{
		"0": "[0]", "0-3": "[0 1 2 3]", "0,2-3,7": "[0 2 3 7]", "": "", "-": "", "3-1": "", "x": "", "0-": "", "0-99999999": "", "0-1-2": "",
	} {
		got, err := parseProcessors(text)
		if (err != nil) != (want == "") || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestRatioDoesNotDependOnMultiplexing: counting only a part of the time changes nothing, if the work is the same all the time.
func TestRatioDoesNotDependOnMultiplexing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 1_000_000_000
		cycles, instructions := rapid.Float64Range(1, 4e9).Draw(t, "cycles"), rapid.Float64Range(1, 8e9).Draw(t, "instructions")
		var before, after []counts
		for range rapid.IntRange(1, 8).Draw(t, "processors") {
			from := counts{rapid.Uint64Range(0, 1<<50).Draw(t, "enabled"), 0, rapid.Uint64Range(0, 1<<50).Draw(t, "first"), 0}
			running := rapid.Uint64Range(window/100, window).Draw(t, "running")
			part := float64(running) / window
			to := counts{from.enabled + window, running, from.first + uint64(cycles*part*1e3), uint64(instructions * part * 1e3)}
			before, after = append(before, from), append(after, to)
		}
		ratio, err := Instructions.ratio(before, after)
		if err != nil || ratio == nil {
			t.Fatalf("%v, %v", ratio, err)
		}
		if want := cycles / instructions; math.Abs(*ratio-want) > 0.11*want { // at least ten counts each, which are whole numbers
			t.Errorf("%g, want %g", *ratio, want)
		}
	})
}

func FuzzParseCounts(f *testing.F) {
	f.Add(inKernelFormat(counts{1, 2, 3, 4}))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{255}, countsSize))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCounts(data)
		if err == nil && !bytes.Equal(inKernelFormat(c), data) {
			t.Errorf("%v from %v", c, data)
		}
		for _, pair := range []Pair{Instructions, Cache} {
			ratio, err := pair.ratio([]counts{{}}, []counts{c})
			if err == nil && ratio != nil && (math.IsNaN(*ratio) || math.IsInf(*ratio, 0) || *ratio < 0) {
				t.Errorf("ratio %v of %+v", *ratio, c)
			}
		}
	})
}
