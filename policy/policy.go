// Package policy decides: pure functions from a snapshot, models and a memory to a plan and a new memory. The
// live controller, `quell plan` and the simulator all run the Engine of this package, guard included.
package policy

import (
	"errors"
	"fmt"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Input is what a policy decides on. The time is Snapshot.At; nothing reads a clock.
type Input struct {
	Service   *quell.Service
	Snapshot  *quell.Snapshot
	Predictor *model.Predictor // nil for policies that need no models
	Baseline  *model.Baseline  // turns probes into severity; nil without an isolation baseline

	protected map[string]bool // Service.Group.Protected
	senses    Senses
	feels     bool // the policy decides by severity
}

// Engine runs one service's policy and guard. It is immutable and safe for concurrent use.
type Engine struct {
	service   quell.Service
	protected map[string]bool
	row       row
	decides   decide
	senses    Senses
	predictor *model.Predictor
	baseline  *model.Baseline
}

// NewEngine compiles a configuration with its models, which may be nil. It returns an error that wraps
// quell.ErrNoData and names the missing section if the policy cannot work with what is there.
func NewEngine(service quell.Service, models *model.Models) (*Engine, error) {
	r, settings, err := find(service.Policy)
	if err != nil {
		return nil, err
	}
	e := &Engine{service: service, row: r, decides: r.decide(settings), senses: r.senses(settings), protected: setOf(service.Group.Protected)}
	if models == nil {
		models = &model.Models{}
	}
	e.baseline, err = model.CompileBaseline(models, e.senses.Resource, e.senses.Confidence)
	if r.needs == baselineOnly && err != nil && !errors.Is(err, quell.ErrNoData) {
		return nil, fmt.Errorf("policy %s: %w", r.name, err)
	}
	if r.needs != allModels {
		return e, nil
	}
	e.predictor, err = model.Compile(models, model.Spec{
		Resource: e.senses.Resource, Metric: service.SLO.Metric, InterferenceModel: e.senses.InterferenceModel, Confidence: e.senses.Confidence,
	})
	if err != nil {
		return nil, fmt.Errorf("policy %s needs models: %w", r.name, err)
	}
	return e, nil
}

// Decide returns the plan that should be in force after the snapshot, clamped by the guard, and the memory to hand
// in with the next snapshot. prev is not changed.
func (e *Engine) Decide(s *quell.Snapshot, prev State) (quell.Plan, State) {
	st := prev.carried(e.service.Policy.Name)
	in := Input{Service: &e.service, Snapshot: s, Predictor: e.predictor, Baseline: e.baseline, protected: e.protected, senses: e.senses, feels: e.row.needs != noModels}
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
	}
	if e.row.needs == allModels {
		explain(in, g, &plan)
	}
	st.HandingOver = st.HandingOver && !g.arrived()
	st.Instances = g.memories()
	return plan, st
}

// ofFixedSize bounds a group that cannot be changed by the instances that are alive: nothing is added for one that failed,
// and none is removed.
func ofFixedSize(service quell.Service, alive int) *quell.Service {
	service.Group.Min, service.Group.Max = alive, alive
	return &service
}
