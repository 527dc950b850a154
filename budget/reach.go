package budget

import (
	"fmt"
	"math"

	"github.com/quellhq/quell"
)

// Reach finds out whether a target is within reach of a group that is as large as it may be.
type Reach struct {
	// Objective and Most are what the rest is about: the objective with its target, and the largest size.
	Objective string `json:"objective,omitempty"`
	Most      int    `json:"most,omitempty"`
	// FullS and OverS are the seconds in which the group was full, and what of them was missed; both fade in about an hour.
	FullS float64 `json:"full_s,omitempty"`
	OverS float64 `json:"over_s,omitempty"`
	AllS  float64 `json:"all_s,omitempty"`
	// SlowMS is the longest response time while the group was full; it fades.
	SlowMS float64 `json:"slow_ms,omitempty"`
	Lacked int     `json:"lacked,omitempty"` // the most instances that were lacking meanwhile
	Out    string  `json:"out,omitempty"`    // what would be needed; "": the target is within reach
}

// fullFades is how long a full group is remembered, in seconds; minMissed is what must have been missed by then, outOfReach how many
// times what is allowed, and reachedAgain below how many times the target counts as within reach again.
const fullFades, minMissed, outOfReach, reachedAgain = 3600.0, 30.0, 2.0, 1.0

// For returns what is known of an objective and a largest size. If one of them was another one, begun is true, and nothing is.
func (r Reach) For(slo quell.SLO, most int) (next Reach, begun bool) {
	objective := fmt.Sprintf("%s, %g", Objective(slo), slo.Target)
	begun = r.Objective != "" && (r.Objective != objective || r.Most != most)
	if begun {
		r = Reach{}
	}
	r.Objective, r.Most = objective, most
	return r, begun
}

// Follow counts a judged period, and returns whether it changed what is said of the target. full says that the group was as large as it may
// be, and too small.
func (r *Reach) Follow(v *Verdict, slo quell.SLO, seconds float64, full bool) (changed bool) {
	fades, allowed := math.Exp(-seconds/fullFades), 1-slo.Target
	r.AllS, r.FullS, r.OverS, r.SlowMS = r.AllS*fades+seconds, r.FullS*fades, r.OverS*fades, r.SlowMS*fades
	if full {
		r.FullS, r.OverS = r.FullS+seconds, r.OverS+seconds*v.Missed(slo.Of)
		for _, m := range v.Misses {
			if !m.Failing {
				r.SlowMS = math.Max(r.SlowMS, m.Times*slo.ThresholdMS())
			}
		}
	}
	rate := r.OverS / r.AllS
	switch {
	case r.Out == "" && r.OverS >= minMissed && rate > outOfReach*allowed:
		r.Out = fmt.Sprintf("with %d instances, the most that group.max allows, %.1f%% of the last time was missed, and %.2f%% may be: about "+
			"%d instances would be needed, or a threshold of about %.0f ms",
			r.Most, 100*rate, 100*allowed, r.Most+max(1, r.Lacked), math.Ceil(r.SlowMS))
		return true
	case r.Out != "" && rate < reachedAgain*allowed:
		r.Out, r.Lacked = "", 0
		return true
	}
	return false
}
