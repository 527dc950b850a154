package fluid

import (
	"math"
	"time"

	"github.com/quellhq/quell/budget"
)

// Rule makes a function that says, second by second, which part of the capacity may be used.
type Rule struct {
	Name string
	New  func(allowed float64, startup time.Duration) func(View) float64
}

// Rules are those that are compared. The last is Quell's.
func Rules() []Rule {
	return []Rule{
		{"integral", func(allowed float64, startup time.Duration) func(View) float64 {
			return integral(allowed, startup, math.MaxInt)
		}},
		{"episodes", func(allowed float64, startup time.Duration) func(View) float64 { return integral(allowed, startup, 10) }},
		{"quantile and trim", found},
	}
}

// Fixed is a headroom that a person sets.
func Fixed(headroom float64) func(View) float64 { return func(View) float64 { return headroom } }

// Bounds and beginning of the headroom of the integral rules.
const first, least = 0.9, 1 - budget.MostReserve

// integral raises the headroom in each second kept, and lowers it in each second missed, so that both are equal if the allowed part is
// missed. Of each miss at most the first seconds count.
func integral(allowed float64, startup time.Duration, seconds int) func(View) float64 {
	up := 0.02 * allowed / (1 + startup.Seconds()/5)
	headroom, episode := first, 0
	return func(v View) float64 {
		switch {
		case v.Second == 0:
		case !v.Missed:
			headroom, episode = headroom+up, 0
		case episode < seconds:
			headroom, episode = headroom-up*(1-allowed)/allowed, episode+1
		}
		headroom = math.Max(least, math.Min(1, headroom))
		return headroom
	}
}

// found is the rule of package budget.
func found(allowed float64, startup time.Duration) func(View) float64 {
	aim, r := budget.Aim{Allowed: allowed, Startup: startup}, budget.Reserve{}
	return func(v View) float64 {
		headroom := 1 - r.Share(aim)
		if v.Second == 0 || len(v.Ready) == 0 {
			return headroom
		}
		room, l := 0.0, budget.Lesson{Seconds: 1}
		for _, x := range v.Ready {
			room += headroom * x
		}
		if l.Excess = v.Load / room; v.Missed {
			l.Missed = 1
		}
		r, _ = r.Follow(aim, l)
		return 1 - r.Share(aim)
	}
}
