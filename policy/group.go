package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Group holds a snapshot's instances, sorted by what can be done with them.
type Group struct {
	Members     []Member              // all, in the snapshot's order
	Ready       []*Member             // in the snapshot's order
	Rated       []*Member             // ready, with known utilisation and severity, so that their capacity can be computed
	Unrated     []*Member             // the other ready ones
	Starting    int                   // starting, including ordered instances that are not listed yet
	late        int                   // starting for longer than group.startup: they count against group.max, and not as coming
	held        int                   // taken out of rotation by a person: they count against group.max, get no load and are not removed
	stuck       int                   // could not be stopped: they get no load, and count against group.max because they still run
	Outstanding int                   // starting, or ready without a first severity
	Weightless  bool                  // no ready instance has a weight yet
	HandingOver bool                  // the weights in force are from another policy
	Rates       []float64             // by resource: how much of the first resource the service uses per unit of this one
	mixed       [MaxContended]float64 // by resource: the service's recent use, from blend
	Load        float64
	Due         float64           // the part of the load that the rated instances must carry
	LoadText    string            // due as text
	doubted     []string          // instances whose severity does not count; see doubtProber
	probed      map[string]Probed // of the next State
	Now         Crowds            // the group's present size and use, if the models describe it as a station
}

// present starts the plan with the weights in force: unchanged if they sum to 1, scaled if an instance left, equal if
// there are none. If the guard changed the last plan and that plan is in force, the new plan starts with the shares that the
// policy wanted instead, because otherwise a ramp or a step would never get further. During a handover from another policy
// the new plan starts with equal shares, or with the shares that this policy has wanted since the handover began.
func (g *Group) present(handingOver, begun bool) {
	g.HandingOver = handingOver
	applied := g.lastPlanInForce() && (begun || !handingOver)
	g.Weightless = true
	var sum float64
	for _, m := range g.Ready {
		m.Planned = m.WeightNow()
		g.Weightless = g.Weightless && m.Planned == 0
		if c := m.mem.Clamped; applied && c != nil {
			m.Planned = c.Wanted
		}
		sum += m.Planned
	}
	switch {
	case g.Weightless || sum == 0 || handingOver && !applied:
		evenly(g.Ready)
	case !isWhole(sum):
		for _, m := range g.Ready {
			m.Planned /= sum
		}
	}
}

// lastPlanInForce returns whether the instances whose weights the guard changed have the planned weights. Balancers
// round weights, so a difference of a hundredth is ignored.
func (g *Group) lastPlanInForce() bool {
	equal := 1 / float64(len(g.Ready))
	return !slices.ContainsFunc(g.Ready, func(m *Member) bool {
		c := m.mem.Clamped
		return c != nil && math.Abs(m.WeightNow()-c.Planned) > 0.01*math.Max(c.Planned, equal)
	})
}

// arrived returns whether the weights in force equal the plan's weights, apart from the rounding of balancers.
func (g *Group) arrived() bool {
	equal := 1 / float64(len(g.Ready))
	return !slices.ContainsFunc(g.Ready, func(m *Member) bool {
		return m.stays && math.Abs(m.WeightNow()-m.Planned) > 0.05*math.Max(m.Planned, equal)
	})
}

// isWhole returns whether a sum of weights is 1, apart from rounding.
func isWhole(sum float64) bool { return quell.AtMost(sum, 1) && quell.AtMost(1, sum) }

// Equal gives every ready instance the same share, relative to an even one.
func (g *Group) Equal() {
	for _, m := range g.Ready {
		m.Planned = 1 / float64(len(g.Ready))
	}
}

// AddOne asks for one more instance, unless an instance is already starting or the group is full.
func (g *Group) AddOne(in *Input, plan *quell.Plan, code, why string) {
	switch {
	case g.Starting > 0:
		AddReason(plan, code, "", "%s: waiting for %d instance(s) that are coming", why, g.Starting)
	case in.Service.Group.Fixed:
		AddReason(plan, "overload", "", "%s, and the fleet is fixed: nothing can be added", why)
	case len(g.Ready) >= g.MaxSize(in):
		AddReason(plan, "overload", "", "%s, and %s", why, g.Limit(in))
	default:
		plan.Group = &quell.GroupChange{Add: 1}
		AddReason(plan, code, "", "%s: adding 1", why)
	}
}

// MaxSize returns how many instances may be in rotation or starting: group.max less the instances that people took out of rotation, those
// that are late, those that could not be stopped, and those that were ordered and may still come.
func (g *Group) MaxSize(in *Input) int {
	return max(0, in.Service.Group.Max-g.held-g.late-g.stuck-in.Snapshot.MayCome)
}

// Limit describes the largest allowed size of the group as text.
func (g *Group) Limit(in *Input) string {
	text := fmt.Sprintf("the group may have at most %d instance(s)", in.Service.Group.Max)
	if g.held > 0 {
		text += fmt.Sprintf(", %d of them held", g.held)
	}
	if g.late > 0 {
		text += fmt.Sprintf(", %d of them late in starting", g.late)
	}
	if g.stuck > 0 {
		text += fmt.Sprintf(", %d of them impossible to stop", g.stuck)
	}
	if n := in.Snapshot.MayCome; n > 0 {
		text += fmt.Sprintf(", %d of them ordered and perhaps started", n)
	}
	return text
}

// ByCapacity returns the rated instances in the order in which they are kept: first those whose share a person set, then the others by
// capacity, largest first. Of two equal instances the older one comes first, then the first in the snapshot. Instances with errors are
// last, so that they are the first to be removed. (Sorting values that are beside each other is many times as fast as sorting what they
// belong to.)
func (g *Group) ByCapacity() []*Member {
	type key struct {
		capacity float64
		age      time.Duration
		class    int32
		at       int32 // in g.Rated, which is in the snapshot's order
	}
	keys := make([]key, len(g.Rated))
	for i, m := range g.Rated {
		if keys[i] = (key{m.Capacity, m.Age(), 0, int32(i)}); m.Fixed == nil {
			keys[i].class = 2
		}
		if m.Failing {
			keys[i].class++
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		switch {
		case a.class != b.class:
			return int(a.class - b.class)
		case a.capacity != b.capacity:
			return cmp.Compare(b.capacity, a.capacity)
		case a.age != b.age:
			return cmp.Compare(b.age, a.age)
		}
		return int(a.at - b.at)
	})
	sorted := make([]*Member, len(keys))
	for i := range keys {
		sorted[i] = g.Rated[keys[i].at]
	}
	return sorted
}

// noteHeld reports which instances a person took out of rotation.
func noteHeld(g *Group, plan *quell.Plan) {
	for i := range g.Members {
		if m := &g.Members[i]; m.Held != nil {
			AddReason(plan, "held", m.ID, "%s is held by %s since %s: it gets no requests and counts as no capacity",
				m.ID, m.Held.By, m.Held.Since.UTC().Format(time.DateTime)+" UTC")
		}
	}
}
