package arena

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/policy"
)

// Entrant is one contender of a scenario: a run, and what it changes in the scenario's policy settings.
type Entrant struct {
	Policy            string                  `json:"policy"`
	Scheduling        quell.Scheduling        `json:"scheduling"`
	Fixed             int                     `json:"fixed,omitempty"`              // the group's size where the policy does not scale
	InterferenceModel quell.InterferenceModel `json:"interference_model,omitempty"` // empty: the scenario's
	Utilization       float64                 `json:"utilization,omitempty"`        // 0: the scenario's
	Headroom          float64                 `json:"headroom,omitempty"`           // 0: the scenario's
	Spare             int                     `json:"spare,omitempty"`              // 0: the scenario's
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

// weighted are the schedulings that follow a policy's weights: all but Prequal, which goes by its probes alone.
var weighted = slices.DeleteFunc(slices.Clone(quell.Schedulings), func(s quell.Scheduling) bool { return s == quell.Prequal })

// moreHeadroom is what PRIMA is tried with beside the scenario's: the smaller the share, the more room.
const moreHeadroom = 0.7

// Series is what entrants have in common that differ only in size or target.
func (e Entrant) Series() string {
	var changes []string
	if e.InterferenceModel != "" {
		changes = append(changes, string(e.InterferenceModel))
	}
	if e.Headroom > 0 {
		changes = append(changes, fmt.Sprintf("headroom %.0f%%", e.Headroom*100))
	}
	if e.Spare > 0 {
		changes = append(changes, fmt.Sprintf("spare %d", e.Spare))
	}
	name := e.Policy
	if len(changes) > 0 {
		name += " (" + strings.Join(changes, ", ") + ")"
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
	if e.Headroom > 0 {
		changed.Service.Policy.Headroom = e.Headroom
	}
	if e.Spare > 0 {
		changed.Service.Policy.Spare = e.Spare
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

// variants are the forms that a policy is tried in: over every scheduling that it could run on, so that a rival is met at its best.
func variants(sc *scenario.Scenario, name string) []Entrant {
	switch name {
	case static:
		return over(quell.Schedulings, Entrant{Policy: name, Fixed: sc.Instances.Fixed})
	case hpa:
		var list []Entrant
		for _, u := range targets {
			list = append(list, over(quell.Schedulings, Entrant{Policy: name, Utilization: u})...) // its weights are equal: Prequal will do
		}
		return list
	case prima:
		return primas(sc)
	case policy.Clairvoyant:
		var list []Entrant
		for _, x := range append([]float64{0}, strains...) {
			list = append(list, Entrant{Policy: name, Scheduling: quell.LeastConn, Strain: x})
		}
		return list
	}
	return over(weighted, Entrant{Policy: name, Fixed: sc.Size(scenario.Run{Policy: name})})
}

// over is an entrant over each of the schedulings.
func over(schedulings []quell.Scheduling, e Entrant) []Entrant {
	var list []Entrant
	for _, s := range schedulings {
		e.Scheduling = s
		list = append(list, e)
	}
	return list
}

// primas are PRIMA over every scheduling, over Prequal for the size of the group alone; the other interference model over the two
// schedulings that differ most; and with more room, by a smaller headroom and by a spare instance.
func primas(sc *scenario.Scenario) []Entrant {
	list := over(quell.Schedulings, Entrant{Policy: prima})
	other := quell.Total
	if sc.Service.Policy.InterferenceModel == quell.Total {
		other = quell.Joint
	}
	list = append(list, over([]quell.Scheduling{quell.LeastConn, quell.RoundRobin}, Entrant{Policy: prima, InterferenceModel: other})...)
	if sc.Service.Policy.Headroom != moreHeadroom {
		list = append(list, Entrant{Policy: prima, Scheduling: quell.LeastConn, Headroom: moreHeadroom})
	}
	if sc.Service.Policy.Spare == 0 && sc.Service.Group.Max > 1 {
		list = append(list, Entrant{Policy: prima, Scheduling: quell.LeastConn, Spare: 1})
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
