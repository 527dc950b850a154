package rivals

import (
	"math"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/setting"
)

// PIDSettings are the settings of pid.
type PIDSettings struct {
	Resource     quell.Resource // whose utilisation counts
	Proportional float64        // gains: how far a share moves for a deviation of the load from the mean,
	Integral     float64        // for the sum of earlier deviations,
	Derivative   float64        // and for the change since the deviation before
	Tolerance    float64        // no weight changes by less than this fraction of itself
}

var PID = policy.Spec[PIDSettings]{
	Name: "pid", About: "weights that even out the load of all instances, by a controller for each, like Dropbox's Robinhood",
	Scope:    policy.ServiceScope,
	Defaults: PIDSettings{Resource: quell.Network, Proportional: 0.5, Integral: 0.05, Derivative: 0.1, Tolerance: 0.05},
	Keys: func(s *PIDSettings) setting.Table {
		gain := func(dst *float64) setting.Value { return setting.Decimal(dst).Between(0, 2) }
		return setting.Table{
			policy.ResourceKey(&s.Resource),
			setting.Opt("proportional", gain(&s.Proportional), "part of a deviation from the mean load that a share makes up for at once"),
			setting.Opt("integral", gain(&s.Integral), "the same, of the sum of all deviations"),
			setting.Opt("derivative", gain(&s.Derivative), "the same, of the change since the deviation before"),
			policy.ToleranceKey(&s.Tolerance),
		}
	},
	Senses:   func(s PIDSettings) policy.Senses { return policy.Sensing(s.Resource) },
	Instance: policy.Empty[pidInstance],
	Decide:   pid,
}

// pidInstance is the memory of an instance's controller. Deviations are fractions of the mean load, positive below the mean.
type pidInstance struct {
	At  time.Time `json:"at,omitzero"` // when the last deviation was observed
	Off float64   `json:"off,omitempty"`
	Sum float64   `json:"sum,omitempty"`
}

func pidOf(m *policy.Member) *pidInstance { return policy.MemoryOf[pidInstance](m) }

// Bounds of the controllers.
const (
	maxOff   = 1.0 // a deviation counts as at most this
	maxSum   = 2.0 // so does the sum, because it grows while a share cannot move
	maxMoved = 0.5 // a share changes by at most this part of itself at once
	minQueue = 1.0 // requests in flight are compared with their mean, or with this if the mean is less
)

// pid is like Dropbox's Robinhood: for every instance a PID controller compares its load with the mean load of all, and changes the
// instance's weight. The load is the larger of utilisation and requests in flight. It does not scale the group.
func pid(_ *policy.Input, set PIDSettings, g *policy.Group, _ *policy.State) quell.Plan {
	policy.RememberedOf[pidInstance](g)
	var plan quell.Plan
	loads, mean := evenness(g)
	shares, sum := make([]float64, len(g.Ready)), 0.0
	for i, m := range g.Ready {
		shares[i] = controlled(g, m, set, loads[i], mean)
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
	shift(g, &plan, shares, set.Tolerance, "shares that bring every instance's load nearer to the mean")
	return plan
}

// evenness returns the loads of the ready instances as multiples of the usual load, and their mean. The load of an instance without a fresh
// reading, or whose share a person set, is 0 and does not count.
func evenness(g *policy.Group) (loads []float64, mean float64) {
	use := multiples(g, 0, func(m *policy.Member) (float64, bool) { return m.Use, m.HasUse })
	queue := multiples(g, minQueue, func(m *policy.Member) (float64, bool) {
		if m.Observation.InFlight == nil {
			return 0, false
		}
		return *m.Observation.InFlight, true
	})
	loads, known := use, 0.0
	for i := range loads {
		if loads[i] = math.Max(loads[i], queue[i]); loads[i] > 0 {
			mean += loads[i]
			known++
		}
	}
	return loads, mean / math.Max(known, 1)
}

// multiples returns a value of each ready instance divided by the mean, or by least if the mean is below it; 0 if it is not known.
func multiples(g *policy.Group, least float64, value func(*policy.Member) (float64, bool)) []float64 {
	list, sum, known := make([]float64, len(g.Ready)), 0.0, 0.0
	for i, m := range g.Ready {
		if !m.Fresh || m.Fixed != nil {
			continue
		}
		if x, ok := value(m); ok {
			list[i] = x
			sum += x
			known++
		}
	}
	mean := math.Max(sum/math.Max(known, 1), least)
	for i := range list {
		if mean > 0 {
			list[i] /= mean
		}
	}
	return list
}

// controlled returns what the instance's controller makes of its share. An instance without a share begins with an equal one.
func controlled(g *policy.Group, m *policy.Member, set PIDSettings, load, mean float64) float64 {
	equal := 1 / float64(len(g.Ready))
	mem := pidOf(m)
	if m.Planned == 0 {
		*mem = pidInstance{}
		return equal
	}
	if load == 0 || m.Observation.At.Equal(mem.At) {
		return m.Planned
	}
	off := math.Max(-maxOff, 1-load/mean)
	rises := off - mem.Off
	if mem.At.IsZero() {
		rises = 0
	}
	mem.At, mem.Off, mem.Sum = m.Observation.At, off, math.Min(maxSum, math.Max(-maxSum, mem.Sum+off))
	by := set.Proportional*off + set.Integral*mem.Sum + set.Derivative*rises
	return math.Max(m.Planned*(1+math.Min(maxMoved, math.Max(-maxMoved, by))), exploring*equal)
}
