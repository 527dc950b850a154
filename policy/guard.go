package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/quellhq/quell"
)

// failedFor is for how many consecutive snapshots an instance must be failed before it is given up. One failed health
// check is not enough.
const failedFor = 2

// applyGuard bounds a plan of any policy: first the changes of the group, then the shares. Of all shares within the bounds of
// its rules, the plan gets those that are nearest to the policy's. It is pure, and reports what it changed.
func applyGuard(in *Input, g *Group, plan *quell.Plan) {
	gd := &guarded{bounded: bounded{in, g, plan}}
	gd.boundGroup()
	gd.findStaying()
	if len(gd.staying) > 0 {
		gd.setShares()
	}
}

// boundGroup keeps the group within its bounds, gives up failed instances and never removes protected ones. A failed
// instance that may still recover counts against group.max.
func (gd *bounded) boundGroup() {
	change := quell.GroupChange{}
	if gd.plan.Group != nil {
		change = *gd.plan.Group
	}
	bounds := gd.in.Service.Group
	change.Remove = slices.DeleteFunc(slices.Clone(change.Remove), func(id string) bool { return gd.in.protected[id] })
	alive := len(gd.group.Ready) + gd.group.Starting
	least := min(bounds.Min, gd.group.MaxSize(gd.in))
	if spare := max(0, alive-least); len(change.Remove) > spare {
		gd.reason("group_min", "", "keeping %d instance(s): the group has at least %d", len(change.Remove)-spare, least)
		change.Remove = change.Remove[len(change.Remove)-spare:]
	}
	left := alive - len(change.Remove)
	if after := left + change.Add; after < least {
		gd.reason("group_min", "", "%d instance(s), and the group has at least %d: adding %d", after, least, least-after)
		change.Add = least - left
	}
	givenUp, recovering := gd.failed()
	if room := max(0, gd.group.MaxSize(gd.in)-left-recovering); change.Add > room || left > bounds.Max {
		gd.reason("group_max", "", "%s", gd.group.Limit(gd.in))
		change.Add = min(change.Add, room)
		change.Remove = append(change.Remove, gd.group.Youngest(left-bounds.Max, change.Remove)...)
	}
	change.Remove = append(change.Remove, givenUp...)
	gd.plan.Group = nil
	if !change.Empty() {
		gd.plan.Group = &change
	}
}

// Youngest picks up to n instances to remove: first those that are still starting, then the youngest ones. Of instances
// with equal age it picks the one that is listed last.
func (g *Group) Youngest(n int, leaving []string) []string {
	if n <= 0 {
		return nil
	}
	gone := SetOf(leaving)
	var candidates []*Member
	for i := range slices.Backward(g.Members) {
		m := &g.Members[i]
		alive := (m.State == quell.Starting || m.State == quell.Ready) && m.Held == nil && m.Replaces == "" && m.late == 0
		if alive && !m.Protected && !gone[m.ID] {
			candidates = append(candidates, m)
		}
	}
	slices.SortStableFunc(candidates, func(a, b *Member) int {
		return cmp.Or(cmp.Compare(a.readiness(), b.readiness()), cmp.Compare(a.Age(), b.Age()))
	})
	ids := make([]string, min(n, len(candidates)))
	for i := range ids {
		ids[i] = candidates[i].ID
	}
	return ids
}

// readiness orders instances for removal: it is lower for an instance that is still starting.
func (m *Member) readiness() int {
	if m.State == quell.Starting {
		return 0
	}
	return 1
}

// failed lists the failed instances that are given up, and counts those that may still recover.
func (gd *bounded) failed() (givenUp []string, recovering int) {
	// other: failed without a health check, for example because the process exited before it was in the balancer
	var sick, gone, other []string
	for i := range gd.group.Members {
		m := &gd.group.Members[i]
		switch {
		case m.State != quell.Failed || m.Held != nil:
		case m.mem.FailedFor >= failedFor && !m.Protected:
			givenUp = append(givenUp, m.ID)
			switch {
			case m.late > 0: // noteLate reports it
			case m.Gone:
				gone = append(gone, m.ID)
			case m.Health != "":
				sick = append(sick, m.ID)
			default:
				other = append(other, m.ID)
			}
		default:
			recovering++
		}
	}
	if gd.in.Service.Group.Fixed {
		gd.tellFailed("health checks fail at %s: no request goes there, and the fleet is fixed, so nothing is started in its place",
			slices.Concat(sick, other))
		gd.tellFailed("gone from the balancer: %s; no request goes there, and the fleet is fixed, so nothing is started in its place", gone)
		return nil, recovering
	}
	gd.tellFailed("giving up %s: health checks fail", sick)
	gd.tellFailed("giving up %s: healthy before, and gone from the balancer", gone)
	gd.tellFailed("giving up %s: failed", other)
	return givenUp, recovering
}

// tellFailed reports what happens to failed instances, and the requests and answers of their last health checks.
func (gd *bounded) tellFailed(what string, ids []string) {
	if len(ids) == 0 {
		return
	}
	var parts []string
	named := SetOf(ids)
	for i := range gd.group.Members {
		m := &gd.group.Members[i]
		if !named[m.ID] {
			continue
		}
		if m.Health != "" {
			parts = append(parts, m.ID+" ("+m.Health+")")
		} else {
			parts = append(parts, m.ID)
		}
	}
	gd.reason("failed", "", what, strings.Join(parts, ", "))
}

func (gd *guarded) findStaying() {
	gone := removed(gd.plan)
	gd.staying = make([]*Member, 0, len(gd.group.Ready))
	for _, m := range gd.group.Ready {
		m.wanted, m.mem.Clamped = m.Planned, nil
		if m.stays = !gone[m.ID]; m.stays {
			gd.staying = append(gd.staying, m)
		}
	}
}

// removed returns the instances that a plan removes.
func removed(plan *quell.Plan) map[string]bool {
	if plan.Group == nil {
		return nil
	}
	return SetOf(plan.Group.Remove)
}

func SetOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}
