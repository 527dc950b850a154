package model

import (
	"math"

	"github.com/quellhq/quell"
)

// ProcessorUse is how busy an instance's processors are, in fractions of them: by the instance itself, and by others. The others are tasks
// of the same machine outside the instance, or other machines to which the hypervisor gave the processors.
type ProcessorUse struct{ Own, Hidden float64 }

// Busy is the whole use.
func (p ProcessorUse) Busy() float64 { return math.Min(1, p.Own+p.Hidden) }

// ProcessorsOf returns how busy an instance's processors are. A tenant cannot see what others use, so that is inferred from how long the
// instance's own tasks wait (busyByWaiting), and from steal. It returns false if the own use was not measured. chance is a fraction: what
// would remain of the others' use if tasks had waited and run 1 + chance times as long by chance only; 0 takes the waiting as it is.
func ProcessorsOf(o *quell.Observation, chance float64) (use ProcessorUse, ok bool) {
	use.Own, ok = o.Utilization[quell.CPU]
	if c := o.CPU; c != nil {
		if !ok {
			use.Own, ok = c.User+c.System, true
		}
		use.Hidden = c.Steal
	}
	if !ok {
		return use, false
	}
	if busy, told := busyByWaiting(o, chance); told && o.Sched.RunS >= minRun {
		alone := itself(o.Sched) / (o.Sched.Cores * o.WindowS)
		use.Hidden = math.Max(use.Hidden, busy-math.Max(0, use.Own-alone))
	}
	use.Own = math.Min(1, use.Own)
	use.Hidden = math.Min(use.Hidden, 1-use.Own)
	return use, true
}

// busyByWaiting returns which share of its time a processor is busy with tasks for which an instance's own tasks wait: those of others, and
// other tasks of the instance. The waiting that a quota of the instance causes does not count. If the instance may use less than one
// processor, all times are those of a processor that is slower by that factor. It returns false if the kernel does not report how long
// tasks wait.
func busyByWaiting(o *quell.Observation, chance float64) (busy float64, ok bool) {
	sched := o.Sched
	if sched == nil || sched.Cores <= 0 || sched.RunS <= 0 || o.WindowS <= 0 {
		return 0, false
	}
	wait, _, ok := Waiting(o, sched.RunS)
	if !ok {
		return 0, false
	}
	waitPerRun := max(0, wait-StoppedFor(sched)) / sched.RunS * min(1, sched.Cores)
	return BusyFor(max(0, waitPerRun-chance)/(1+chance), sched.Cores), true
}

// BusyFor returns which share of their time processors are busy, if tasks wait this long for each second that they run. It inverts the
// waiting time of the queue M/M/c as Sakasegawa approximates it: wait / run = rho^(sqrt(2 (c + 1)) - 1) / (c (1 - rho)). Less than one
// processor counts as one.
func BusyFor(waitPerRun, cores float64) float64 {
	c := math.Max(1, cores)
	power := math.Sqrt(2*(c+1)) - 1
	low, high := 0.0, 1.0
	const steps = 40
	for range steps {
		rho := (low + high) / 2
		if math.Pow(rho, power)/(c*(1-rho)) < waitPerRun {
			low = rho
		} else {
			high = rho
		}
	}
	return low
}

// NeighboursUse returns the neighbours' use of the processors on which a control group runs, in fractions of these processors. A tenant
// cannot see that use, so it is inferred from how long the group's own tasks waited (busyByWaiting). What the hypervisor took is not the
// neighbours'. It returns false if o is not of a control group that shares processors with others, or if the kernel does not report how
// long tasks wait.
func NeighboursUse(o *quell.Observation) (share float64, ok bool) {
	if o == nil || o.Sched == nil || !o.Sched.Group {
		return 0, false
	}
	busy, ok := busyByWaiting(o, 0)
	if !ok {
		return 0, false
	}
	sched, stolen := o.Sched, 0.0
	whole := sched.Cores * o.WindowS
	if o.CPU != nil {
		stolen = o.CPU.Steal * whole
	}
	share = busy - (sched.RunS-itself(sched)+stolen)/whole
	return max(0, min(share, 1-sched.RunS/whole)), true
}

// SignificantUse is the least use of an instance's processors by neighbours, inferred from one window, that is not taken for chance.
const SignificantUse = 0.1

// Waiting returns how many seconds a group's tasks waited, and in which fraction (own) of that time processors ran other tasks of the same
// group instead of its neighbours' tasks. run is the processor time of the whole machine. ok is false if the kernel does not report this.
func Waiting(obs *quell.Observation, run float64) (seconds, own float64, ok bool) {
	sched := obs.Sched
	if sched.WaitS != nil {
		// A task never waits for itself. It waits for the other tasks of its group and for neighbours' tasks.
		if one := itself(sched); run > one {
			own = (sched.RunS - one) / (run - one)
		}
		return *sched.WaitS, own, true
	}
	some, ok := obs.Pressure["cpu"]
	if !ok {
		return 0, 0, false
	}
	// During full pressure no task of the group ran, so the group did not wait for its own tasks.
	if full := obs.Pressure[quell.PressureFull]; some > full && run > 0 {
		own = (some - full) / some * sched.RunS / run
	}
	return some * obs.WindowS, own, true
}

// StoppedFor returns how long an instance's quota stopped its tasks, in seconds. If the quota is less than one processor, a task that is
// alone is stopped for at least the part of the time that the quota does not give it, also if the quota is that of a group above.
func StoppedFor(s *quell.Sched) (seconds float64) {
	if s.ThrottledS != nil {
		seconds = *s.ThrottledS
	}
	return max(seconds, s.RunS*(1/min(1, s.Cores)-1))
}

// itself returns the processor time of one task, which never waits for itself; 0 if it is not known.
func itself(s *quell.Sched) float64 {
	if s.TaskRunS == nil {
		return 0
	}
	return min(*s.TaskRunS, s.RunS)
}
