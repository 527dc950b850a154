package arena

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/scenario"
	"github.com/quellhq/quell/sim"
)

// Entrant is one contender of a scenario: a run, and what it changes in the scenario's policy settings.
type Entrant struct {
	Policy            string                  `json:"policy"`
	Scheduling        quell.Scheduling        `json:"scheduling"`
	Fixed             int                     `json:"fixed,omitempty"`              // the group's size where the policy does not scale
	InterferenceModel quell.InterferenceModel `json:"interference_model,omitempty"` // empty: the scenario's
	Utilization       float64                 `json:"utilization,omitempty"`        // 0: the scenario's
	Strain            float64                 `json:"strain,omitempty"`             // of the clairvoyant; 0: the best one with hindsight
}

// Policies whose entrants differ in more than their name.
const (
	static = "static"
	prima  = "prima"
	hpa    = "hpa"
)

// targets are the utilisations that a utilisation-target autoscaler is tried at: its whole frontier.
var targets = []float64{0.3, 0.4, 0.5, 0.6, 0.7, 0.8}

// strains are how full the clairvoyant lets machines get, beside what turns out best: its frontier.
var strains = []float64{1, 1.3, 1.5, 2}

// Series is what entrants have in common that differ only in size or target.
func (e Entrant) Series() string {
	name := e.Policy
	if e.InterferenceModel != "" {
		name += " (" + string(e.InterferenceModel) + ")"
	}
	return name + "/" + string(e.Scheduling)
}

// Step tells an entrant from the others of its series: a size, a target, a strain or nothing.
func (e Entrant) Step() string {
	switch {
	case e.Fixed > 0:
		return fmt.Sprintf("x%d", e.Fixed)
	case e.Utilization > 0:
		return fmt.Sprintf("%.0f%%", e.Utilization*100)
	case e.Strain > 0:
		return fmt.Sprintf("%.0f%%", e.Strain*100)
	}
	return ""
}

// Title names an entrant for people.
func (e Entrant) Title() string { return strings.TrimSpace(e.Series() + " " + e.Step()) }

// run is the entrant as the simulator takes it, with the scenario it changes.
func (e Entrant) run(sc *scenario.Scenario) (*scenario.Scenario, scenario.Run) {
	changed := *sc
	if e.InterferenceModel != "" {
		changed.Service.Policy.InterferenceModel = e.InterferenceModel
	}
	if e.Utilization > 0 {
		changed.Service.Policy.Utilization = e.Utilization
	}
	return &changed, scenario.Run{Policy: e.Policy, Scheduling: e.Scheduling, Fixed: e.Fixed}
}

// entrantOf is a run of the scenario's as the entrant that does the same.
func entrantOf(sc *scenario.Scenario, r scenario.Run) Entrant {
	e := Entrant{Policy: r.Policy, Scheduling: r.Scheduling, Fixed: sc.Size(r)}
	if r.Policy == hpa {
		e.Utilization = cmp.Or(sc.Service.Policy.Utilization, policy.DefaultTarget)
	}
	return e
}

// fixed says whether the entrant's group does not scale.
func (e Entrant) fixed(sc *scenario.Scenario) bool {
	return sc.Size(scenario.Run{Policy: e.Policy}) > 0
}

// entrants lists the scenario's runs and those of the named policies, each once. Other fixed sizes come later: see climb and besides.
func entrants(sc *scenario.Scenario, policies []string) []Entrant {
	var list []Entrant
	for _, r := range sc.Runs {
		list = append(list, entrantOf(sc, r))
	}
	for _, name := range policies {
		list = append(list, variants(sc, name)...)
	}
	seen := map[Entrant]bool{}
	return slices.DeleteFunc(list, func(e Entrant) bool {
		twice := seen[e]
		seen[e] = true
		return twice
	})
}

// variants are the forms that a policy is tried in.
func variants(sc *scenario.Scenario, name string) []Entrant {
	var list []Entrant
	switch name {
	case static:
		for _, s := range quell.Schedulings {
			list = append(list, Entrant{Policy: name, Scheduling: s, Fixed: sc.Instances.Fixed})
		}
	case prima:
		for _, s := range []quell.Scheduling{quell.LeastConn, quell.RoundRobin} {
			for _, m := range []quell.InterferenceModel{quell.Joint, quell.Total} {
				e := Entrant{Policy: name, Scheduling: s, InterferenceModel: m}
				if m == sc.Service.Policy.InterferenceModel {
					e.InterferenceModel = ""
				}
				list = append(list, e)
			}
		}
		list = append(list, Entrant{Policy: name, Scheduling: quell.EWMA})
	case hpa:
		for _, u := range targets {
			list = append(list, Entrant{Policy: name, Scheduling: quell.LeastConn, Utilization: u})
		}
	case policy.Clairvoyant:
		for _, x := range append([]float64{0}, strains...) {
			list = append(list, Entrant{Policy: name, Scheduling: quell.LeastConn, Strain: x})
		}
	default:
		list = append(list, Entrant{Policy: name, Scheduling: quell.LeastConn, Fixed: sc.Size(scenario.Run{Policy: name})})
	}
	return list
}

// untrained says whether the entrant plays as well without models.
func (e Entrant) untrained() bool { return !policy.NeedsModels(e.Policy) && e.Policy != "lsf" }

// checkPolicies turns down names that nobody answers to.
func checkPolicies(names []string) error {
	for _, name := range names {
		if !slices.Contains(sim.Policies(), name) {
			return &quell.UserError{Err: fmt.Errorf("unknown policy %q (known: %s)", name, strings.Join(sim.Policies(), ", "))}
		}
	}
	return nil
}
