// Package policy decides: pure functions from a snapshot, models and a memory to a plan and a new memory. The
// live controller, `quell plan` and the simulator all run the Engine of this package, guard included.
package policy

import (
	"fmt"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Input is what a policy decides on. The time is Snapshot.At; nothing reads a clock.
type Input struct {
	Service  *quell.Service
	Snapshot *quell.Snapshot

	contended  []contended     // the resources that the policy goes by, at least one
	protected  map[string]bool // Service.Group.Protected
	confirm    int             // readings beyond the first that it takes for interference to be gone
	feels      bool            // the policy decides by severity
	between    bool            // no decision of the policy: nothing is counted
	byCapacity bool            // and by capacity: every resource has a predictor
}

// several says whether the policy goes by more than one resource.
func (in *Input) several() bool { return len(in.contended) > 1 }

// of names a resource in a sentence about an amount of it, where that is not clear by itself.
func (in *Input) of(i int) string {
	if !in.several() {
		return ""
	}
	return " of the " + string(in.contended[i].resource)
}

// Engine runs one service's policy and guard. It is immutable and safe for concurrent use.
type Engine struct {
	service   quell.Service
	protected map[string]bool
	row       row
	decides   decide
	senses    Senses
	contended []contended
}

// NewEngine compiles a configuration with its models, which may be nil. It returns an error that wraps
// quell.ErrNoData and names the missing section if the policy cannot work with what is there.
func NewEngine(service quell.Service, models *model.Models) (*Engine, error) {
	return newEngine(service, ServiceScope, models)
}

func newEngine(service quell.Service, scope Scope, models *model.Models) (*Engine, error) {
	r, settings, err := findIn(scope, service.Policy)
	if err != nil {
		return nil, err
	}
	e := &Engine{service: service, row: r, decides: r.decide(settings), senses: r.senses(settings), protected: setOf(service.Group.Protected)}
	if models == nil {
		models = &model.Models{}
	}
	if e.contended, err = contend(r, e.senses, service.SLO, models); err != nil {
		needs := ""
		if r.needs == allModels {
			needs = " needs models"
		}
		return nil, fmt.Errorf("policy %s%s: %w", r.name, needs, err)
	}
	return e, nil
}

// Resource is the one in whose utilisation the plans tell loads and capacities.
func (e *Engine) Resource() quell.Resource { return e.contended[0].resource }

// Decide returns the plan that should be in force after the snapshot, clamped by the guard, and the memory to hand
// in with the next snapshot. prev is not changed.
func (e *Engine) Decide(s *quell.Snapshot, prev State) (quell.Plan, State) {
	st := prev.carried(e.service.Policy.Name)
	in := e.input(s)
	g := perceive(in, prev.Instances)
	if prev.Policy != st.Policy {
		g.forgetPolicy()
	}
	if e.service.Group.Fixed {
		in.Service = ofFixedSize(e.service, len(g.ready)+g.starting+g.held)
	}
	g.present(st.HandingOver, st.HandingOver && prev.Policy == st.Policy)
	plan := e.decides(in, g, &st)
	plan.At, plan.Service, plan.Policy = s.At, s.Service, e.service.Policy.Name
	guard(in, g, &plan)
	noteHeld(g, &plan)
	if e.row.needs != noModels {
		noteSeverity(g, &plan)
		noteProbing(in, g, &plan)
		noteUntold(in, g, &plan)
	}
	if e.row.needs == allModels {
		explain(in, g, &plan)
	}
	st.HandingOver = st.HandingOver && !g.arrived()
	st.Instances = g.memories()
	return plan, st
}

func (e *Engine) input(s *quell.Snapshot) *Input {
	return &Input{
		Service: &e.service, Snapshot: s, contended: e.contended, protected: e.protected, confirm: e.senses.Confirm,
		feels: e.row.needs != noModels, byCapacity: e.row.needs == allModels,
	}
}

// ofFixedSize bounds a group that cannot be changed by the instances that are alive: nothing is added for one that failed,
// and none is removed.
func ofFixedSize(service quell.Service, alive int) *quell.Service {
	service.Group.Min, service.Group.Max = alive, alive
	return &service
}
