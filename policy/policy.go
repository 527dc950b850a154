// Package policy decides: pure functions from a snapshot, models and a memory to a plan and a new memory. The
// live controller, `quell plan` and the simulator all run the Engine of this package, guard included.
package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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
	decide decide
	models modelNeed
}

type modelNeed int

const (
	noModels     modelNeed = iota
	baselineOnly           // where snapshots carry probes rather than severities
	allModels
)

var kinds = map[string]kind{
	"prima":  {prima, allModels},
	"static": {static, noModels},
	"lsf":    {leastSeverity, baselineOnly},
	"lr":     {leastResponse, noModels},

	"hpa":      {hpa, noModels},
	"knapsack": {knapsack, noModels},
}

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
	st := prev.counters(e.service.Policy.Name)
	in := Input{Service: &e.service, Snapshot: s, Predictor: e.predictor, Baseline: e.baseline, protected: e.protected, feels: e.kind.models != noModels, truth: truth}
	g := perceive(in, prev.Instances)
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

// State is the memory of a policy and its guard between snapshots. Its zero value is an empty memory.
type State struct {
	Policy    string                   `json:"policy"`
	ScaleOut  int                      `json:"scale_out,omitempty"` // consecutive snapshots with too little capacity
	ScaleIn   int                      `json:"scale_in,omitempty"`  // consecutive snapshots with too much
	Shift     int                      `json:"shift,omitempty"`     // consecutive snapshots with an instance above its capacity
	Violation int                      `json:"violation,omitempty"` // consecutive snapshots with a measured violation
	Instances map[string]InstanceState `json:"instances,omitempty"`

	// HandingOver: another policy decided before, and the weights in force are not yet this one's.
	HandingOver bool `json:"handing_over,omitempty"`

	Recommended []Recommendation `json:"recommended,omitempty"` // hpa: within the stabilisation window, oldest first
}

// counters returns the memory without that of the instances; a change of policy keeps what was learned of those, drops the
// counters, and begins to hand the shares over.
func (s State) counters(policy string) State {
	if s.Policy != policy {
		return State{Policy: policy, HandingOver: s.Policy != ""}
	}
	s.Instances = nil
	return s
}

// InstanceState is what is remembered of one instance.
type InstanceState struct {
	Utilization *float64   `json:"utilization,omitempty"` // last reading
	SeverityAt  *time.Time `json:"severity_at,omitempty"`
	Severity    *float64   `json:"severity,omitempty"`    // last reading, without calibration
	Significant bool       `json:"significant,omitempty"` // the last severity passed the test of Eq. 1
	Felt        int        `json:"felt,omitempty"`        // probe readings in a row that passed it, up to confirm + 1
	Held        int        `json:"held,omitempty"`        // readings since, in whose place the last severity stands

	Offset       float64    `json:"offset,omitempty"`        // section IV: severity added by calibration
	Good         int        `json:"good,omitempty"`          // measurements in a row that ask for less than half of the offset
	Collected    int        `json:"collected,omitempty"`     // snapshots collected in the band
	CollectedN   int        `json:"collected_n,omitempty"`   // response times among them
	CollectedMS  float64    `json:"collected_ms,omitempty"`  // the least of their windows'
	CollectedUse float64    `json:"collected_use,omitempty"` // utilisation in that window
	CollectedAt  *time.Time `json:"collected_at,omitempty"`  // the last observation that was collected

	FailedFor   int      `json:"failed_for,omitempty"`   // consecutive snapshots in state failed
	SilentFor   int      `json:"silent_for,omitempty"`   // ready snapshots without any observation, up to guard.stale_after
	StaleFor    int      `json:"stale_for,omitempty"`    // snapshots beyond guard.stale_after without a fresh reading
	StaleWeight *float64 `json:"stale_weight,omitempty"` // the weight it had when it became stale

	Usual *Usual `json:"usual,omitempty"` // prima: its capacity

	UnratedFor int  `json:"unrated_for,omitempty"` // prima: consecutive ready snapshots without a first severity or utilisation
	Unprobed   bool `json:"unprobed,omitempty"`    // it reports, but has had no severity for longer than guard.stale_after

	Curve []CurvePoint `json:"curve,omitempty"` // knapsack: the newest observations, oldest first

	Joined  bool     `json:"joined,omitempty"`  // guard: it has had a share
	Placed  bool     `json:"placed,omitempty"`  // lsf and lr: it has had its first share
	Waited  int      `json:"waited,omitempty"`  // lsf: snapshots in which it might have had it, but for a severity
	Clamped *Clamped `json:"clamped,omitempty"` // set where the guard changed the weight, and during a handover
}

// Clamped is a weight of the last plan that the guard changed.
type Clamped struct {
	Wanted  float64 `json:"wanted"`  // by the policy
	Planned float64 `json:"planned"` // what the guard made of it
}
