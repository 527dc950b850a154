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

// rows is the table of policies; the first one is the default of a service. A policy's name is used only in its own file.
var rows = []row{
	rowOf(primaSpec),
	rowOf(leastSeveritySpec),
	rowOf(leastResponseSpec),
	rowOf(staticSpec),
	rowOf(hpaSpec),
	rowOf(knapsackSpec),
	rowOf(pidSpec),
	rowOf(cswrrSpec),
	rowOf(dialSpec),
	rowOf(iceSpec),
	rowOf(outlierSpec),
	hostRowOf(waitsSpec),
	hostRowOf(acsSpec),
	hostRowOf(mrburstSpec),
}

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

// need says which sections of the models a policy requires.
type need int

const (
	noModels     need = iota
	baselineOnly      // the isolation table, which is needed if snapshots carry probes instead of severities
	allModels
)

// Senses are the settings by which a policy measures how much neighbours slow an instance and what they use.
type Senses struct {
	Resources         Resources
	InterferenceModel quell.InterferenceModel
	Confidence        float64 // confidence level of the one-sided test of severity in Eq. 1
	Pooling           Pooling // how far the group is one station
	Confirm           int     // W: a policy acts on the (W+1)th snapshot with interference; after W+1 without it, it counts as gone
}

func defaultSenses() Senses {
	return Senses{Resources: ResourcesOf(defaultResource), InterferenceModel: quell.Joint, Confidence: 0.95, Confirm: 1,
		Pooling: Pooling{Auto: true}}
}

// sensing returns the default senses with another resource.
func sensing(r quell.Resource) Senses {
	s := defaultSenses()
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

// variant is a Variant as a policy's file declares it: with settings of the policy's own type.
type variant[S any] struct {
	Change, Step string
	Settings     S
	Schedulings  []quell.Scheduling
}

// spec is a policy's row: everything it declares, with the types of its settings and of its memory.
type spec[S any] struct {
	name, about string // about is one line for lists
	scope       Scope
	beside      bool // its scope is service, and it may also run as a fast policy beside another one
	machines    bool // as a fast policy it uses what agents measure
	scales      bool // it changes the number of instances
	equal       bool // shares are equal, so the balancer need not support weights
	needs       need
	lacks       func(*model.Models) error // says which other part of the models is missing, wrapping quell.ErrNoData; nil: none is needed
	defaults    S
	// keys returns the keys of the settings, which are below `policy` in a configuration
	keys     func(*S) setting.Table
	agree    func(d *setting.Decoder, path string, s S, service quell.Service) // nil: no keys to check against each other
	senses   func(S) Senses                                                    // nil: the default ones
	variants func(S) []variant[S]                                              // nil: none
	memory   func() any                                                        // returns an empty memory; nil if the policy has none
	instance func() any                                                        // returns an empty memory of one instance; nil if there is none
	decide   func(in *Input, settings S, g *group, st *State) quell.Plan
}

// row is a spec whose types are hidden behind functions.
type row struct {
	name, about      string
	scope            Scope
	beside, machines bool
	scales, equal    bool
	spends           bool
	needs            need
	lacks            func(*model.Models) error
	memory, instance func() any
	defaults         any
	takes            func(settings any) bool
	open             func(settings any) (table setting.Table, read func() any)
	agree            func(d *setting.Decoder, path string, settings any, service quell.Service)
	senses           func(settings any) Senses
	variants         func(settings any) []Variant
	decide           func(settings any) decide
	decideHost       func(settings any) decideHost // set instead of decide if the scope is host
}

// decide sets the share of every ready instance, which at first is the present one, and returns the other parts of the
// plan. It may change the memory st, because st is a private copy.
type decide func(in *Input, g *group, st *State) quell.Plan

func rowOf[S any](s spec[S]) row {
	return row{
		name: s.name, about: s.about, scope: s.scope, beside: s.beside, machines: s.machines, scales: s.scales, equal: s.equal,
		needs: s.needs, lacks: s.lacks, memory: s.memory, instance: s.instance, defaults: s.defaults,
		takes: func(settings any) bool { _, ok := settings.(S); return ok },
		open: func(settings any) (setting.Table, func() any) {
			own := settings.(S)
			return s.keys(&own), func() any { return own }
		},
		agree: func(d *setting.Decoder, path string, settings any, service quell.Service) {
			if s.agree != nil {
				s.agree(d, path, settings.(S), service)
			}
		},
		senses: func(settings any) Senses {
			if s.senses == nil {
				return defaultSenses()
			}
			return s.senses(settings.(S))
		},
		variants: func(settings any) []Variant {
			if s.variants == nil {
				return nil
			}
			var list []Variant
			for _, v := range s.variants(settings.(S)) {
				list = append(list, Variant{v.Change, v.Step, quell.Policy{Name: s.name, Settings: v.Settings}, v.Schedulings})
			}
			return list
		},
		decide: func(settings any) decide {
			own := settings.(S)
			return func(in *Input, g *group, st *State) quell.Plan { return s.decide(in, own, g, st) }
		},
	}
}

func empty[M any]() any { return new(M) }

// runs returns whether the policy can run in a scope.
func (r row) runs(scope Scope) bool { return r.scope == scope || r.beside && scope == FastScope }

// find returns the row of a policy in the table and the policy's settings, or the row's defaults if the policy has none.
func find(p quell.Policy) (row, any, error) {
	i := slices.IndexFunc(rows, func(r row) bool { return r.name == p.Name })
	if i < 0 {
		return row{}, nil, &quell.UserError{Err: fmt.Errorf("unknown policy %q (known: %s)", p.Name, strings.Join(Names(), ", "))}
	}
	if p.Settings == nil {
		return rows[i], rows[i].defaults, nil
	}
	if !rows[i].takes(p.Settings) {
		return row{}, nil, &quell.UserError{Err: fmt.Errorf("policy %s has settings of another one: %T", p.Name, p.Settings)}
	}
	return rows[i], p.Settings, nil
}

// Names lists the policies for a service, the default first.
func Names() []string { return NamesOf(ServiceScope) }

// NamesOf lists the policies of a scope.
func NamesOf(scope Scope) (names []string) {
	for _, r := range rows {
		if r.runs(scope) {
			names = append(names, r.name)
		}
	}
	return names
}

// About returns a line about the named policy, or "" if there is no such policy.
func About(name string) string { r, _, _ := find(quell.Policy{Name: name}); return r.about }

// Feels returns whether a policy uses severity (how much neighbours slow an instance), which needs probes.
func Feels(name string) bool { r, _, _ := find(quell.Policy{Name: name}); return r.needs != noModels }

// Trained returns whether a policy decides by models.
func Trained(name string) bool {
	r, _, _ := find(quell.Policy{Name: name})
	return r.needs != noModels || r.lacks != nil
}

// Learns returns whether a policy can decide by models that are learned in place. Some sections of the models need training.
func Learns(name string) bool {
	r, _, _ := find(quell.Policy{Name: name})
	return r.needs != noModels && r.lacks == nil
}

// KeepsSize returns whether a policy never changes the group's size.
func KeepsSize(name string) bool {
	r, _, err := find(quell.Policy{Name: name})
	return err == nil && !r.scales
}

// Whole returns a policy whose settings are filled in: if p has none, they are the defaults.
func Whole(p quell.Policy) quell.Policy {
	if _, settings, err := find(p); err == nil {
		p.Settings = settings
	}
	if _, settings, err := find(quell.Policy{Name: p.Fast.Name, Settings: p.Fast.Settings}); err == nil {
		p.Fast.Settings = settings
		p.Fast.Sampling = cmp.Or(p.Fast.Sampling, defaultFast)
	}
	return p
}

// UsesAgents returns whether a fast policy uses what agents measure, so that agents must also report once per fast period.
func UsesAgents(fast quell.Fast) bool {
	r, _, _ := find(quell.Policy{Name: fast.Name})
	return r.machines
}

// EqualShares returns whether a policy always gives every instance an equal share. Then the balancer may use a scheduling
// that ignores weights.
func EqualShares(name string) bool { r, _, _ := find(quell.Policy{Name: name}); return r.equal }

// ResourcesFor lists the resources that a policy considers according to its settings. If these depend on the models, it lists only the
// default resource.
func ResourcesFor(p quell.Policy) []quell.Resource {
	r, settings, err := find(p)
	if err != nil {
		return defaultSenses().Resources.list()
	}
	return r.senses(settings).Resources.list()
}

// GoesByAll returns whether a policy considers all resources that the models have.
func GoesByAll(p quell.Policy) bool {
	r, settings, err := find(p)
	return err == nil && r.senses(settings).Resources.auto
}

// ConfidenceOf returns the confidence level of a policy's test of severity, a fraction.
func ConfidenceOf(p quell.Policy) float64 {
	r, settings, err := find(p)
	if err != nil {
		return defaultSenses().Confidence
	}
	return r.senses(settings).Confidence
}

// Resource returns the first of the resources that ResourcesFor lists.
func Resource(p quell.Policy) quell.Resource { return ResourcesFor(p)[0] }

// Variants lists the variants of a policy that the arena plays in addition to the given one.
func Variants(p quell.Policy) []Variant {
	r, settings, err := find(p)
	if err != nil {
		return nil
	}
	return r.variants(settings)
}

// Default returns the name of the policy that is used if a configuration names none.
func Default() string { return rows[0].name }
