package sensor

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// TaskTime is for how many seconds of a window a task ran, and waited for a processor.
type TaskTime struct {
	ID        int
	Run, Wait float64
}

// Wanted is what a group would use if each of its tasks had a processor of its own, and how far it was from that.
type Wanted struct {
	FreeS  float64 // processor time in a window, in seconds, on average
	Chains float64 // how many tasks work side by side; tasks that want little count as parts of one
	Lost   float64 // part of the last window in which a task waited, as the mean over tasks weighted by what they want
}

func (w Wanted) enter(s *quell.Sched) { s.FreeS, s.Chains, s.Lost = &w.FreeS, &w.Chains, &w.Lost }

// Demand tells what a group wants from how long its tasks ran and waited. The zero value knows no task yet.
//
// A task that waited for a part of the time would have done its work in the rest of it. So it wants run / (1 - wait / time) processors. For
// a single window that is far off: a task that ran and waited for all of it seems to want a whole processor, even if it sleeps for most of
// the next one. So what each task wants is computed from its times in several windows. It depends on the task's program, and not on its
// neighbours. Waiting does depend on them, so it is that of the last window.
type Demand struct {
	tasks      map[int]taskSums
	run, known float64 // processor time of the group, and of the tasks that were there at both ends of a window, by weight, in seconds
}

// demandSpan is the time over which demand is averaged: the weight of a window falls to 37% after it.
const demandSpan = 10 * time.Second

// faded is the weight that earlier windows keep when one is added.
func faded(window time.Duration) float64 { return math.Exp(-window.Seconds() / demandSpan.Seconds()) }

// taskSums are a task's times in all windows, by weight, in seconds.
type taskSums struct{ run, wait, span float64 }

// leastRest is the least part of its time that a task is thought not to have waited.
const leastRest = 0.001

func (s taskSums) with(keep, run, wait, window float64) taskSums {
	return taskSums{s.run*keep + run, s.wait*keep + wait, s.span*keep + window}
}

// wants returns how many processors so many chains of tasks want, which have these times together.
func (s taskSums) wants(chains float64) float64 {
	return s.run / max(s.span-s.wait/chains, s.run/chains, leastRest*s.span)
}

// Add enters a window. run is the processor time of the whole group, and tasks are those of its tasks that were there at both ends of the
// window; the others are thought to be like these. ok is false if none of these tasks ever ran, or if the group was idle, which tells
// nothing of what it wants when it works.
func (d *Demand) Add(window time.Duration, run float64, tasks []TaskTime) (w Wanted, ok bool) {
	all, known, used := window.Seconds(), 0.0, 0.0
	for _, t := range tasks {
		known, used = known+t.Run, used+t.Run+t.Wait
	}
	if used < hardly*all {
		return w, false
	}
	keep, next := faded(window), make(map[int]taskSums, len(tasks))
	var sum, squares, lost float64
	for _, t := range tasks {
		next[t.ID] = d.tasks[t.ID].with(keep, t.Run, t.Wait, all)
		wants := next[t.ID].wants(1)
		sum += wants
		squares += wants * wants
		lost += wants * max(0, min(t.Wait/all, 1-t.Run/all))
	}
	*d = Demand{next, d.run*keep + run, d.known*keep + known}
	if squares == 0 {
		return w, false
	}
	// Makes up for tasks that are not known. If most are known now, it does not matter that few were before.
	others := max(1, min(d.run/d.known, run/max(known, math.SmallestNonzeroFloat64)))
	return Wanted{FreeS: sum * all * others, Chains: sum * sum / squares * others, Lost: lost / sum}, true
}

// timesBetween returns the times of the tasks that are in two accounts, by their numbers.
func timesBetween(before, after map[int]taskTimes) (list []TaskTime) {
	for _, id := range slices.Sorted(maps.Keys(after)) {
		then, ok := before[id]
		now := after[id]
		if ok && now.run >= then.run && now.wait >= then.wait { // otherwise the task's number was reused
			list = append(list, TaskTime{id, (now.run - then.run).Seconds(), (now.wait - then.wait).Seconds()})
		}
	}
	return list
}

// demand enters into an observation what the group wants, and returns what is known of that now.
func (g *Groups) demand(l *groupLayout, last *groupHistory, account *groupAccount, obs *quell.Observation) (*Demand, *readyCounts) {
	window, known := account.at.Sub(last.account.at), 0.0
	tasks := timesBetween(last.account.tasks, account.tasks)
	for _, t := range tasks {
		known += t.Run
	}
	if w, ok := last.demand.Add(window, obs.Sched.RunS, tasks); ok {
		w.enter(obs.Sched)
	}
	return last.demand, g.estimate(l, known, last.ready, obs)
}
