package controller

import (
	"fmt"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/policy"
)

// prior is what a decision starts from, and changes.
type prior struct {
	state     policy.State
	authority *TemporaryAuthority
	reverts   map[string]map[string]pendingRevert
}

// decideTwice decides. If the plan removes instances, it looks at the group again, and if that has changed since the snapshot, it decides
// again: a removal cannot be taken back, and the other instances may be needed by then.
func (c *deciding) decideTwice(r *round) {
	before := prior{c.mem.State, c.mem.Temporary.Authority, c.mem.PendingReverts}
	r.plan, c.mem.State = c.decide(r.view.snapshot)
	if c.removes(&r.plan) {
		changed, ok := c.lookAgain(r)
		if !ok || len(changed) > 0 {
			c.mem.State, c.mem.Temporary.Authority, c.mem.PendingReverts = before.state, before.authority, before.reverts
		}
		if !ok {
			r.over = true
			return
		}
		if len(changed) > 0 {
			r.plan, c.mem.State = c.decide(r.view.snapshot)
			r.plan.Reasons = append(r.plan.Reasons, quell.Reason{Code: "decided_again", Text: "instances were to be removed, and meanwhile " +
				strings.Join(changed, ", ") + ": decided again"})
		}
	}
	c.totals.decided(&r.plan)
}

// removes returns whether instances will be removed by a plan.
func (c *deciding) removes(plan *quell.Plan) bool {
	return c.acting() && !c.opts.Fixed && !plan.Group.Empty() && len(plan.Group.Remove) > 0
}

// lookAgain looks at the group again, and puts the instances' present states into the snapshot. It describes what changed; ok is false if
// scaler or balancer did not answer.
func (c *deciding) lookAgain(r *round) (changed []string, ok bool) {
	old := r.view.snapshot
	if c.lookAtGroup(r); r.over {
		return nil, false
	}
	present := c.gather.states(c.now(), r.view)
	s := *old
	s.Instances = make([]quell.Instance, 0, len(old.Instances))
	for _, in := range old.Instances {
		now, listed := present[in.ID]
		switch {
		case !listed:
			changed = append(changed, in.ID+" is gone")
			continue
		case now.State != in.State:
			changed = append(changed, fmt.Sprintf("%s is %s", in.ID, now.State))
		case (now.Held != nil) != (in.Held != nil):
			changed = append(changed, in.ID+" was taken out of rotation, or put back")
		}
		in.State, in.Held = now.State, now.Held
		s.Instances = append(s.Instances, in)
	}
	s.Coming, s.MayCome = r.view.Coming, r.view.MayCome
	s.Coming += c.mem.Freed(&s)
	c.fleet.NoteStates(&s)
	r.view.snapshot = &s
	return changed, true
}

// states returns the instances of a view without readings, by id.
func (g *gather) states(now time.Time, v view) map[string]quell.Instance {
	g.mu.Lock()
	defer g.mu.Unlock()
	group := v.Group()
	for i := range group {
		group[i].Past = g.lives[group[i].Member.ID]
	}
	s, byID := life.Snapshot(now, &g.service, group), make(map[string]quell.Instance, len(group))
	for _, in := range s.Instances {
		byID[in.ID] = in
	}
	return byID
}
