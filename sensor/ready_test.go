package sensor

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"pgregory.net/rapid"
)

// What a second of a group was worth, by how many of its tasks were ready at several moments.
func TestReadyCountsTellFreeTime(t *testing.T) {
	for _, c := range []struct {
		name   string
		counts []int // repeated until all moments are filled
		run    float64
		want   float64
	}{
		{"one chain that never sleeps", []int{1}, 0.25, 1},
		{"four chains that never sleep", []int{4}, 0.5, 4},
		{"nobody waits", []int{1}, 1, 1},
		{"a chain that sleeps half of the time", []int{0, 1}, 0.25, 0.25 / 0.75},
		{"two that sleep half of the time", []int{0, 1, 1, 2}, 0.5, 0.5 / 0.75},
		{"ready less often than it ran", []int{0, 0, 0, 1}, 0.5, 0.5},
		{"all ready or none", []int{0, 0, 0, 4}, 0.5, 0.5 / (1 - 0.5/4)},
		{"one that hardly runs", []int{1}, 0.0005, 1},
		{"one that does not run", []int{3}, 0, 3},
		{"never seen ready", []int{0}, 0.3, 0.3},
		{"a shell and its program are ready for a moment", []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 2}, 0.25, 0.86},
	} {
		var r readyCounts
		for len(r.counts) < mostMoments {
			for _, n := range c.counts {
				r.add(n)
			}
		}
		if _, got, ok := r.estimate(time.Second, c.run); !ok || math.Abs(got.FreeS-c.want) > 0.05*c.want {
			t.Errorf("%s: %.3f s, want %.3f", c.name, got.FreeS, c.want)
		}
	}
	if _, _, ok := (&readyCounts{}).estimate(time.Second, 1); ok {
		t.Error("without a moment something is known")
	}
	if _, _, ok := (*readyCounts)(nil).estimate(time.Second, 1); ok {
		t.Error("without counts something is known")
	}
}

// A group never would have used less than it did, nor more than a processor for each task that was ready.
func TestReadyCountsStayWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r readyCounts
		most := 1.0
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 500), 1, 100).Draw(t, "counts") {
			r.add(n)
		}
		for _, n := range r.counts {
			most = max(most, n)
		}
		window := time.Duration(rapid.IntRange(1, 100).Draw(t, "tenths")) * time.Second / 10
		run := rapid.Float64Range(0.001, 4).Draw(t, "processors") * window.Seconds()
		wait, got, ok := r.estimate(window, run)
		if wait < 0 {
			t.Fatalf("waited %v s", wait)
		}
		free := got.FreeS
		if bound := max(most*window.Seconds(), run); !ok || free < run*(1-1e-9) || free > bound*(1+1e-9) {
			t.Fatalf("%v s in %v of %v s, with at most %v ready", free, window, run, most)
		}
	})
}

func TestStateOf(t *testing.T) {
	for stat, want := range map[string]byte{
		"12 (awk) R 1 12": 'R', "12 (a) S) R 1 12": 'R', "12 (sh) S 1 12": 'S', "12 (sh) D 1 12": 'D', "12 (R ) Z 1 12": 'Z', "": 0, "12 (sh": 0,
		"12 (sh) ": 0, "12 (sh) RR": 0,
	} {
		if got := stateOf([]byte(stat)); got != want {
			t.Errorf("%q: %q", stat, got)
		}
	}
}

// A shell that starts one program after the other: the accounts of tasks tell only how the shell waits, but its programs are always ready.
func TestGroupsOfBriefTasks(t *testing.T) {
	ticks := 0
	second := func(used float64, program int, ran time.Duration) fstest.MapFS {
		tree := unified(map[string]string{
			"web/cpu.stat":       fmt.Sprintf("usage_usec %d\n", int(used*1e6)),
			"web/cgroup.threads": fmt.Sprintf("10\n%d\n", program),
		})
		ticks += 100
		for name, text := range map[string]string{
			"stat":           fmt.Sprintf("cpu  %d 0 1 %d 0 0 0 0 0 0\ncpu0 %d 0 1 %d 0 0 0 0 0 0\n", ticks, ticks, ticks, ticks),
			"self/schedstat": "0 0 1\n",
			"10/schedstat":   fmt.Sprintf("%d 0 9\n", int(used*1e9/50)), "10/stat": "10 (sh) S 1 10\n",
			fmt.Sprintf("%d/schedstat", program): fmt.Sprintf("%d 5000000 2\n", ran), fmt.Sprintf("%d/stat", program): "2 (awk) R 10 10\n",
		} {
			tree["proc/"+name] = &fstest.MapFile{Data: []byte(text)}
		}
		return tree
	}
	m := &machine{second(0, 20, time.Millisecond)}
	g, err := NewGroups(m, []Group{{Path: "/web"}})
	if err != nil {
		t.Fatal(err)
	}
	g.root, g.files = m, nil
	g.Sample(start)
	free := func(at int, used float64, program int, ran time.Duration) float64 {
		t.Helper()
		m.FS = second(used, program, ran)
		s, failures := g.Sample(start.Add(time.Duration(at) * time.Second))
		mustNotFail(t, failures)
		return *s.Instances[0].Observation.Sched.FreeS
	}
	for at := 1; at < 3; at++ {
		if got := free(at, 0.25*float64(at), 20+at, time.Millisecond); math.Abs(got-1) > 0.01 {
			t.Errorf("second %d: it would have used %v s, want 1", at, got)
		}
		for i := range 9 {
			g.Subsample(start.Add(time.Duration(at)*time.Second + time.Duration(i+1)*100*time.Millisecond))
		}
	}
	if got := free(3, 0.75, 22, 250*time.Millisecond); math.Abs(got-0.25) > 0.01 {
		t.Errorf("a program that stays is in the accounts: %v s, want 0.25", got)
	}
	if g.groups["/web"].ready != nil {
		t.Error("its tasks are still counted")
	}
	for at := 4; at < 7; at++ { // from second 5 on it is ready, and does not run
		if got := free(at, min(1.25, 0.25*float64(at)), 20+at, time.Millisecond); math.Abs(got-1) > 0.01 {
			t.Errorf("second %d: it would have used %v s, want 1", at, got)
		}
	}
	m.FS = unified(nil)
	if s, failures := g.Sample(start.Add(7 * time.Second)); len(s.Instances) != 0 || !strings.Contains(fmt.Sprint(failures), "/web") {
		t.Errorf("a group that is gone: %+v, %v", s.Instances, failures)
	}
}
