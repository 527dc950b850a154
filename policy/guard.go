package policy

import (
	"fmt"
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
func guard(in Input, g *group, plan *quell.Plan, st *State) {
	gd := &guarded{in: in, group: g, plan: plan, st: st}
	gd.boundGroup()
	gd.staying = slices.DeleteFunc(slices.Clone(g.ready), func(m *member) bool {
		return plan.Group != nil && slices.Contains(plan.Group.Remove, m.ID)
	})
	if len(gd.staying) == 0 {
		plan.Weights = nil
		return
	}
	gd.fillWeights()
	gd.fadeStale()
	gd.holdFailing()
	gd.rampNew()
	gd.floorAndStep()
	gd.normalise()
}

type guarded struct {
	in      Input
	group   *group
	plan    *quell.Plan
	st      *State
	staying []*member
}

func (gd *guarded) reason(code, instance, format string, args ...any) {
	addReason(gd.plan, code, instance, format, args...)
}

func (gd *guarded) protected(id string) bool {
	return slices.Contains(gd.in.Service.Group.Protected, id)
}

// boundGroup keeps the group within its bounds, gives up failed instances and never removes protected ones.
func (gd *guarded) boundGroup() {
	change := quell.GroupChange{}
	if gd.plan.Group != nil {
		change = *gd.plan.Group
	}
	change.Remove = slices.DeleteFunc(slices.Clone(change.Remove), gd.protected)
	bounds := gd.in.Service.Group
	alive := len(gd.group.ready) + gd.group.starting
	if spare := max(0, alive-bounds.Min); len(change.Remove) > spare {
		gd.reason("group_min", "", "keeping %d instance(s): the group has at least %d", len(change.Remove)-spare, bounds.Min)
		change.Remove = change.Remove[len(change.Remove)-spare:]
	}
	after := alive - len(change.Remove) + change.Add
	if after < bounds.Min {
		gd.reason("group_min", "", "%d instance(s), and the group has at least %d: adding %d", after, bounds.Min, bounds.Min-after)
		change.Add += bounds.Min - after
	}
	if over := after - bounds.Max; over > 0 {
		change = gd.shrink(change, over)
	}
	change.Remove = append(change.Remove, gd.failed()...)
	gd.plan.Group = nil
	if !change.Empty() {
		gd.plan.Group = &change
	}
}

// shrink takes an excess over group.max back: first what would be added, then the youngest instances.
func (gd *guarded) shrink(change quell.GroupChange, over int) quell.GroupChange {
	gd.reason("group_max", "", "the group has at most %d instance(s)", gd.in.Service.Group.Max)
	fewer := min(change.Add, over)
	change.Add -= fewer
	over -= fewer
	if over == 0 {
		return change
	}
	youngest := slices.Clone(gd.group.ready)
	slices.SortStableFunc(youngest, func(a, b *member) int { return int(a.age()/1e6) - int(b.age()/1e6) })
	for _, m := range youngest {
		if over > 0 && !gd.protected(m.ID) && !slices.Contains(change.Remove, m.ID) {
			change.Remove = append(change.Remove, m.ID)
			over--
		}
	}
	return change
}

func (gd *guarded) failed() []string {
	var ids []string
	for i := range gd.in.Snapshot.Instances {
		instance := &gd.in.Snapshot.Instances[i]
		if gd.st.Instances[instance.ID].FailedFor >= failedFor && !gd.protected(instance.ID) {
			ids = append(ids, instance.ID)
		}
	}
	if len(ids) > 0 {
		gd.reason("failed", "", "giving up %s: health checks fail", strings.Join(ids, ", "))
	}
	return ids
}

// fillWeights makes the weights cover exactly the instances that stay.
func (gd *guarded) fillWeights() {
	weights := make(map[string]float64, len(gd.staying))
	for _, m := range gd.staying {
		weights[m.ID] = gd.plan.Weights[m.ID]
	}
	gd.plan.Weights = weights
}

// fadeStale keeps the last weight of an instance whose readings stopped, and moves it to an equal share over
// guard.fade periods.
func (gd *guarded) fadeStale() {
	fade := gd.in.Service.Guard.Fade
	equal := 1 / float64(len(gd.staying))
	for _, m := range gd.staying {
		periods := gd.st.Instances[m.ID].StaleFor
		if periods == 0 || m.weight() == 0 {
			continue
		}
		moved := 1.0
		if fade > 0 {
			moved = math.Min(1, float64(periods)/float64(fade))
		}
		gd.plan.Weights[m.ID] = (1-moved)*m.weight() + moved*equal
		gd.reason("stale", m.ID, "no reading of %s for %d period(s): keeping its weight, %.0f%% on the way to an equal share", m.ID, periods+gd.in.Service.Guard.StaleAfter, moved*100)
	}
}

// holdFailing gives an instance that answers with errors no more weight than it has: errors are fast, and would
// draw traffic.
func (gd *guarded) holdFailing() {
	most := gd.in.Service.Guard.ErrorRate
	if most == 0 {
		return
	}
	for _, m := range gd.staying {
		if !m.fresh || m.Observation.ErrorRate == nil || *m.Observation.ErrorRate <= most {
			continue
		}
		if gd.plan.Weights[m.ID] > m.weight() {
			gd.plan.Weights[m.ID] = m.weight()
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
		share := math.Max(0.1, float64(m.age())/float64(ramp))
		gd.plan.Weights[m.ID] *= share
		gd.reason("slow_start", m.ID, "%s is %.0f s old: %.0f%% of its share", m.ID, m.age().Seconds(), share*100)
	}
}

// floorAndStep keeps every weight above a floor, so that a suffering instance still shows its state, and bounds
// how far a weight moves at once.
func (gd *guarded) floorAndStep() {
	rules := gd.in.Service.Guard
	equal := 1 / float64(len(gd.staying))
	floor, step := rules.Floor*equal, rules.Step*equal
	for _, m := range gd.staying {
		w := gd.plan.Weights[m.ID]
		if w < floor && !gd.waiting(m) {
			gd.plan.Weights[m.ID] = floor
		}
		if step > 0 && m.weight() > 0 {
			gd.plan.Weights[m.ID] = math.Min(math.Max(gd.plan.Weights[m.ID], m.weight()-step), m.weight()+step)
		}
	}
}

// waiting says whether an instance has no weight yet because nothing is known of it.
func (gd *guarded) waiting(m *member) bool {
	return m.weight() == 0 && gd.plan.Weights[m.ID] == 0 && !m.rated()
}

// normalise makes the weights sum to 1; without any, they are equal.
func (gd *guarded) normalise() {
	var sum float64
	for _, m := range gd.staying {
		sum += gd.plan.Weights[m.ID]
	}
	if quell.AtMost(sum, 1) && quell.AtMost(1, sum) {
		return
	}
	for id := range gd.plan.Weights {
		if sum > 0 {
			gd.plan.Weights[id] /= sum
		} else {
			gd.plan.Weights[id] = 1 / float64(len(gd.staying))
		}
	}
}

// Override fixes instances' weights by hand; the others share the rest in their plan's proportions. Unknown
// instances are ignored, and weights that together pass 1 are scaled down to it.
func Override(plan *quell.Plan, fixed map[string]float64) {
	var fixedSum, free float64
	for id, w := range plan.Weights {
		if f, ok := fixed[id]; ok {
			fixedSum += f
		} else {
			free += w
		}
	}
	if len(fixed) == 0 || fixedSum == 0 && free == 0 {
		return
	}
	scale := 1.0
	if fixedSum > 1 || free == 0 {
		scale = 1 / fixedSum
	}
	weights := make(map[string]float64, len(plan.Weights))
	var ids []string
	for id, w := range plan.Weights {
		if f, ok := fixed[id]; ok {
			weights[id] = f * scale
			ids = append(ids, fmt.Sprintf("%s=%.3f", id, weights[id]))
		} else if free > 0 {
			weights[id] = w / free * math.Max(0, 1-fixedSum*scale)
		}
	}
	plan.Weights = weights
	if len(ids) > 0 {
		slices.Sort(ids)
		addReason(plan, "override", "", "set by hand: %s", strings.Join(ids, ", "))
	}
}
