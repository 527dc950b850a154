// Package policy decides: pure functions from a snapshot, models and a memory to a plan and a new memory. The
// live controller, `quell plan` and the simulator all run the Engine of this package, guard included.
package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	feels     bool            // the policy decides by severity
	truth     *Truth          // clairvoyant only
}

// decide sets the share of every ready instance, which is the present one at first, and returns the rest of the
// plan. It updates the counters of the memory, which is already a private copy.
type decide func(in Input, g *group, st *State) quell.Plan

// kind is a row of the constructor table.
type kind struct {
	decide   decide
	models   modelNeed
	memory   func() any // an empty memory of the policy; nil if it keeps none
	instance func() any // an empty memory of one instance
}

type modelNeed int

const (
	noModels     modelNeed = iota
	baselineOnly           // where snapshots carry probes rather than severities
	allModels
)

var kinds = map[string]kind{
	"prima":  {prima, allModels, empty[primaMemory], empty[primaInstance]},
	"static": {static, noModels, empty[staticMemory], nil},
	"lsf":    {leastSeverity, baselineOnly, empty[leastMemory], empty[leastInstance]},
	"lr":     {leastResponse, noModels, empty[leastMemory], empty[leastInstance]},

	"hpa":      {hpa, noModels, empty[hpaMemory], nil},
	"knapsack": {knapsack, noModels, nil, empty[knapsackInstance]},
}

func empty[M any]() any { return new(M) }

// Names lists the policies that can be chosen.
func Names() []string { return slices.Sorted(maps.Keys(kinds)) }

// NeedsModels says whether a policy can do nothing without models.
func NeedsModels(name string) bool { return kinds[name].models == allModels }

// Engine runs one service's policy and guard. It is immutable and safe for concurrent use.
type Engine struct {
	service   quell.Service
	protected map[string]bool
	kind      kind
	predictor *model.Predictor
	baseline  *model.Baseline
}

// NewEngine compiles a configuration with its models, which may be nil. It returns an error that wraps
// quell.ErrNoData and names the missing section if the policy cannot work with what is there.
func NewEngine(service quell.Service, models *model.Models) (*Engine, error) {
	k, ok := kinds[service.Policy.Name]
	if !ok {
		return nil, &quell.UserError{Err: fmt.Errorf("unknown policy %q (known: %s)", service.Policy.Name, strings.Join(Names(), ", "))}
	}
	e := &Engine{service: service, kind: k, protected: setOf(service.Group.Protected)}
	if models == nil {
		models = &model.Models{}
	}
	pol := service.Policy
	var err error
	e.baseline, err = model.CompileBaseline(models, pol.Resource, pol.Confidence)
	if k.models == baselineOnly && err != nil && !errors.Is(err, quell.ErrNoData) {
		return nil, fmt.Errorf("policy %s: %w", pol.Name, err)
	}
	if k.models != allModels {
		return e, nil
	}
	e.predictor, err = model.Compile(models, model.Spec{
		Resource: pol.Resource, Metric: service.SLO.Metric, InterferenceModel: pol.InterferenceModel, Confidence: pol.Confidence,
	})
	if err != nil {
		return nil, fmt.Errorf("policy %s needs models: %w", pol.Name, err)
	}
	return e, nil
}

// Decide returns the plan that should be in force after the snapshot, clamped by the guard, and the memory to hand
// in with the next snapshot. prev is not changed.
func (e *Engine) Decide(s *quell.Snapshot, prev State) (quell.Plan, State) {
	return e.decide(s, prev, nil)
}

func (e *Engine) decide(s *quell.Snapshot, prev State, truth *Truth) (quell.Plan, State) {
	st := prev.carried(e.service.Policy.Name)
	in := Input{Service: &e.service, Snapshot: s, Predictor: e.predictor, Baseline: e.baseline, protected: e.protected, feels: e.kind.models != noModels, truth: truth}
	g := perceive(in, prev.Instances)
	if prev.Policy != st.Policy {
		g.forgetPolicy()
	}
	if e.service.Group.Fixed {
		in.Service = ofFixedSize(e.service, len(g.ready)+g.starting+g.held)
	}
	g.present(st.HandingOver, st.HandingOver && prev.Policy == st.Policy)
	plan := e.kind.decide(in, g, &st)
	plan.At, plan.Service, plan.Policy = s.At, s.Service, e.service.Policy.Name
	guard(in, g, &plan)
	noteHeld(g, &plan)
	if e.kind.models != noModels {
		noteSeverity(g, &plan)
	}
	if e.kind.models == allModels {
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
