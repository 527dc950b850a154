package policy

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/quellhq/quell"
)

// failedFor is for how many consecutive snapshots an instance must be failed before it is given up: one failed
// health check between two snapshots is no reason to end it.
const failedFor = 2

// guard clamps a plan, whatever policy made it: the group first, then weights in a fixed order, then renormalised.
// It is pure, and says what it changed.
func guard(in Input, g *group, plan *quell.Plan) {
	gd := &guarded{in: in, group: g, plan: plan}
	gd.boundGroup()
	gd.findStaying()
	gd.fadeStale()
	gd.holdFailing()
	gd.rampNew()
	gd.floorAndStep()
	gd.normalise()
	gd.setWeights()
}

type guarded struct {
	in      Input
	group   *group
	plan    *quell.Plan
	staying []*member // ready, and not removed
}

func (gd *guarded) reason(code, instance, format string, args ...any) {
	addReason(gd.plan, code, instance, format, args...)
}

// boundGroup keeps the group within its bounds, gives up failed instances and never removes protected ones. A
// failed instance that may still recover takes up room: what is added for it stays within the bounds too.
func (gd *guarded) boundGroup() {
	change := quell.GroupChange{}
	if gd.plan.Group != nil {
		change = *gd.plan.Group
	}
	bounds := gd.in.Service.Group
	change.Remove = slices.DeleteFunc(slices.Clone(change.Remove), func(id string) bool { return gd.in.protected[id] })
	alive := len(gd.group.ready) + gd.group.starting
	if spare := max(0, alive-bounds.Min); len(change.Remove) > spare {
		gd.reason("group_min", "", "keeping %d instance(s): the group has at least %d", len(change.Remove)-spare, bounds.Min)
		change.Remove = change.Remove[len(change.Remove)-spare:]
	}
	left := alive - len(change.Remove)
	if after := left + change.Add; after < bounds.Min {
		gd.reason("group_min", "", "%d instance(s), and the group has at least %d: adding %d", after, bounds.Min, bounds.Min-after)
		change.Add = bounds.Min - left
	}
	givenUp, recovering := gd.failed()
	if room := max(0, bounds.Max-left-recovering); change.Add > room || left > bounds.Max {
		gd.reason("group_max", "", "the group has at most %d instance(s)", bounds.Max)
		change.Add = min(change.Add, room)
		change.Remove = append(change.Remove, gd.group.youngest(left-bounds.Max, change.Remove)...)
	}
	change.Remove = append(change.Remove, givenUp...)
	gd.plan.Group = nil
	if !change.Empty() {
		gd.plan.Group = &change
	}
}

// youngest picks up to n instances to remove, first those that are still starting, then the youngest ones; of equally old
// ones the last, as it was listed, and so started, last.
func (g *group) youngest(n int, leaving []string) []string {
	if n <= 0 {
		return nil
	}
	gone := setOf(leaving)
	var candidates []*member
	for i := range slices.Backward(g.members) {
		m := &g.members[i]
		if (m.State == quell.Starting || m.State == quell.Ready) && !m.protected && !gone[m.ID] {
			candidates = append(candidates, m)
		}
	}
	slices.SortStableFunc(candidates, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.readiness(), b.readiness()), cmp.Compare(a.age(), b.age()))
	})
	ids := make([]string, min(n, len(candidates)))
	for i := range ids {
		ids[i] = candidates[i].ID
	}
	return ids
}

// readiness is less for an instance that is still starting.
func (m *member) readiness() int {
	if m.State == quell.Starting {
		return 0
	}
	return 1
}

// failed lists the failed instances that are given up, and counts the others.
func (gd *guarded) failed() (givenUp []string, recovering int) {
	for i := range gd.group.members {
		m := &gd.group.members[i]
		switch {
		case m.State != quell.Failed:
		case m.mem.FailedFor >= failedFor && !m.protected:
			givenUp = append(givenUp, m.ID)
		default:
			recovering++
		}
	}
	if gd.in.Service.Group.Fixed {
		gd.tellFailed("health checks fail at %s: no request goes there, and the fleet is fixed, so nothing is started in its place", givenUp)
		return nil, recovering
	}
	gd.tellFailed("giving up %s: health checks fail", givenUp)
	return givenUp, recovering
}

// tellFailed says what becomes of failed instances, and what their last health checks asked and got.
func (gd *guarded) tellFailed(what string, ids []string) {
	var parts []string
	for i := range gd.group.members {
		m := &gd.group.members[i]
		if !slices.Contains(ids, m.ID) {
			continue
		}
		if m.Health != "" {
			parts = append(parts, m.ID+" ("+m.Health+")")
		} else {
			parts = append(parts, m.ID)
		}
	}
	if len(parts) > 0 {
		gd.reason("failed", "", what, strings.Join(parts, ", "))
	}
}

func (gd *guarded) findStaying() {
	var gone map[string]bool
	if gd.plan.Group != nil {
		gone = setOf(gd.plan.Group.Remove)
	}
	gd.staying = make([]*member, 0, len(gd.group.ready))
	for _, m := range gd.group.ready {
		m.wanted, m.mem.Clamped = m.share, nil
		if m.stays = !gone[m.ID]; m.stays {
			gd.staying = append(gd.staying, m)
		}
	}
}

func setOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// fadeStale keeps the last weight of an instance whose readings stopped, and moves it to an equal share over
// guard.fade periods.
func (gd *guarded) fadeStale() {
	rules := gd.in.Service.Guard
	equal := 1 / float64(len(gd.staying))
	for _, m := range gd.staying {
		periods := m.mem.StaleFor
		if periods == 0 {
			continue
		}
		if m.mem.StaleWeight == nil {
			last := m.share
			if m.Weight != nil {
				last = *m.Weight
			}
			m.mem.StaleWeight = &last
		}
		moved := 1.0
		if rules.Fade > 0 {
			moved = math.Min(1, float64(periods)/float64(rules.Fade))
		}
		m.kept = true
		m.share = (1-moved)**m.mem.StaleWeight + moved*equal
		gd.reason("stale", m.ID, "no reading of %s for %d period(s): keeping its weight, %.0f%% on the way to an equal share", m.ID, periods+rules.StaleAfter, moved*100)
	}
}

// holdFailing gives an instance that answers with errors no more weight than it has: errors are fast, and would
// draw traffic.
func (gd *guarded) holdFailing() {
	for _, m := range gd.staying {
		if m.failing && m.share > m.weight() {
			m.share = m.weight()
			gd.reason("errors", m.ID, "%.1f%% of its requests fail: it gains no weight", *m.Observation.ErrorRate*100)
		}
	}
}

// rampNew raises a new instance's weight in proportion to its age.
func (gd *guarded) rampNew() {
	ramp := gd.in.Service.Guard.SlowStart
	if ramp == 0 {
		return
	}
	for _, m := range gd.staying {
		if m.AgeS == nil || m.age() >= ramp {
			continue
		}
		part := math.Max(0.1, float64(m.age())/float64(ramp))
		m.share *= part
		gd.reason("slow_start", m.ID, "%s is %.0f s old: %.0f%% of its share", m.ID, m.age().Seconds(), part*100)
	}
}

// floorAndStep keeps every weight above a floor, so that a suffering instance still shows its state, and bounds
// how far a weight moves at once.
func (gd *guarded) floorAndStep() {
	rules := gd.in.Service.Guard
	equal := 1 / float64(len(gd.staying))
	floor, step := rules.Floor*equal, rules.Step*equal
	for _, m := range gd.staying {
		if m.share < floor && !m.waiting() {
			m.share = floor
			if m.failing {
				m.share = math.Min(floor, m.weight())
			}
		}
		if step > 0 && m.weight() > 0 {
			m.share = math.Min(math.Max(m.share, m.weight()-step), m.weight()+step)
		}
	}
}

// waiting says whether an instance has no weight yet because nothing is known of it.
func (m *member) waiting() bool { return m.weight() == 0 && m.share == 0 && !m.rated() }

// normalise makes the weights sum to 1. Stale instances stay where they are and failing ones do not gain, as long as
// there are others to make up for them.
func (gd *guarded) normalise() {
	var sum, fixed, free float64
	for _, m := range gd.staying {
		sum += m.share
	}
	if isWhole(sum) {
		return
	}
	isFixed := func(m *member) bool { return m.kept || m.failing && sum < 1 }
	others := 0
	for _, m := range gd.staying {
		if isFixed(m) {
			fixed += m.share
		} else {
			free += m.share
			others++
		}
	}
	alone := others == 0 || fixed >= 1
	for _, m := range gd.staying {
		switch {
		case alone && sum > 0:
			m.share /= sum
		case alone:
			m.share = 1 / float64(len(gd.staying))
		case isFixed(m):
		case free > 0:
			m.share = m.share / free * (1 - fixed)
		default:
			m.share = (1 - fixed) / float64(others)
		}
	}
}

// setWeights writes the weights into the plan, and remembers what the policy had wanted where they differ.
func (gd *guarded) setWeights() {
	if len(gd.staying) == 0 {
		return
	}
	gd.plan.Weights = make(map[string]float64, len(gd.staying))
	for _, m := range gd.staying {
		gd.plan.Weights[m.ID] = m.share
		if math.Abs(m.share-m.wanted) > quell.SumTolerance {
			m.mem.Clamped = &Clamped{Wanted: m.wanted, Planned: m.share}
		}
	}
}
