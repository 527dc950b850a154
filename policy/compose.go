package policy

import (
	"maps"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Compose returns the plan for a moment between two decisions of a service's main policy, if a fast policy cuts shares. Its weights are
// those that the last decision wanted, multiplied by the snapshot's factors, within the guard's bounds. It changes only weights. The
// returned memory differs from prev only in the record of the wanted shares, which the next decision uses. prev is not changed.
func (e *Engine) Compose(s *quell.Snapshot, prev State) (quell.Plan, State) {
	e, _ = e.inForce(prev.Learned)
	in := e.input(s, &prev)
	in.between = true
	g := perceive(in, prev.Instances, prev.Probed)
	g.present(prev.HandingOver, prev.HandingOver && prev.Policy == e.service.Policy.Name)
	plan := quell.Plan{At: s.At, Service: s.Service, Policy: e.service.Policy.Name}
	gd := &guarded{bounded: bounded{in, g, &plan}}
	gd.findStaying()
	if len(gd.staying) > 0 {
		gd.setShares()
	}
	return plan, prev.withClamped(g)
}

// withClamped returns the memory with the guard's record of wanted and planned shares, taken from the group.
func (s State) withClamped(g *Group) State {
	before := s
	s.Instances = maps.Clone(before.Instances)
	for _, m := range g.Ready {
		if mem := before.Of(m.ID); before.Instances[m.ID] != nil {
			mem.Clamped = m.mem.Clamped
			s.Instances[m.ID] = &mem
		}
	}
	return s
}

// Cuts is what a fast policy has done to the shares of a service's main policy, as it is stored.
type Cuts struct {
	Fast    State                   `json:"fast,omitzero"`     // the fast policy's memory
	Factors map[string]quell.Factor `json:"factors,omitempty"` // by instance
	Cutting bool                    `json:"-"`                 // shares are cut, or are returning to normal, which may take several steps
}

// ComposeCuts is Compose after a fast policy's plan, whose factors, settings and reasons become part of the result.
func (e *Engine) ComposeCuts(s *quell.Snapshot, prev State, wanted *quell.Plan) (quell.Plan, State) {
	s.Cut(wanted.Factor)
	plan, state := e.Compose(s, prev)
	plan.Factor, plan.Settings, plan.Reasons = wanted.Factor, wanted.Settings, append(wanted.Reasons, plan.Reasons...)
	return plan, state
}

// Step decides, and keeps the result in c. act is false if there is nothing to compose: nothing is asked for, and nothing was cut before.
func (f *Fast) Step(s *quell.Snapshot, c *Cuts) (wanted quell.Plan, act bool) {
	wanted, c.Fast = f.Decide(s, c.Fast)
	c.Factors = wanted.Factor
	return wanted, len(wanted.Factor) > 0 || len(wanted.Settings) > 0 || c.Cutting
}

// Fast runs a service's fast policy. It is immutable and safe for concurrent use.
type Fast struct{ engine *Engine }

// NewFast compiles a service's fast policy with its models, which may be nil. It returns nil if the service has none.
func (t Table) NewFast(service quell.Service, models *model.Models) (*Fast, error) {
	fast := service.Policy.Fast
	if fast.Name == "" {
		return nil, nil
	}
	service.Policy, service.Sampling = quell.Policy{Name: fast.Name, Settings: fast.Settings}, fast.Sampling
	engine, err := t.newEngine(service, FastScope, models)
	if err != nil {
		return nil, err
	}
	return &Fast{engine}, nil
}

// Decide returns a plan that has only factors, settings and reasons, and the memory for the next snapshot. prev is not changed.
func (f *Fast) Decide(s *quell.Snapshot, prev State) (quell.Plan, State) {
	e := f.engine
	st := prev.carried(e.service.Policy.Name)
	st.HandingOver = false // a fast policy has no shares of its own
	in := e.input(s, &prev)
	in.Fast = true
	g := perceive(in, prev.Instances, prev.Probed)
	if prev.Policy != st.Policy {
		g.forgetPolicy()
	}
	plan := e.decides(in, g, &st)
	plan.At, plan.Service, plan.Policy = s.At, s.Service, e.service.Policy.Name
	st.Instances = g.memories()
	return plan, st
}
