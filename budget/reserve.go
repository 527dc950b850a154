package budget

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Reserve is the part of a group's capacity that is left free, found by what was missed. It is a value: Follow returns the next one. The
// zero value has learned nothing yet.
//
// It has two parts. Excess is how far the load rose above what the last decision had made room for, in each period: by the load itself, by
// neighbours that came, and for as long as an instance takes to start. Its quantile at the target is the reserve that would have sufficed,
// and every period tells something of it, also those in which the objective held. Trim corrects it by what was really missed: an integral
// controller, which is slow.
type Reserve struct {
	Excess []float64 `json:"excess,omitempty"` // seconds, by how far the load was above the room, as a logarithm; never changed in place
	Trim   float64   `json:"trim,omitempty"`   // what the integral adds, as a logarithm
	Base   float64   `json:"base,omitempty"`   // Trim when the excess was last known
	Judged float64   `json:"judged,omitempty"` // seconds that have taught
	Missed float64   `json:"missed,omitempty"` // of these
	Trial  Trial     `json:"trial,omitzero"`
}

// Trial finds out whether a larger reserve helps. It compares what is missed while the integral adds little with what is missed while it
// adds much. If that is no less, what was added is taken back, and the integral may not add it again for some time.
type Trial struct {
	Little Counted `json:"little,omitzero"`
	Much   Counted `json:"much,omitzero"`
	Barred float64 `json:"barred,omitempty"` // for how many more seconds only little may be added
}

// Counted are seconds, and what was missed in them.
type Counted struct {
	Judged float64 `json:"judged"`
	Missed float64 `json:"missed"`
}

// Aim is what a reserve is for.
type Aim struct {
	Allowed float64       // part of the time that may be missed, above 0
	Startup time.Duration // how long an instance takes from the order until it gets load
}

// Lesson is what a period teaches.
type Lesson struct {
	Seconds float64
	Missed  float64 // part of it that missed the objective
	// Excess is the load over what the last decision made room for: the capacities at present, less the reserve; 0: not known, or the
	// group is larger than the reserve asks.
	Excess float64
}

const (
	lowest, cell, cells = -0.4, 0.02, 60 // the logarithms of the excess that are told apart
	// excessMemory is how long an excess is remembered, and priorSeconds is how much the prior counts.
	excessMemory, priorSeconds = 3600.0, 300.0
	// mostTrim bounds what the integral adds or takes.
	mostTrim = 0.2
	// MostReserve is the largest reserve.
	MostReserve = 0.5
	// little and much are what the integral adds in the two parts of a trial, and each is watched for some time. helps is the part of what
	// was missed with little that may be missed with much. Misses up to tolerated times what is allowed need no help.
	little, much, watched, helps, tolerated = 0.05, 0.15, 300.0, 0.8, 1.5
	// barredFor is for how long what did not help is not tried again.
	barredFor = 2 * 3600.0
)

// prior returns what is expected of the excess before anything was seen: the longer an instance takes to start, the more.
func prior(aim Aim) []float64 {
	mean := 0.02 + 0.01*math.Log2(1+aim.Startup.Seconds()/3)
	list := make([]float64, cells)
	for i := range list {
		if x := lowest + (float64(i)+0.5)*cell; x > 0 {
			list[i] = priorSeconds * cell / mean * math.Exp(-x/mean)
		}
	}
	return list
}

// Follow returns the reserve after one more period. told says what a person should know: that a step was taken back.
func (r Reserve) Follow(aim Aim, l Lesson) (next Reserve, told string) {
	r.Judged, r.Missed = r.Judged+l.Seconds, r.Missed+l.Seconds*l.Missed
	if r.Excess = slices.Clone(r.Excess); len(r.Excess) != cells {
		r.Excess = prior(aim)
	}
	if l.Excess > 0 {
		for i := range r.Excess {
			r.Excess[i] *= math.Exp(-l.Seconds / excessMemory)
		}
		i := int(math.Floor((math.Log(l.Excess) - lowest) / cell))
		r.Excess[max(0, min(cells-1, i))] += l.Seconds
	}
	least, step := -mostTrim, gain(aim)*l.Seconds*(l.Missed-aim.Allowed)
	if l.Excess == 0 { // what holds the objective is not the reserve
		least = math.Min(r.Base, r.Trim)
	}
	r.Trim = math.Max(least, math.Min(mostTrim, r.Trim+step))
	if told = r.try(aim, l); l.Excess > 0 {
		r.Base = math.Max(-mostTrim, math.Min(r.Trim, r.Base+step)) // of these periods alone
	}
	return r, told
}

// gain is by how much a missed second raises the reserve. While instances start, one miss goes on, and says the same for as long.
func gain(aim Aim) float64 { return 0.02 / (1 + aim.Startup.Seconds()/5) }

// try follows the trial.
func (r *Reserve) try(aim Aim, l Lesson) (told string) {
	t := &r.Trial
	if t.Barred = math.Max(0, t.Barred-l.Seconds); t.Barred > 0 {
		r.Trim = math.Min(r.Trim, little)
		return ""
	}
	switch {
	case r.Trim <= little:
		t.Little = t.Little.with(l)
	case r.Trim >= much:
		t.Much = t.Much.with(l)
	}
	before, now := t.Little.rate(), t.Much.rate()
	if t.Little.Judged < watched || t.Much.Judged < watched || now <= helps*before || now <= tolerated*aim.Allowed {
		return ""
	}
	r.Trim, *t = little, Trial{Barred: barredFor}
	return fmt.Sprintf("a larger reserve did not help: %.2f%% was missed with it, and %.2f%% without; it is taken back", 100*now, 100*before)
}

// with adds a period. What is older than about an hour fades.
func (c Counted) with(l Lesson) Counted {
	kept := math.Exp(-l.Seconds / excessMemory)
	return Counted{c.Judged*kept + l.Seconds, c.Missed*kept + l.Seconds*l.Missed}
}

func (c Counted) rate() float64 { return c.Missed / math.Max(c.Judged, 1) }

// Share returns the part of the capacity to leave free.
func (r *Reserve) Share(aim Aim) float64 {
	return math.Max(0, math.Min(MostReserve, 1-math.Exp(-r.quantile(aim)-r.Trim)))
}

// Asked returns the part that the excess alone asks for.
func (r *Reserve) Asked(aim Aim) float64 {
	return math.Max(0, math.Min(MostReserve, 1-math.Exp(-r.quantile(aim))))
}

// quantile returns the logarithm of the excess that is exceeded in the allowed part of the time.
func (r *Reserve) quantile(aim Aim) float64 {
	excess := r.Excess
	if len(excess) != cells {
		excess = prior(aim)
	}
	var all, above float64
	for _, n := range excess {
		all += n
	}
	for i := cells - 1; i >= 0; i-- {
		if above+excess[i] > aim.Allowed*all {
			return lowest + cell*(float64(i+1)-(aim.Allowed*all-above)/excess[i])
		}
		above += excess[i]
	}
	return lowest
}
