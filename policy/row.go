package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/setting"
)

// Table is a list of policies. Its zero value is empty.
type Table struct{ rows []Row }

// NewTable returns the table with these policies. The first one is the default of a service. At most one may be plain: it decides while too
// little is known for the others.
func NewTable(rows ...Row) Table { return Table{rows} }

// Scope says where a policy runs: in the controller as the main policy of a service, in the controller as a fast policy in addition to
// the main one, or in the agent for the control groups of its machine.
type Scope string

const (
	ServiceScope Scope = "service"
	FastScope    Scope = "fast"
	HostScope    Scope = "host"
)

// where returns the key of a configuration that chooses a policy of this scope.
func (s Scope) where() string {
	switch s {
	case FastScope:
		return "it runs beside another one, as policy.fast"
	case HostScope:
		return "it runs on each machine, as agent.policy"
	}
	return "it decides for a service, as policy.name"
}

// Need says which sections of the models a policy requires.
type Need int

const (
	NoModels     Need = iota
	BaselineOnly      // the isolation table, which is needed if snapshots carry probes instead of severities
	AllModels
)

// Senses are the settings by which a policy measures how much neighbours slow an instance and what they use.
type Senses struct {
	Resources         Resources
	InterferenceModel quell.InterferenceModel
	Confidence        float64 // confidence level of the one-sided test of severity in Eq. 1
	Pooling           Pooling // how far the group is one station
	Confirm           int     // W: a policy acts on the (W+1)th snapshot with interference; after W+1 without it, it counts as gone
}

func DefaultSenses() Senses {
	return Senses{Resources: ResourcesOf(DefaultResource), InterferenceModel: quell.Joint, Confidence: 0.95, Confirm: 1,
		Pooling: Pooling{Auto: true}}
}

// Sensing returns the default senses with another resource.
func Sensing(r quell.Resource) Senses {
	s := DefaultSenses()
	s.Resources = ResourcesOf(r)
	return s
}

// Variant is a policy with other settings or schedulings. The arena, which compares policies, plays it in addition to the policy that a
// scenario asks for.
type Variant struct {
	Change      string             // what is different, for example "headroom 70%"; "" if Step is set
	Step        string             // point of a series of settings, for example "50%"
	Policy      quell.Policy       // with its settings
	Schedulings []quell.Scheduling // the schedulings to play it with; nil: all that the policy can be used with
}

// SetsParameters is implemented by the settings of policies that change parameters of servers.
type SetsParameters interface {
	// ServerParameters returns the parameters that the policy may change, in the order of its key parameters.
	ServerParameters() []ParameterBounds
}

// ParameterBounds are the smallest and the largest value that a policy gives a parameter of servers.
type ParameterBounds struct {
	Name     string // as in quell.Setting.Key
	Min, Max float64
}

// VariantOf is a Variant as a policy's file declares it: with settings of the policy's own type.
type VariantOf[S any] struct {
	Change, Step string
	Settings     S
	Schedulings  []quell.Scheduling
}

// Spec is a policy's row: everything it declares, with the types of its settings and of its memory.
type Spec[S any] struct {
	Name, About string // about is one line for lists
	Scope       Scope
	Beside      bool // its scope is service, and it may also run as a fast policy beside another one
	Machines    bool // as a fast policy it uses what agents measure
	Scales      bool // it changes the number of instances
	Equal       bool // shares are equal, so the balancer need not support weights
	Plain       bool // it leaves everything to the balancer's scheduling, and decides while too little is known for the others
	Needs       Need
	Lacks       func(*model.Models) error // says which other part of the models is missing, wrapping quell.ErrNoData; nil: none is needed
	Defaults    S
	// keys returns the keys of the settings, which are below `policy` in a configuration
	Keys     func(*S) setting.Table
	Agree    func(d *setting.Decoder, path string, s S, service quell.Service) // nil: no keys to check against each other
	Senses   func(S) Senses                                                    // nil: the default ones
	Suit     func(S, quell.Service) S                                          // nil: the settings are the same for every service
	Credits  func(S) CreditSettings                                            // nil: credits do not count
	Variants func(S) []VariantOf[S]                                            // nil: none
	Memory   func() any                                                        // returns an empty memory; nil if the policy has none
	Instance func() any                                                        // returns an empty memory of one instance; nil if there is none
	Decide   func(in *Input, settings S, g *Group, st *State) quell.Plan
}

// Row is a Spec or a HostSpec whose types are hidden behind functions.
type Row struct {
	name, about      string
	scope            Scope
	beside, machines bool
	scales, equal    bool
	plain            bool
	spends           bool
	needs            Need
	lacks            func(*model.Models) error
	memory, instance func() any
	defaults         any
	takes            func(settings any) bool
	open             func(settings any) (table setting.Table, read func() any)
	agree            func(d *setting.Decoder, path string, settings any, service quell.Service)
	senses           func(settings any) Senses
	suit             func(settings any, service quell.Service) any
	credits          func(settings any) CreditSettings
	variants         func(settings any) []Variant
	decide           func(settings any) decide
	decideHost       func(settings any) decideHost // set instead of decide if the scope is host
}

// decide sets the share of every ready instance, which at first is the present one, and returns the other parts of the
// plan. It may change the memory st, because st is a private copy.
type decide func(in *Input, g *Group, st *State) quell.Plan

// Row hides the types of a spec.
func (s Spec[S]) Row() Row {
	return Row{
		name: s.Name, about: s.About, scope: s.Scope, beside: s.Beside, machines: s.Machines, scales: s.Scales, equal: s.Equal, plain: s.Plain,
		needs: s.Needs, lacks: s.Lacks, memory: s.Memory, instance: s.Instance, defaults: s.Defaults,
		takes: func(settings any) bool { _, ok := settings.(S); return ok },
		open: func(settings any) (setting.Table, func() any) {
			own := settings.(S)
			return s.Keys(&own), func() any { return own }
		},
		agree: func(d *setting.Decoder, path string, settings any, service quell.Service) {
			if s.Agree != nil {
				s.Agree(d, path, settings.(S), service)
			}
		},
		senses: func(settings any) Senses {
			if s.Senses == nil {
				return DefaultSenses()
			}
			return s.Senses(settings.(S))
		},
		suit: func(settings any, service quell.Service) any {
			if s.Suit == nil {
				return settings
			}
			return s.Suit(settings.(S), service)
		},
		credits: func(settings any) (none CreditSettings) {
			if s.Credits == nil {
				return none
			}
			return s.Credits(settings.(S))
		},
		variants: func(settings any) []Variant {
			if s.Variants == nil {
				return nil
			}
			var list []Variant
			for _, v := range s.Variants(settings.(S)) {
				list = append(list, Variant{v.Change, v.Step, quell.Policy{Name: s.Name, Settings: v.Settings}, v.Schedulings})
			}
			return list
		},
		decide: func(settings any) decide {
			own := settings.(S)
			return func(in *Input, g *Group, st *State) quell.Plan { return s.Decide(in, own, g, st) }
		},
	}
}

func Empty[M any]() any { return new(M) }

// runs returns whether the policy can run in a scope.
func (r Row) runs(scope Scope) bool { return r.scope == scope || r.beside && scope == FastScope }

// find returns the row of a policy in the table and the policy's settings, or the row's defaults if the policy has none.
func (t Table) find(p quell.Policy) (Row, any, error) {
	i := slices.IndexFunc(t.rows, func(r Row) bool { return r.name == p.Name })
	if i < 0 {
		return Row{}, nil, &quell.UserError{Err: fmt.Errorf("unknown policy %q (known: %s)", p.Name, strings.Join(t.Names(), ", "))}
	}
	if p.Settings == nil {
		return t.rows[i], t.rows[i].defaults, nil
	}
	if !t.rows[i].takes(p.Settings) {
		return Row{}, nil, &quell.UserError{Err: fmt.Errorf("policy %s has settings of another one: %T", p.Name, p.Settings)}
	}
	return t.rows[i], p.Settings, nil
}

// Names lists the policies for a service, the default first.
func (t Table) Names() []string { return t.NamesOf(ServiceScope) }

// NamesOf lists the policies of a scope.
func (t Table) NamesOf(scope Scope) (names []string) {
	for _, r := range t.rows {
		if r.runs(scope) {
			names = append(names, r.name)
		}
	}
	return names
}

// About returns a line about the named policy, or "" if there is no such policy.
func (t Table) About(name string) string { r, _, _ := t.find(quell.Policy{Name: name}); return r.about }

// Feels returns whether a policy uses severity (how much neighbours slow an instance), which needs probes.
func (t Table) Feels(name string) bool {
	r, _, _ := t.find(quell.Policy{Name: name})
	return r.needs != NoModels
}

// Trained returns whether a policy decides by models.
func (t Table) Trained(name string) bool {
	r, _, _ := t.find(quell.Policy{Name: name})
	return r.needs != NoModels || r.lacks != nil
}

// Learns returns whether a policy can decide by models that are learned in place. Some sections of the models need training.
func (t Table) Learns(name string) bool {
	r, _, _ := t.find(quell.Policy{Name: name})
	return r.needs != NoModels && r.lacks == nil
}

// KeepsSize returns whether a policy never changes the group's size.
func (t Table) KeepsSize(name string) bool {
	r, _, err := t.find(quell.Policy{Name: name})
	return err == nil && !r.scales
}

// Whole returns a policy whose settings are filled in: if p has none, they are the defaults.
func (t Table) Whole(p quell.Policy) quell.Policy {
	if _, settings, err := t.find(p); err == nil {
		p.Settings = settings
	}
	if _, settings, err := t.find(quell.Policy{Name: p.Fast.Name, Settings: p.Fast.Settings}); err == nil {
		p.Fast.Settings = settings
		p.Fast.Sampling = cmp.Or(p.Fast.Sampling, defaultFast)
	}
	return p
}

// UsesAgents returns whether a fast policy uses what agents measure, so that agents must also report once per fast period.
func (t Table) UsesAgents(fast quell.Fast) bool {
	r, _, _ := t.find(quell.Policy{Name: fast.Name})
	return r.machines
}

// EqualShares returns whether a policy always gives every instance an equal share. Then the balancer may use a scheduling
// that ignores weights.
func (t Table) EqualShares(name string) bool {
	r, _, _ := t.find(quell.Policy{Name: name})
	return r.equal
}

// ResourcesFor lists the resources that a policy considers according to its settings. If these depend on the models, it lists only the
// default resource.
func (t Table) ResourcesFor(p quell.Policy) []quell.Resource {
	r, settings, err := t.find(p)
	if err != nil {
		return DefaultSenses().Resources.List()
	}
	return r.senses(settings).Resources.List()
}

// GoesByAll returns whether a policy considers all resources that the models have.
func (t Table) GoesByAll(p quell.Policy) bool {
	r, settings, err := t.find(p)
	return err == nil && r.senses(settings).Resources.Auto
}

// ConfidenceOf returns the confidence level of a policy's test of severity, a fraction.
func (t Table) ConfidenceOf(p quell.Policy) float64 {
	r, settings, err := t.find(p)
	if err != nil {
		return DefaultSenses().Confidence
	}
	return r.senses(settings).Confidence
}

// Resource returns the first of the resources that ResourcesFor lists.
func (t Table) Resource(p quell.Policy) quell.Resource { return t.ResourcesFor(p)[0] }

// Variants lists the variants of a policy that the arena plays in addition to the given one.
func (t Table) Variants(p quell.Policy) []Variant {
	r, settings, err := t.find(p)
	if err != nil {
		return nil
	}
	return r.variants(settings)
}

// Default returns the name of the policy that is used if a configuration names none.
func (t Table) Default() string { return t.rows[0].name }

// Plain returns the name of the policy that leaves everything to the balancer's own scheduling, or "" if the table has none.
func (t Table) Plain() string {
	for _, r := range t.rows {
		if r.plain {
			return r.name
		}
	}
	return ""
}
