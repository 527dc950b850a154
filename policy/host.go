package policy

import (
	"fmt"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// HostSpec is the row, in the table of policies, of a policy that runs in the agent for the control groups of its machine.
type HostSpec[S any] struct {
	Name, About string
	Defaults    S
	Keys        func(*S) setting.Table                     // of the settings, below `agent.policy` in a configuration
	Agree       func(d *setting.Decoder, path string, s S) // nil: no keys to check against each other
	Memory      func() any                                 // returns an empty memory; nil if the policy has none
	Spends      bool                                       // it needs to know how much the machine uses of what costs credits
	Decide      func(s *quell.Snapshot, settings S, st *State) quell.Plan
}

// decideHost returns the plan for a host. It updates the memory, which is already a private copy.
type decideHost func(s *quell.Snapshot, st *State) quell.Plan

// Row hides the types of a spec.
func (s HostSpec[S]) Row() Row {
	own := Spec[S]{Name: s.Name, About: s.About, Scope: HostScope, Defaults: s.Defaults, Keys: s.Keys, Memory: s.Memory}
	if s.Agree != nil {
		own.Agree = func(d *setting.Decoder, path string, settings S, _ quell.Service) { s.Agree(d, path, settings) }
	}
	r := own.Row()
	r.spends = s.Spends
	r.decideHost = func(settings any) decideHost {
		own := settings.(S)
		return func(snapshot *quell.Snapshot, st *State) quell.Plan { return s.Decide(snapshot, own, st) }
	}
	return r
}

// HostEngine runs one host's policy. It is immutable and safe for concurrent use.
type HostEngine struct {
	policy  string
	decides decideHost
}

// NewHostEngine compiles a policy of scope host.
func (t Table) NewHostEngine(p quell.Policy) (*HostEngine, error) {
	r, settings, err := t.findIn(HostScope, p)
	if err != nil {
		return nil, err
	}
	return &HostEngine{r.name, r.decideHost(settings)}, nil
}

// Decide returns the plan for a snapshot whose instances are control groups, and the memory for the next one. prev is not changed.
func (e *HostEngine) Decide(s *quell.Snapshot, prev State) (quell.Plan, State) {
	st := prev.carried(e.policy)
	st.HandingOver = false // groups have no shares
	plan := e.decides(s, &st)
	plan.At, plan.Host, plan.Policy = s.At, s.Host, e.policy
	return plan, st
}

// Spends returns whether a host's policy needs to know how much the machine uses of what costs credits, and the connections of its clients.
func (t Table) Spends(p quell.Policy) bool {
	r, _, err := t.find(p)
	return err == nil && r.spends
}

// AgreeHost checks that the settings of a host's policy agree with each other. path is their place in the file.
func (t Table) AgreeHost(d *setting.Decoder, path string, p quell.Policy) {
	if r, settings, err := t.findIn(HostScope, p); err == nil {
		r.agree(d, path, settings, quell.Service{})
	}
}

// findIn is like find, but returns an error if the policy has another scope.
func (t Table) findIn(scope Scope, p quell.Policy) (Row, any, error) {
	r, settings, err := t.find(p)
	if err == nil && !r.runs(scope) {
		err = &quell.UserError{Err: fmt.Errorf("policy %s cannot decide here: %s", r.name, r.scope.where())}
	}
	return r, settings, err
}
