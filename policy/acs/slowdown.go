package acs

import (
	"cmp"
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/stats"
)

// Slowdowns come from scheduling, or from what a group reports of its work, or, if it has stopped reporting, from what was learned of both.

// Constants of slowdowns.
const (
	acsSlowest   = 1000  // largest slowdown that is told apart
	acsPlausible = 3.0   // a reported slowdown counts up to this many times that of scheduling
	acsSmoothing = 0.3   // weight of a new slowdown in the average, while caps or weights stay, and of a new rate without waiting
	acsFar       = 1.5   // slowdowns this many times the average, or the average this many times these, are far from it;
	acsChanged   = 2     // after so many in a row, the group has changed
	acsMemorable = 1e6   // most slowdowns that are counted
	acsBrief     = 1.5   // a rate over more periods than this is of few units of work, which vary by chance:
	acsFarther   = 2.7   // then this takes the place of acsFar
	acsGone      = 2     // after this many idle snapshots, a group is idle for longer than a moment
	acsKept      = 0.999 // what is left of the best progress after one period: programs change
	acsForget    = 0.98  // weight that the model's rows keep in each period
	acsRows      = 20    // rows after which the model predicts
	acsRelated   = 0.5   // least correlation with which it does
)

// measure computes a group's slowdown. From scheduling, it comes from the time in which tasks were ready and did not run; Eq. 3 counts
// runnable and capped time.
//
// The kernel counts the time for which a quota stops a task as waiting, so throttled time is not added. It is used only if waiting is not
// reported or smaller.
func (t *tenant) measure(obs *quell.Observation, total float64) {
	sched, window := obs.Sched, cmp.Or(obs.WindowS, 1)
	wait, _, ok := model.Waiting(obs, sched.RunS)
	t.blind = !ok
	if sched.ThrottledS != nil {
		wait = max(wait, *sched.ThrottledS)
	}
	t.run = sched.RunS / window
	ready := t.run + wait/window
	if ready <= 0 {
		t.idle = true
		return
	}
	scheduled := t.scheduled(sched, ready, window, total)
	t.idle = ready < acsIdle
	t.slowdown, t.from = scheduled, quell.FromScheduling
	if t.idle {
		return
	}
	reported, ok := t.reported(obs, scheduled, window)
	if !ok {
		t.foretell(t.signals(obs, scheduled))
		return
	}
	t.from = quell.FromProgress
	t.slowdown = min(max(1, reported), acsSlowest)
	if most := scheduled * acsPlausible; t.slowdown > most && !t.blind {
		t.slowdown, t.doubt = most, reported
	}
	t.next.Model = t.learned(t.signals(obs, scheduled))
}

// signals are what the slowdown is predicted from (Eq. 5): how much slower the group is by scheduling, and how many accesses of the last
// cache miss, if the processors count that.
func (t *tenant) signals(obs *quell.Observation, scheduled float64) []float64 {
	signals := []float64{scheduled - 1}
	if rate, counted := obs.Counters[quell.CounterMissRate]; counted {
		signals = append(signals, rate)
	}
	return signals
}

// learned returns the regression after one more row. If the processors have begun to count cache misses, it begins anew; a row without them
// is left out.
func (t *tenant) learned(signals []float64) stats.Recursive {
	model := t.before.Model
	if n := len(model.Coefficients); n > 0 && n <= len(signals) {
		model = stats.Recursive{}
	}
	return model.With(signals, t.slowdown, acsForget)
}

// unknown returns whether nothing tells how far the group is slowed down: it does not report its progress, how long it waits is not known,
// and it has no quota, the waiting for which would be known. Its weight stays then.
func (t *tenant) unknown() bool { return t.blind && t.from == quell.FromScheduling && t.quota == 0 }

// scheduled computes the slowdown from scheduling, and what the group would have used alone. The sensor tells what the group would use with
// a processor for each of its tasks (free), and which part of the time these lost by waiting. Alone, the group has all processors. If it
// has more tasks, they wait for each other, and it uses less than free. So alone it keeps alone / free of its time, and here 1 - lost; the
// slowdown is the one over the other.
//
// If the kernel does not report tasks one by one, the group counts as one task that is ready all or nothing: the part of time that it lost
// is busy * (1 - run / most). busy is the part of time in which it wanted to run, and most is what it would have used then.
func (t *tenant) scheduled(sched *quell.Sched, ready, window, total float64) float64 {
	run := max(t.run, ready/acsSlowest) // a group that did not run at all
	if sched.FreeS != nil && sched.Chains != nil && sched.Lost != nil && *sched.FreeS > 0 {
		free := *sched.FreeS / window
		alone := usedAlone(free, *sched.Chains, total)
		t.want = max(t.run, alone)
		return min(max(1, alone/free/max(1-*sched.Lost, 1.0/acsSlowest)), acsSlowest)
	}
	lost := max(0, min(1, ready)*(1-run/min(ready, total)))
	scheduled := 1 / (1 - min(lost, 1-1.0/acsSlowest))
	t.want = max(t.run, min(run*scheduled, total))
	return scheduled
}

// reported returns the slowdown by what the group reports of its work: the best rate over the present one. The best is that of a moment in
// which the group ran nearly alone. If there was none, it is the best rate without waiting that was seen, which is less than alone if the
// group always had neighbours in its caches.
func (t *tenant) reported(obs *quell.Observation, scheduled, window float64) (slowdown float64, ok bool) {
	rate, told := obs.Counters[quell.CounterProgress]
	t.periods = max(1, obs.Counters[quell.CounterProgressSpan]/window)
	switch {
	case obs.Slowdown != nil:
		return *obs.Slowdown, true
	case !told || rate <= 0:
		return 0, false
	}
	t.rate = rate
	if alone := t.before.Alone.Rate; alone > 0 {
		return alone / rate, true
	}
	t.next.Unwaited = rate * scheduled
	if before := t.before.Unwaited; before > 0 {
		fresh := acsSmoothing / t.periods // a rate of several periods says less of this one
		t.next.Unwaited = (1-fresh)*before + fresh*t.next.Unwaited
	}
	t.next.Best = max(t.next.Unwaited, t.before.Best*acsKept)
	return t.next.Best / rate, true
}

// foretell predicts the slowdown of a group that stopped reporting, from how long it waits and its cache misses (Eq. 5), if waiting was a
// good predictor before (Eq. 9).
func (t *tenant) foretell(signals []float64) {
	model := t.before.Model
	related, ok := model.Correlation()
	if !ok || related < acsRelated || model.Rows < acsRows {
		return
	}
	if y, ok := model.Predict(signals); ok {
		scheduled := 1 + signals[0]
		t.slowdown, t.from = max(1, min(y, scheduled*acsPlausible)), quell.FromModel
	}
}

// averageAll updates the groups' average levels. Readings of a moment in which one group ran nearly alone count for nothing. When a group
// has become idle, or busy again, what was before tells nothing of what is now.
func (d *hostCaps) averageAll() {
	if d.mem.Solo.Group != "" {
		return
	}
	turned := slices.ContainsFunc(d.tenants, tenant.turned)
	for i := range d.tenants {
		t := &d.tenants[i]
		if turned {
			t.next.Counted, t.next.Off = 0, 0
		}
		t.average(d.fresh(t))
	}
}

// fresh is the weight of a new slowdown in a group's average. By weights, the average is of all slowdowns since the last change, the k-th
// with a weight in proportion to k, until these span the window.
func (d *hostCaps) fresh(t *tenant) float64 {
	switch {
	case t.next.Counted == 0:
		return 1
	case d.weighs && d.set.Window > 0:
		return max(2/float64(t.next.Counted+2), 1-math.Exp(-d.window/d.set.Window.Seconds()))
	case d.mem.Even:
		return acsSmoothing
	}
	return 1
}

// turned returns whether the group has just become idle for longer than a moment, or is busy again after that.
func (t tenant) turned() bool {
	return t.idle && t.before.Away+1 == acsGone || !t.idle && t.before.Away >= acsGone
}

// average updates the group's average level. It averages 1 / level, the rate of its work, so that the average over several periods is the
// time that the work took in all of them over its time alone. Idle periods do not count.
func (t *tenant) average(fresh float64) {
	if t.idle {
		t.next.Away++
		return
	}
	if t.slowdown == 0 { // it was not read
		return
	}
	level := t.slowdown * t.share
	t.next.Away, t.next.Level = 0, level
	if before := t.before.Level; before > 0 {
		t.next.Level = 1 / ((1-fresh)/before + fresh/level)
		if fresh < 1 {
			t.notice(level / before)
		}
	}
	t.next.Counted = min(t.next.Counted+1, acsMemorable)
}

// notice looks whether a group's slowdowns are far from their average on the same side several times in a row. Then the group has changed,
// and the average begins anew. Few units of work vary by chance.
func (t *tenant) notice(ratio float64) {
	far := acsFar
	if t.periods > acsBrief {
		far = acsFarther
	}
	side := 0
	if ratio > far {
		side = 1
	} else if ratio < 1/far {
		side = -1
	}
	if side == 0 || side*t.next.Off < 0 {
		t.next.Off = 0
	}
	if t.next.Off += side; t.next.Off == acsChanged || t.next.Off == -acsChanged {
		t.next.Counted, t.next.Off = 1, 0
	}
}
