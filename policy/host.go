package policy

import (
	"fmt"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// hostSpec is the row, in the table of policies, of a policy that runs in the agent for the control groups of its machine.
type hostSpec[S any] struct {
	name, about string
	defaults    S
	keys        func(*S) setting.Table                     // of the settings, below `agent.policy` in a configuration
	agree       func(d *setting.Decoder, path string, s S) // nil: no keys to check against each other
	memory      func() any                                 // returns an empty memory; nil if the policy has none
	spends      bool                                       // it needs to know how much the machine uses of what costs credits
	decide      func(s *quell.Snapshot, settings S, st *State) quell.Plan
}

// decideHost returns the plan for a host. It updates the memory, which is already a private copy.
type decideHost func(s *quell.Snapshot, st *State) quell.Plan

func hostRowOf[S any](s hostSpec[S]) row {
	own := spec[S]{name: s.name, about: s.about, scope: HostScope, defaults: s.defaults, keys: s.keys, memory: s.memory}
	if s.agree != nil {
		own.agree = func(d *setting.Decoder, path string, settings S, _ quell.Service) { s.agree(d, path, settings) }
	}
	r := rowOf(own)
	r.spends = s.spends
	r.decideHost = func(settings any) decideHost {
		own := settings.(S)
		return func(snapshot *quell.Snapshot, st *State) quell.Plan { return s.decide(snapshot, own, st) }
	}
	return r
}

// HostEngine runs one host's policy. It is immutable and safe for concurrent use.
type HostEngine struct {
	policy  string
	decides decideHost
}

// NewHostEngine compiles a policy of scope host.
func NewHostEngine(p quell.Policy) (*HostEngine, error) {
	r, settings, err := findIn(HostScope, p)
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
func Spends(p quell.Policy) bool {
	r, _, err := find(p)
	return err == nil && r.spends
}

// AgreeHost checks that the settings of a host's policy agree with each other. path is their place in the file.
func AgreeHost(d *setting.Decoder, path string, p quell.Policy) {
	if r, settings, err := findIn(HostScope, p); err == nil {
		r.agree(d, path, settings, quell.Service{})
	}
}

// findIn is like find, but returns an error if the policy has another scope.
func findIn(scope Scope, p quell.Policy) (row, any, error) {
	r, settings, err := find(p)
	if err == nil && !r.runs(scope) {
		err = &quell.UserError{Err: fmt.Errorf("policy %s cannot decide here: %s", r.name, r.scope.where())}
	}
	return r, settings, err
}
