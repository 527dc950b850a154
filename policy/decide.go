// Package policy is the core of policies. A policy is a pure function that turns a snapshot, models and a memory into a plan and a new
// memory. The live controller, `quell plan` and the simulator all use the Engine of this package. It includes the guard, which bounds the
// plans of every policy.
package policy

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy/ownwork"
)

// Decide returns the plan for the snapshot, bounded by the guard, and the memory for the next snapshot. prev is not
// changed.
func (e *Engine) Decide(s *quell.Snapshot, prev State) (quell.Plan, State) {
	s, costs := ownwork.Find(s, prev.Costs, e.learnedCost(prev.Learned))
	held := e.spent(s, &prev)
	teaches := withoutInterference(s, held)
	felt := s
	if e.row.needs == AllModels { // credits limit capacities; other policies shift load only because they feel that an instance is slow
		felt = teaches
	}
	plan, st := e.decideApart(felt, teaches, prev)
	noteSpent(s, held, &plan)
	st.Costs = costs
	return plan, st
}

// decideApart makes a plan from a snapshot in which own work is told apart from requests. Models learn from teaches.
func (e *Engine) decideApart(s, teaches *quell.Snapshot, prev State) (quell.Plan, State) {
	if prev.Policy != e.service.Policy.Name && prev.Policy != "" && prev.Policy != e.plain { // that one decides while too little is known
		prev.retrust(Trust.setByHand)
	}
	if e.learning == nil {
		return e.decide(s, prev)
	}
	learned, renewed := e.learn(teaches, prev.Learned)
	if renewed {
		prev.retrust(Trust.setByHand)
	}
	if prev.Trust.Level == "" {
		prev.Trust.Level = e.learning.atFirst()
	}
	now, lacks := e.inForce(learned)
	before := prev
	if lacks != nil {
		prev.Trust = Trust{} // equal weights need none
	}
	plan, st := now.decide(s, prev)
	st.Learned = learned
	if lacks != nil {
		before.retrust(Trust.unproven)
		st.Trust, st.Earned, plan.Authority = before.Trust, before.Earned, quell.AuthorityAdvise
	}
	if renewed {
		AddReason(&plan, "learning_anew", "", "the trained models have changed: learning begins again from their rows")
	}
	e.tellLearning(&plan, learned, lacks)
	return plan, st
}

// decide makes a plan with the models that were given to NewEngine.
func (e *Engine) decide(s *quell.Snapshot, prev State) (quell.Plan, State) {
	st := prev.carried(e.service.Policy.Name)
	in := e.input(s, &prev)
	g := perceive(in, prev.Instances, prev.Probed)
	if prev.Policy != st.Policy {
		g.forgetPolicy()
	}
	if e.service.Group.Fixed {
		in.Service = ofFixedSize(e.service, len(g.Ready)+g.Starting+g.late+g.held)
	}
	g.present(st.HandingOver, st.HandingOver && prev.Policy == st.Policy)
	g.gauge(in)
	st.Following = prev.Following.Follow(g, e.service.Scheduling)
	in.following = st.Following
	w := watch(in, g, prev.Trust)
	plan := e.decideRelative(in, g, &st)
	plan.At, plan.Service, plan.Policy = s.At, s.Service, e.service.Policy.Name
	w.Restrict(&plan)
	applyGuard(in, g, &plan)
	st.Trust = w.Follow(&plan)
	noteHeld(g, &plan)
	noteLate(in, g, &plan)
	noteOwnWork(g, &plan)
	noteFollowing(g, prev.Following, st.Following, &plan)
	if text := st.Trust.Doubt.Text(); text != "" {
		AddReason(&plan, "doubtful", "", "%s", text)
	}
	if e.row.needs != NoModels {
		noteSeverity(g, &plan)
		noteProbing(in, g, &plan)
		noteProber(g, &plan)
		noteUntold(in, g, &plan)
	}
	if e.row.needs == AllModels {
		explain(in, g, &plan)
	}
	st.Usual = noteOrigins(g, prev.Usual, &plan)
	st.HandingOver = st.HandingOver && !g.arrived()
	st.Instances, st.Used, st.Probed = g.memories(), g.uses(in), g.probed
	return plan, st
}

// decideRelative lets the policy decide. One that does not compute capacities decides on shares relative to even ones.
func (e *Engine) decideRelative(in *Input, g *Group, st *State) quell.Plan {
	if in.byCapacity || !g.based() {
		return e.decides(in, g, st)
	}
	g.scale(func(m *Member) float64 { return 1 / m.BaseWeight() })
	plan := e.decides(in, g, st)
	g.scale((*Member).BaseWeight)
	return plan
}
