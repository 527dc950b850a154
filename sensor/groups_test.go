package sensor

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/golden"
)

// sampleGroups samples groups twice, ten seconds apart.
func sampleGroups(t *testing.T, before, after fs.FS, wanted ...Group) (first, second quell.Snapshot, failures []Failure) {
	t.Helper()
	m := &machine{before}
	g, err := NewGroups(m, wanted)
	if err != nil {
		t.Fatal(err)
	}
	g.root, g.files = m, nil // an open file would stay that of the first tree
	first, _ = g.Sample(start)
	m.FS = after
	second, failures = g.Sample(start.Add(10 * time.Second))
	for _, s := range []quell.Snapshot{first, second} {
		s.Host = "h"
		if err := s.Validate(); err != nil {
			t.Errorf("an invalid snapshot: %v", err)
		}
	}
	return first, second, failures
}

func TestGroupsGolden(t *testing.T) {
	for tree, wanted := range map[string][]Group{
		"groups1": {{Name: "frontend", Path: "/web"}, {Path: "/batch"}, {Path: "/idle"}},
		"groups2": {{Path: "/system.slice/*.service"}},
	} {
		t.Run(tree, func(t *testing.T) {
			first, second, failures := sampleGroups(t, os.DirFS("testdata/"+tree+"/before"), os.DirFS("testdata/"+tree+"/after"), wanted...)
			mustNotFail(t, failures)
			if first.Machine != nil || len(first.Instances) == 0 || first.Instances[0].Observation != nil {
				t.Errorf("the first sample only primes, got %+v", first)
			}
			got, err := json.MarshalIndent(second, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, filepath.Join("testdata", tree+".json"), append(got, '\n'))
		})
	}
}

// unified is a machine with control groups of version 2 and the given files, such as "web.service/cpu.stat".
func unified(files map[string]string) fstest.MapFS {
	tree := fstest.MapFS{
		"proc/stat":             {Data: []byte("cpu  1 0 1 1 0 0 0 0 0 0\ncpu0 1 0 1 1 0 0 0 0 0 0\n")},
		"proc/self/mountinfo":   {Data: []byte("1 1 0:1 / /cg rw - cgroup2 cgroup2 rw\n")},
		"cg/cgroup.controllers": {Data: []byte("cpu\n")},
	}
	for name, text := range files {
		tree["cg/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return tree
}

func TestGroupsThatCannotBeRead(t *testing.T) {
	const used = "usage_usec 5\n"
	for _, c := range []struct {
		name   string
		files  map[string]string
		wanted []Group
		groups string // the groups that are read
		fails  string
	}{
		{"one that is not there", nil, []Group{{Path: "/web.service"}}, "", "group web.service: there is no control group /web.service"},
		{"a pattern that matches nothing yet", nil, []Group{{Path: "/*.service"}}, "", ""},
		{"a pattern takes folders only", map[string]string{"a/cpu.stat": used, "cpu.stat": used}, []Group{{Path: "/*"}}, "a", ""},
		{"named twice", map[string]string{"a/cpu.stat": used}, []Group{{Path: "/a"}, {Path: "/*"}}, "a", ""},
		{"one inside the other", map[string]string{"a/cpu.stat": used, "a/b/cpu.stat": used}, []Group{{Path: "/a"}, {Path: "/a/*"}}, "a",
			"group /a/b: it is left out: one of it and /a lies inside the other"},
		{"two of one name", map[string]string{"a/x/cpu.stat": used, "b/x/cpu.stat": used}, []Group{{Path: "/a/x"}, {Path: "/b/x"}}, "x",
			"group /b/x: it is named x like /a/x"},
		{"a pattern keeps names apart", map[string]string{"a/x/cpu.stat": used, "b/x/cpu.stat": used}, []Group{{Path: "/*/x"}}, "a/x b/x", ""},
		{"a broken account leaves the others", map[string]string{"a/cpu.stat": "nonsense", "b/cpu.stat": used}, []Group{{Path: "/*"}}, "b",
			"group a: reading its processor time"},
		{"broken pressure leaves the rest", map[string]string{"a/cpu.stat": used, "a/cpu.pressure": "full\n"}, []Group{{Path: "/a"}}, "a",
			"group a: reading /cg/a/cpu.pressure"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := unified(c.files)
			g, err := NewGroups(tree, c.wanted)
			if err != nil {
				t.Fatal(err)
			}
			s, failures := g.Sample(start)
			var names []string
			for _, in := range s.Instances {
				names = append(names, in.ID)
			}
			if got := strings.Join(names, " "); got != c.groups {
				t.Errorf("read %q, want %q", got, c.groups)
			}
			var said []string
			for _, f := range failures {
				said = append(said, f.Sensor+": "+f.Err.Error())
			}
			if got := strings.Join(said, "; "); (c.fails == "") != (got == "") || !strings.Contains(got, c.fails) {
				t.Errorf("failures %q, want %q", got, c.fails)
			}
		})
	}
}

// Groups that cannot be read for once are not lost: they stay in the list, and the next reading goes on from the last one that succeeded.
func TestGroupsAfterAFailedReading(t *testing.T) {
	usage := func(seconds int) map[string]string {
		text := fmt.Sprintf("usage_usec %d\n", seconds*1_000_000)
		return map[string]string{"a/cpu.stat": text, "b/cpu.stat": text}
	}
	for name, harm := range map[string]func(fstest.MapFS){
		"one group":  func(tree fstest.MapFS) { tree["cg/a/cpu.stat"].Data = []byte("nonsense") },
		"all groups": func(tree fstest.MapFS) { tree["proc/self/mountinfo"].Data = []byte("nonsense") },
	} {
		m := &machine{}
		g, err := NewGroups(m, []Group{{Path: "/*"}})
		if err != nil {
			t.Fatal(err)
		}
		g.root, g.files = m, nil
		var s quell.Snapshot
		for second, harmed := range []bool{false, false, true, false} {
			tree := unified(usage(second * 5))
			tree["proc/stat"].Data = fmt.Appendf(nil, "cpu  %d 0 1 1 0 0 0 0 0 0\ncpu0 %d 0 1 1 0 0 0 0 0 0\n", 500*second, 500*second)
			if harmed {
				harm(tree)
			}
			m.FS = tree
			var failures []Failure
			s, failures = g.Sample(start.Add(time.Duration(second) * remount))
			if (len(failures) > 0) != harmed {
				t.Fatalf("%s, reading %d: %v", name, second, failures)
			}
			switch path, _, known := g.Named("a"); {
			case path != "/a" || !known:
				t.Errorf("%s, reading %d: group a is not known", name, second)
			case !harmed:
			case name == "one group" && (len(s.Instances) != 2 || s.Instances[0].Observation != nil):
				t.Errorf("%s: %+v", name, s.Instances)
			case name == "all groups" && s.Machine != nil:
				t.Errorf("%s: a machine without groups: %+v", name, s)
			}
		}
		if o := s.Instances[0].Observation; o == nil || math.Abs(o.Sched.RunS/o.WindowS-0.5) > 1e-9 || o.WindowS != 20 {
			t.Errorf("%s: group a, which uses half a processor: %+v", name, o)
		}
	}
}

func TestGroupsRefusesPaths(t *testing.T) {
	for path, want := range map[string]string{
		"nginx.service": "give a path below the hierarchy", "/a/../b": "is not a control group", "/": "is the whole machine",
		"/[": "is no pattern",
	} {
		_, err := NewGroups(unified(nil), []Group{{Path: path}})
		mustSay(t, err, want)
	}
	_, err := NewGroups(unified(nil), []Group{{Name: "all", Path: "/*"}})
	mustSay(t, err, "remove the name")
}

// A machine without control groups of processors, or whose processor times cannot be read, gives the other values.
func TestGroupsWithoutAMachine(t *testing.T) {
	tree := unified(map[string]string{"a/cpu.stat": "usage_usec 5\n"})
	delete(tree, "proc/stat")
	_, s, failures := sampleGroups(t, tree, tree, Group{Path: "/a"})
	if s.Machine != nil || len(s.Instances) != 1 || len(failures) != 1 || failures[0].Sensor != "machine" {
		t.Errorf("got %+v, %v", s, failures)
	}
	_, s, failures = sampleGroups(t, fstest.MapFS{}, fstest.MapFS{}, Group{Path: "/a"})
	if len(s.Instances) != 0 || len(failures) != 1 || failures[0].Sensor != "groups" {
		t.Errorf("got %+v, %v", s, failures)
	}
}

// If counters decreased, the quota changed, or the clock did not advance between two samples, there are no values.
func TestGroupsAbsentStaysAbsent(t *testing.T) {
	before := unified(map[string]string{"a/cpu.stat": "usage_usec 5000000\nuser_usec 9\n", "a/cpu.pressure": "some total=9\n"})
	after := unified(map[string]string{
		"a/cpu.stat": "usage_usec 6000000\nuser_usec 3\nthrottled_usec 800000\nnr_periods 90\n", "a/cpu.max": "50000 100000",
		"a/cpu.pressure": "some total=5\n",
	})
	delete(before, "proc/stat")
	_, s, _ := sampleGroups(t, before, after, Group{Path: "/a"})
	obs := s.Instances[0].Observation
	if obs.Sched.RunS != 1 || obs.Sched.UserS != nil || obs.Sched.SystemS != nil || obs.Sched.WaitS != nil || obs.Sched.ThrottledS != nil ||
		obs.Pressure != nil {
		t.Errorf("got %+v, %v", obs.Sched, obs.Pressure)
	}
	g, err := NewGroups(after, []Group{{Path: "/a"}})
	if err != nil {
		t.Fatal(err)
	}
	g.Sample(start)
	if s, _ := g.Sample(start); s.Instances[0].Observation != nil {
		t.Error("no time passed, and something was measured")
	}
}

// Five hundred groups are read as precisely as one, and every task counts for its own group.
func TestManyGroups(t *testing.T) {
	for _, n := range []int{1, 500, mostGroups + 1} {
		before, after := map[string]string{}, map[string]string{}
		for i := range n {
			name := fmt.Sprintf("g%04d/", i)
			before[name+"cpu.stat"], before[name+"cgroup.threads"] = "usage_usec 0\n", fmt.Sprintf("%d\n", i+1)
			after[name+"cpu.stat"], after[name+"cgroup.threads"] = fmt.Sprintf("usage_usec %d\n", 1000*i), fmt.Sprintf("%d\n", i+1)
		}
		x, y := unified(before), unified(after)
		for _, tree := range []fstest.MapFS{x, y} {
			tree["proc/self/schedstat"] = &fstest.MapFile{Data: []byte("1 1 1\n")}
		}
		for i := range n {
			file := fmt.Sprintf("proc/%d/schedstat", i+1)
			x[file] = &fstest.MapFile{Data: []byte("0 0 0\n")}
			y[file] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d %d 1\n", 1_000_000*i, 2_000_000*i)}
		}
		_, s, failures := sampleGroups(t, x, y, Group{Path: "/*"})
		if got, want := len(s.Instances), min(n, mostGroups); got != want || n > mostGroups &&
			!strings.Contains(fmt.Sprint(failures), "more than 1000") {
			t.Fatalf("%d groups, want %d; %v", got, want, failures)
		}
		for i, in := range s.Instances {
			if got := *in.Observation.Sched.WaitS; in.ID != fmt.Sprintf("g%04d", i) || math.Abs(got-0.002*float64(i)) > 1e-9 {
				t.Fatalf("%s waited %v", in.ID, got)
			}
		}
	}
}

// A group that makes very many tasks hides only how long its own tasks wait.
func TestGroupsWithTooManyTasks(t *testing.T) {
	tree := func(bomb int, ran time.Duration) fstest.MapFS {
		var list strings.Builder
		for i := range bomb {
			fmt.Fprintf(&list, "%d\n", 1000+i)
		}
		m := unified(map[string]string{"a/cpu.stat": "usage_usec 5\n", "a/cgroup.threads": list.String(),
			"b/cpu.stat": "usage_usec 5\n", "b/cgroup.threads": "1\n2\n"})
		m["proc/self/schedstat"] = &fstest.MapFile{Data: []byte("1 1 1\n")}
		for _, id := range []string{"1", "2", "1000"} {
			m["proc/"+id+"/schedstat"] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d %d 1\n", ran, ran)}
		}
		return m
	}
	for _, bomb := range []int{1, mostTasks - 2, mostTasks - 1, 2 * mostTasks} {
		_, s, failures := sampleGroups(t, tree(1, 0), tree(bomb, time.Second), Group{Path: "/*"})
		tooMany := bomb > mostTasks-2
		if (s.Instances[0].Observation.Sched.WaitS == nil) != tooMany || strings.Contains(fmt.Sprint(failures), "tasks") != tooMany {
			t.Errorf("%d tasks: %+v, %v", bomb, s.Instances[0].Observation.Sched, failures)
		}
		if wait := s.Instances[1].Observation.Sched.WaitS; wait == nil || *wait != 2 {
			t.Errorf("beside %d tasks, the other group waited %v", bomb, wait)
		}
	}
}

func TestWaited(t *testing.T) {
	s := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	for _, c := range []struct {
		name          string
		before, after map[int]taskTimes
		wait, run     float64 // run -1: absent
	}{
		{"the mean run counts by waiting", map[int]taskTimes{1: {s(1), s(1)}, 2: {s(5), s(2)}},
			map[int]taskTimes{1: {s(3), s(2)}, 2: {s(6), s(5)}}, 4, 1.25},
		{"nobody waited", map[int]taskTimes{1: {s(1), s(1)}}, map[int]taskTimes{1: {s(3), s(1)}}, 0, -1},
		{"a young task counts whole", nil, map[int]taskTimes{1: {s(2), s(1)}}, 1, 2},
		{"one that was moved here does not", nil, map[int]taskTimes{1: {s(200), s(100)}}, 0, -1},
		{"a number that was given anew", map[int]taskTimes{1: {s(5), s(5)}}, map[int]taskTimes{1: {s(1), s(1)}}, 0, -1},
		{"one that ended", map[int]taskTimes{1: {s(5), s(5)}}, nil, 0, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			wait, run := waited(c.before, c.after, 10*time.Second)
			if *wait != c.wait || (run == nil) != (c.run < 0) || run != nil && *run != c.run {
				t.Errorf("waited %v, one ran %v; want %v, %v", *wait, run, c.wait, c.run)
			}
		})
	}
}

func TestParseStall(t *testing.T) {
	got, err := parseStall([]byte("some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=1000000\n"))
	if err != nil || got.some != 2500*time.Millisecond || *got.full != time.Second {
		t.Errorf("got %+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"": `no line "some"`, "full total=1\n": `no line "some"`, "some avg10=1.00\n": "want a total",
		"some total=-1\n": "no time in microseconds", "some total=99999999999999999\n": "no time in microseconds",
	} {
		_, err := parseStall([]byte(text))
		mustSay(t, err, want)
	}
}

func TestParseSchedstat(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       float64
		fails      string
	}{
		{"two processors", "version 15\ntimestamp 4\ncpu0 0 0 0 0 0 0 5 1500000000 3\ndomain0 03 1\ncpu1 0 0 0 0 0 0 5 500000000 3\n", 2, ""},
		{"no processor", "version 15\n", 0, "no line of a processor"},
		{"too few numbers", "cpu0 1 2\n", 0, "want at least 8 numbers after cpu0"},
		{"not a number", "cpu0 0 0 0 0 0 0 5 x 3\n", 0, "schedstat"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseSchedstat([]byte(c.text))
			mustSay(t, err, c.fails)
			if got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	if got, err := parseTaskSchedstat([]byte("82722 10591 2\n")); err != nil || got.run != 82722 || got.wait != 10591 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, text := range []string{"", "1 2", "1 x 2", "-1 2 3"} {
		if _, err := parseTaskSchedstat([]byte(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func FuzzParseStall(f *testing.F) {
	f.Add([]byte("some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=1000000\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := parseStall(text); err == nil && (got.some < 0 || got.full != nil && *got.full < 0) || err != nil && got != (stall{}) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func FuzzParseSchedstat(f *testing.F) {
	f.Add([]byte("cpu0 0 0 0 0 0 0 5 1500000000 3\n"))
	f.Add([]byte("82722 10591 2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := parseSchedstat(text); got < 0 || err != nil && got != 0 {
			t.Errorf("got %v, %v", got, err)
		}
		if got, err := parseTaskSchedstat(text); got.run < 0 || got.wait < 0 || err != nil && got != (taskTimes{}) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}
