package arena

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
)

// Candidate is one contender in a scenario: a run, and what it changes of the settings that the scenario gives the run's policy.
type Candidate struct {
	Policy     string           `json:"policy"`
	Scheduling quell.Scheduling `json:"scheduling"`
	Fixed      int              `json:"fixed,omitempty"`  // the group's size if the policy does not scale
	Change     string           `json:"change,omitempty"` // of a variant: the settings that differ; empty: none
	Target     string           `json:"target,omitempty"` // of a variant: its value of the setting that trades violation for cost
	Strain     float64          `json:"strain,omitempty"` // of a bound; 0: the value that turns out best
	// Ejection is the setting of Envoy's outlier detection in front of the group; empty: off.
	Ejection scenario.Ejection `json:"ejection,omitempty"`
	Models   scenario.Models   `json:"models,omitempty"` // learn: nothing was trained; empty: from training
}

// Two policies that the arena treats specially: subject is the one that is judged, PRIMA; plain is the one that leaves all to the
// balancer.
var (
	subject = table.All.Default()
	plain   = table.All.Plain()
)

// strains are the utilisations up to which bounds may load machines, tried in addition to the one that turns out best. The law of the
// clairvoyant is that of one instance, which is too careful for groups.
var strains = map[string][]float64{
	sim.Clairvoyant: {1, 1.3, 1.5, 2},
	sim.Present:     {0.7, 0.8, 0.9, 1},
	sim.Foresight:   {0.7, 0.8, 0.9, 1},
}

// weighted are the schedulings that follow a policy's weights: all but Prequal, which uses its own probes alone.
var weighted = slices.DeleteFunc(slices.Clone(quell.Schedulings), func(s quell.Scheduling) bool { return s == quell.Prequal })

// Series names what several candidates have in common if they differ only in size, target or strain.
func (e Candidate) Series() string {
	name := e.Policy
	if e.Change != "" {
		name += " (" + e.Change + ")"
	}
	name += "/" + string(e.Scheduling)
	if e.Models == scenario.Learn {
		name += " learning"
	}
	if e.Ejection != "" {
		name += " ejection " + string(e.Ejection)
	}
	return name
}

// Step names what distinguishes a candidate within its series: a size, a target, a strain or nothing.
func (e Candidate) Step() string {
	switch {
	case e.Fixed > 0:
		return fmt.Sprintf("x%d", e.Fixed)
	case e.Strain > 0:
		return fmt.Sprintf("%.0f%%", e.Strain*100)
	}
	return e.Target
}

// Title names a candidate for people.
func (e Candidate) Title() string { return strings.TrimSpace(e.Series() + " " + e.Step()) }

// run returns the candidate as a run that the simulator can play.
func (e Candidate) run(sc *scenario.Scenario) scenario.Run {
	r := scenario.Run{Policy: quell.Policy{Name: e.Policy}, Scheduling: e.Scheduling, Fixed: e.Fixed, Ejection: e.Ejection, Models: e.Models}
	for _, f := range forms(sc, e.Policy) {
		if f.Change == e.Change && f.Step == e.Target {
			r.Policy = f.Policy
		}
	}
	return r
}

// forms are what the arena tries of a policy: its variants, and each setting of it in the scenario's runs.
func forms(sc *scenario.Scenario, name string) []policy.Variant {
	base := sc.PolicyOf(scenario.Run{Policy: quell.Policy{Name: name}})
	list := table.All.Variants(base)
	for _, r := range sc.Runs {
		own := sc.PolicyOf(r)
		if r.Policy.Name == name && !slices.ContainsFunc(list, func(v policy.Variant) bool { return v.Policy == own }) {
			list = append(list, policy.Variant{Change: table.All.Difference(base, own), Policy: own})
		}
	}
	return list
}

// candidateOf returns the candidate that does the same as a run of the scenario.
func candidateOf(sc *scenario.Scenario, r scenario.Run) Candidate {
	e := Candidate{Policy: r.Policy.Name, Scheduling: r.Scheduling, Fixed: sc.Size(r), Ejection: r.Ejection, Models: r.Models}
	own := sc.PolicyOf(r)
	for _, f := range forms(sc, r.Policy.Name) {
		if f.Policy == own {
			e.Change, e.Target = f.Change, f.Step
		}
	}
	return e
}

// fixed says whether the candidate's group does not scale.
func (e Candidate) fixed(sc *scenario.Scenario) bool {
	return sc.Size(scenario.Run{Policy: quell.Policy{Name: e.Policy}}) > 0
}

// candidates lists the scenario's runs and the runs of the named policies, each once. Further fixed sizes are added later by widen and
// smaller.
func candidates(sc *scenario.Scenario, policies []string) []Candidate {
	var list []Candidate
	for _, r := range sc.Runs {
		list = append(list, candidateOf(sc, r))
	}
	for _, name := range policies {
		list = append(list, variants(sc, name)...)
	}
	seen := map[Candidate]bool{}
	return slices.DeleteFunc(list, func(e Candidate) bool {
		twice := seen[e]
		seen[e] = true
		return twice
	})
}

// variants are the forms in which a policy is tried. A policy is combined with every scheduling that it could use, so that each rival is
// compared at its best.
func variants(sc *scenario.Scenario, name string) (list []Candidate) {
	if sim.Bound(name) {
		for _, x := range append([]float64{0}, strains[name]...) {
			list = append(list, Candidate{Policy: name, Scheduling: quell.LeastConn, Strain: x})
		}
		return list
	}
	schedulings := weighted
	if table.All.EqualShares(name) || name == subject {
		schedulings = quell.Schedulings // Prequal too, though it ignores weights: shares are equal, or the group's size alone is of use
	}
	if name == subject {
		list = append(list, over([]quell.Scheduling{quell.LeastConn, quell.EWMA}, Candidate{Policy: name, Models: scenario.Learn})...)
	}
	e := Candidate{Policy: name, Fixed: sc.Size(scenario.Run{Policy: quell.Policy{Name: name}})}
	further := table.All.Variants(sc.PolicyOf(scenario.Run{Policy: quell.Policy{Name: name}}))
	if !slices.ContainsFunc(further, func(v policy.Variant) bool { return v.Step != "" }) {
		list = append(list, over(schedulings, e)...)
	}
	for _, v := range further {
		if len(v.Schedulings) == 0 {
			v.Schedulings = schedulings
		}
		e.Change, e.Target = v.Change, v.Step
		list = append(list, over(v.Schedulings, e)...)
	}
	return list
}

// over combines a candidate with each of the schedulings.
func over(schedulings []quell.Scheduling, e Candidate) []Candidate {
	var list []Candidate
	for _, s := range schedulings {
		e.Scheduling = s
		list = append(list, e)
	}
	return list
}

// untrained says whether the candidate needs no models.
func (e Candidate) untrained() bool {
	return !table.All.Trained(e.Policy) || e.Models == scenario.Learn
}

// checkPolicies refuses names of policies that do not exist.
func checkPolicies(names []string) error {
	for _, name := range names {
		if !slices.Contains(sim.Policies(), name) {
			return &quell.UserError{Err: fmt.Errorf("unknown policy %q (known: %s)", name, strings.Join(sim.Policies(), ", "))}
		}
	}
	return nil
}
