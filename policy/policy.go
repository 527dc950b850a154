// Package policy is the core of policies. A policy is a pure function that turns a snapshot, models and a memory into a plan and a new
// memory. The live controller, `quell plan` and the simulator all use the Engine of this package. It includes the guard, which bounds the
// plans of every policy.
package policy

import (
	"fmt"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Input is what a policy decides on. The time is Snapshot.At; no clock is read.
type Input struct {
	Service  *quell.Service
	Snapshot *quell.Snapshot

	used       map[quell.Resource]float64 // State.Used
	Contended  []Contended                // the resources of the policy, at least one
	protected  map[string]bool            // Service.Group.Protected
	Confirm    int                        // interference counts as gone after this many consecutive readings without it, plus one
	feels      bool                       // the policy uses severity
	between    bool                       // the plan is made between two decisions (Compose): it only combines shares, and counts no snapshots
	queues     queues                     // tables of stations
	pooled     bool                       // capacity is a function of the group, if the models say what a group carries
	byCapacity bool                       // the policy uses capacity: every resource has a predictor
	models     *model.Models
	Fast       bool      // the policy runs beside another one, and sets factors instead of shares
	stepPart   float64   // guard.step is multiplied by this; 0 means 1
	following  Following // how requests follow the weights
}

// Dial returns the models of dial, or nil if the models do not have this section.
func (in *Input) Dial() *model.Dial { return in.models.Dial() }

// ICE returns the models of ice, or nil if the models do not have this section.
func (in *Input) ICE() *model.ICE { return in.models.ICE() }

// Several returns whether the policy uses more than one resource.
func (in *Input) Several() bool { return len(in.Contended) > 1 }

// Of returns words such as " of the network" for a sentence about an amount, if there are several resources, else "".
func (in *Input) Of(i int) string {
	if !in.Several() {
		return ""
	}
	return " of the " + string(in.Contended[i].Resource)
}

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

// Decide returns the plan for the snapshot, bounded by the guard, and the memory for the next snapshot. prev is not
// changed.
func (e *Engine) Decide(s *quell.Snapshot, prev State) (quell.Plan, State) {
	s, costs := findOwnWork(s, prev.Costs, e.learnedCost(prev.Learned))
	held := e.spent(s, prev.Instances)
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
		prev.Trust = prev.Trust.setByHand()
	}
	if e.learning == nil {
		return e.decide(s, prev)
	}
	learned, renewed := e.learn(teaches, prev.Learned)
	if renewed {
		prev.Trust = prev.Trust.setByHand()
	}
	if prev.Trust.Level == "" {
		prev.Trust.Level = e.learning.atFirst()
	}
	now, lacks := e.inForce(learned)
	before := prev.Trust
	if lacks != nil {
		prev.Trust = Trust{} // equal weights need none
	}
	plan, st := now.decide(s, prev)
	st.Learned = learned
	if lacks != nil {
		st.Trust, plan.Authority = before.unproven(), quell.AuthorityAdvise
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
	guard(in, g, &plan)
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
	g.relative()
	plan := e.decides(in, g, st)
	g.absolute()
	return plan
}

func (e *Engine) input(s *quell.Snapshot, prev *State) *Input {
	return &Input{
		used:    prev.Used,
		Service: &e.service, Snapshot: s, Contended: e.contended, protected: e.protected, Confirm: e.senses.Confirm,
		models: e.models, feels: e.row.needs != NoModels, byCapacity: e.row.needs == AllModels,
		pooled: e.senses.Pooling.On() && !inStorm(prev.Memory),
	}
}

// ofFixedSize returns the service of a group that cannot be changed, with both bounds of the group set to the present size.
// Then no instance is removed, and none is added in place of a failed one.
func ofFixedSize(service quell.Service, alive int) *quell.Service {
	service.Group.Min, service.Group.Max = alive, alive
	return &service
}
