package sensor

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What a second of a group that was not known before tells of its demand.
func TestDemand(t *testing.T) {
	for _, c := range []struct {
		name  string
		run   float64 // of the group; 0: that of the tasks
		tasks []TaskTime
		want  Wanted // zero: not known
	}{
		{"nobody waits", 0, []TaskTime{{1, 0.3, 0}}, Wanted{0.3, 1, 0}},
		{"a task that never sleeps", 0, []TaskTime{{1, 0.25, 0.75}}, Wanted{1, 1, 0.75}},
		{"one that sleeps for a quarter", 0, []TaskTime{{1, 0.25, 0.5}}, Wanted{0.5, 1, 0.5}},
		{"two of these", 0, []TaskTime{{1, 0.25, 0.5}, {2, 0.25, 0.5}}, Wanted{1, 2, 0.5}},
		{"one that never sleeps beside one that mostly does", 0, []TaskTime{{1, 0.5, 0.5}, {2, 0.05, 0.05}},
			Wanted{1 + 0.05/0.95, 1.10498, (0.5 + 0.05*0.05/0.95) / (1 + 0.05/0.95)}},
		{"tasks that came and went did as much again", 0.5, []TaskTime{{1, 0.25, 0.5}}, Wanted{1, 2, 0.5}},
		{"one that waits for longer than there is time", 0, []TaskTime{{1, 0.5, 7}}, Wanted{1, 1, 0.5}},
		{"no task", 0.5, nil, Wanted{}},
		{"all sleep", 0, []TaskTime{{1, 0.001, 0.002}, {2, 0, 0}}, Wanted{}},
		{"nobody runs", 0, []TaskTime{{1, 0, 1}, {2, 0, 1}}, Wanted{}},
	} {
		run := c.run
		for _, task := range c.tasks {
			if c.run == 0 {
				run += task.Run
			}
		}
		var d Demand
		got, ok := d.Add(time.Second, run, c.tasks)
		if ok != (c.want.FreeS > 0) || !near(got.FreeS, c.want.FreeS) || !near(got.Chains, c.want.Chains) || !near(got.Lost, c.want.Lost) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, ok, c.want)
		}
	}
}

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-5 }

// turns returns the times of tasks in a window of a second that begins at from. Each runs for 0.3 s, waits for 1.2 s meanwhile, and then
// sleeps for 0.6 s, each at another moment. So each wants a third of a processor, and takes 7/3 times as long as alone.
func turns(tasks int, from float64) (list []TaskTime, run float64) {
	const active, cycle, steps = 1.5, 2.1, 1000
	for i := range tasks {
		one := TaskTime{ID: i}
		for step := range steps {
			switch at := math.Mod(from+float64(step)/steps+float64(i)*0.37, cycle); {
			case at < active && math.Mod(at, 0.05) < 0.01:
				one.Run += 1.0 / steps
			case at < active:
				one.Wait += 1.0 / steps
			}
		}
		list, run = append(list, one), run+one.Run
	}
	return list, run
}

// A window is shorter than a turn of the tasks. On average it tells their slowdown nevertheless.
func TestDemandOfTasksThatTakeTurns(t *testing.T) {
	for _, tasks := range []int{1, 3, 8} {
		var d Demand
		const begin, end = 42, 105 // thirty turns
		n, lost, wants := float64(tasks), 0.0, 0.0
		for at := range end {
			list, run := turns(tasks, float64(at))
			got, ok := d.Add(time.Second, run, list)
			if at < begin {
				continue
			}
			if !ok || math.Abs(got.Chains-n) > 0.1*n {
				t.Errorf("%d tasks, second %d: %+v, %v", tasks, at, got, ok)
			}
			lost, wants = lost+got.Lost/(end-begin), wants+got.FreeS/(end-begin)
		}
		if slowdown := 1 / (1 - lost); math.Abs(slowdown-7.0/3) > 0.05 || math.Abs(wants-n/3) > 0.02*n {
			t.Errorf("%d tasks: slowdown %.3f, want 2.333; they want %.3f processors, want %.3f", tasks, slowdown, wants, n/3)
		}
	}
}

// What a group wants does not change while it is idle, and what it lost is that of the last window at once.
func TestDemandAfterIdleness(t *testing.T) {
	busy := func(run float64) []TaskTime { return []TaskTime{{1, run, 1 - run}, {2, run, 1 - run}} }
	idle := []TaskTime{{1, 0, 0}, {2, 0, 0}}
	var d Demand
	for range 5 {
		d.Add(time.Second, 1, busy(0.5))
	}
	for range 60 {
		if got, ok := d.Add(time.Second, 0, idle); ok {
			t.Fatalf("an idle group wants %+v", got)
		}
	}
	for _, run := range []float64{0.5, 0.1, 0} {
		if got, ok := d.Add(time.Second, 2*run, busy(run)); !ok || !near(got.FreeS, 2) || !near(got.Chains, 2) || !near(got.Lost, 1-run) {
			t.Errorf("running for %v s each: %+v, %v; want 2 s, 2 chains", run, got, ok)
		}
	}
}

// A group wants at most a processor for each task, and loses no more than all of the time.
func TestDemandStaysWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Demand
		for range rapid.IntRange(1, 6).Draw(t, "windows") {
			window := rapid.Float64Range(0.05, 60).Draw(t, "seconds")
			part := func(name string) float64 { return window * rapid.Float64Range(0, 1).Draw(t, name) }
			var tasks []TaskTime
			run := 0.0
			for id := range rapid.IntRange(0, 5).Draw(t, "tasks") {
				one := TaskTime{id, part("run"), part("wait")}
				run, tasks = run+one.Run, append(tasks, one)
			}
			got, ok := d.Add(time.Duration(window*float64(time.Second)), run, tasks)
			if n := float64(len(tasks)) * (1 + 1e-9); ok && (!(got.FreeS > 0) || got.FreeS > n*window || !(got.Chains > 0) || got.Chains > n ||
				got.Lost < 0 || got.Lost > 1) {
				t.Fatalf("%+v of %v in %v s", got, tasks, window)
			}
		}
	})
}

// Programs of eight chains first end within a window. Then they last for longer, because the group gets less: that few were known before
// does not make eight chains more.
func TestDemandOfProgramsThatBecomeLong(t *testing.T) {
	var d Demand
	for range 10 {
		d.Add(time.Second, 1, []TaskTime{{100, 0.1, 0.3}})
	}
	var long []TaskTime
	for i := range 8 {
		long = append(long, TaskTime{i, 0.0125, 0.9875})
	}
	if got, ok := d.Add(time.Second, 0.1, long); !ok || got.FreeS > 8.1 || got.Chains > 8.1 {
		t.Errorf("eight chains that never sleep: %+v", got)
	}
}
