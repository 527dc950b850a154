// Package policy is the core of policies. A policy is a pure function that turns a snapshot, models and a memory into a plan and a new
// memory. The live controller, `quell plan` and the simulator all use the Engine of this package. It includes the guard, which bounds the
// plans of every policy.
package policy

import (
	"fmt"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Engine runs one service's policy and guard. It is immutable and safe for concurrent use.
type Engine struct {
	service   quell.Service
	protected map[string]bool
	row       Row
	decides   decide
	plain     string // Table.Plain
	senses    Senses
	credits   CreditSettings
	contended []Contended
	models    *model.Models
	learning  *learning // nil: the models are those that it was compiled with
}

// NewEngine compiles a configuration with its models, which may be nil. If the policy cannot work with these models,
// the error wraps quell.ErrNoData and names the missing section.
func (t Table) NewEngine(service quell.Service, models *model.Models) (*Engine, error) {
	return t.newEngine(service, ServiceScope, models)
}

func (t Table) newEngine(service quell.Service, scope Scope, models *model.Models) (*Engine, error) {
	e, err := t.compile(service, scope)
	if err != nil {
		return nil, err
	}
	r := e.row
	if models != nil {
		e.models = models
	}
	models = e.models
	if r.lacks != nil {
		if err := r.lacks(models); err != nil {
			return nil, fmt.Errorf("policy %s needs models: %w", r.name, err)
		}
	}
	if e.contended, err = contend(r, e.senses, service.SLO, models); err != nil {
		needs := ""
		if r.needs == AllModels {
			needs = " needs models"
		}
		return nil, fmt.Errorf("policy %s%s: %w", r.name, needs, err)
	}
	return e, nil
}

// compile returns an engine without models, with the policy's settings for this service.
func (t Table) compile(service quell.Service, scope Scope) (*Engine, error) {
	r, settings, err := t.findIn(scope, service.Policy)
	if err != nil {
		return nil, err
	}
	settings = r.suit(settings, service)
	e := &Engine{service: service, row: r, decides: r.decide(settings), plain: t.Plain(), models: &model.Models{}}
	e.senses, e.credits, e.protected = r.senses(settings), r.credits(settings), SetOf(service.Group.Protected)
	e.senses.Pooling = e.senses.Pooling.In(service.Group.Max)
	return e, nil
}

// Resource returns the resource whose utilisation is the unit of loads and capacities in plans.
func (e *Engine) Resource() quell.Resource { return e.contended[0].Resource }

func (e *Engine) input(s *quell.Snapshot, prev *State) *Input {
	return &Input{
		used:    prev.Used,
		Service: &e.service, Snapshot: s, Contended: e.contended, protected: e.protected, Confirm: e.senses.Confirm,
		models: e.models, feels: e.row.needs != NoModels, byCapacity: e.row.needs == AllModels,
		pooled: e.senses.Pooling.On(), IdleFirst: e.service.IdleFirst || s.IdleFirst,
	}
}

// ofFixedSize returns the service of a group that cannot be changed, with both bounds of the group set to the present size.
// Then no instance is removed, and none is added in place of a failed one.
func ofFixedSize(service quell.Service, alive int) *quell.Service {
	service.Group.Min, service.Group.Max = alive, alive
	return &service
}
