// Package policy is the core of policies. A policy is a pure function that turns a snapshot, models and a memory into a plan and a new
// memory. The live controller, `quell plan` and the simulator all use the Engine of this package. It includes the guard, which bounds the
// plans of every policy.
package policy

import (
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
	IdleFirst  bool      // the balancer sends a request to an idle instance whatever its weight
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
