package sensor

import (
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Tasks that come and go between two samples take with them what the kernel knew of their waiting. If they do most of a group's work, how
// long it waits is estimated from how many of its tasks are ready to run at several moments.

const (
	mostMoments = 50   // that are remembered of a group
	mostLooked  = 500  // tasks of a group whose state is read
	hardly      = 0.01 // processors: a group that uses less has no work to speak of
	alwaysReady = 0.95 // chains that are ready for this part of the time are thought to be ready all the time
)

// readyCounts are how many tasks of a group were ready to run at the last moments, the newest last.
type readyCounts struct {
	counts []float64
	fresh  int      // of these since the last sample
	times  taskSums // of all tasks together
}

func (r *readyCounts) add(ready int) {
	if r.counts = append(r.counts, float64(ready)); len(r.counts) > mostMoments {
		r.counts = r.counts[1:]
	}
	r.fresh = min(r.fresh+1, len(r.counts))
}

// some returns whether tasks were ready since the last sample.
func (r *readyCounts) some() bool {
	return r != nil && r.fresh > 0 && slices.Max(r.counts[len(r.counts)-r.fresh:]) > 0
}

// estimate returns how long the group's tasks waited in the window, and what the group wants. run is the processor time that it used; ok is
// false if there was no moment in the window, or if nothing ever ran.
//
// The group counts as several chains of tasks, such as shells that start one program after the other: of each chain one task is ready, or
// none while it sleeps. A chain that waited for a part of the time would have done its work in the rest of it.
func (r *readyCounts) estimate(window time.Duration, run float64) (wait float64, w Wanted, ok bool) {
	if r == nil || r.fresh == 0 {
		return 0, w, false
	}
	all := window.Seconds()
	mean, _ := moments(r.counts[len(r.counts)-r.fresh:])
	ready := max(mean, run/all)
	w.Chains = max(r.chains(), ready)
	wait = ready*all - run
	w.Lost = wait / all / w.Chains
	r.times = r.times.with(faded(window), run, wait, all)
	if often := (r.times.run + r.times.wait) / r.times.span; often >= alwaysReady*w.Chains {
		w.FreeS = w.Chains * all
	} else {
		w.FreeS = r.times.wants(w.Chains) * all
	}
	return wait, w, w.FreeS > 0
}

// chains estimates the number n of chains. If each is ready with probability p, independently of the others, the mean of the counts is n p,
// and their variance is n p (1-p). It is at most the largest count.
func (r *readyCounts) chains() float64 {
	most := max(1, slices.Max(r.counts))
	mean, variance := moments(r.counts)
	if variance >= mean {
		return most
	}
	return min(max(1, mean*mean/(mean-variance)), most)
}

func moments(values []float64) (mean, variance float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		variance += (v - mean) * (v - mean) / n
	}
	return mean, variance
}

// Subsample counts the ready tasks of groups most of whose work is done by tasks that come and go. Several calls between two samples make
// their FreeS more accurate. Sample calls it, too.
func (g *Groups) Subsample(now time.Time) {
	for group, history := range g.groups {
		if history.ready == nil {
			continue
		}
		h, err := g.hierarchy(now)
		if err != nil {
			return // the next sample reports it
		}
		g.look(h.group(group), history.ready)
	}
}

func (g *Groups) look(l *groupLayout, counts *readyCounts) {
	tasks := &taskReader{root: g.root, left: mostLooked, files: g.files}
	if ready, ok := tasks.count(l, func(_ string, state byte) bool { return state == runnable }); ok {
		counts.add(ready)
	}
}

// estimate replaces what the accounts of tasks tell about a group, if tasks that came or went did most of its work, or if it hardly runs
// because it always waits. It returns the counts for the next window; nil if the accounts suffice.
func (g *Groups) estimate(l *groupLayout, known float64, counts *readyCounts, obs *quell.Observation) *readyCounts {
	s := obs.Sched
	if known > s.RunS/2 || s.RunS <= hardly*obs.WindowS && !counts.some() {
		return nil
	}
	if counts == nil {
		counts = &readyCounts{}
		g.look(l, counts)
	}
	if wait, w, ok := counts.estimate(time.Duration(obs.WindowS*float64(time.Second)), s.RunS); ok && counts.some() {
		w.enter(s)
		if s.WaitS != nil && *s.WaitS < wait {
			s.WaitS = &wait
		}
	}
	counts.fresh = 0
	return counts
}
