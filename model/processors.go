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
// instance's own tasks wait (BusyFor), and from steal. It returns false if the own use was not measured. chance is a fraction: what would
// remain of the others' use if tasks had waited and run 1 + chance times as long by chance only; 0 takes the waiting as it is.
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
	if wait, waited := waits(o.Sched); waited {
		stretch := math.Max(1, (1+wait)/(1+chance)) // time at the processors for each second in which tasks ran
		use.Hidden = math.Max(use.Hidden, BusyFor(stretch-1, o.Sched.Cores)-use.Own)
	}
	use.Own = math.Min(1, use.Own)
	use.Hidden = math.Min(use.Hidden, 1-use.Own)
	return use, true
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
