// Package life holds the rules by which the instances of a group come and go: from what scaler and balancer say to a snapshot, and from
// the shares of a plan to steps. It is pure; the controller and the simulator run the same rules.
package life

import (
	"time"

	"github.com/quellhq/quell"
)

// Instance is one member of a group at one moment, as its scaler, its balancer and its controller know it.
type Instance struct {
	Member  quell.Member
	Backend quell.BackendState // as the balancer has it
	Known   bool               // the balancer has it
	Held    *quell.Held        // a person took it out of rotation, with an order to Quell or at the balancer itself
	Ordered bool               // by an order to Quell: the balancer must be told
	Leaving bool               // a plan removed it
	Since   time.Time          // when it began to leave
	Ending  bool               // the scaler was told to end it

	For  string      // the instance whose place it is to take; until then it gets no share
	Last quell.State // in the last snapshot; empty: it was not there

	Past        Past                       // of the last snapshot
	Observation *quell.Observation         // nil without readings
	Limits      map[quell.Resource]float64 // in force, as its agent told last
	Settings    map[string]float64         // the same
}

// Orphaned says whether the balancer drains the instance although neither a plan nor a person is known to have asked for it: a controller
// began this drain and ended before it could write it down.
func (in *Instance) Orphaned() bool {
	return in.Known && in.Backend.Draining && !in.Leaving && in.Held == nil && !in.Backend.Held
}

// drained says whether a leaving instance can be stopped: the balancer knows that it drains and has no open request there, or it never
// served, or it has exited, or it has been leaving for the given time, where that is bounded.
func (in *Instance) drained(now time.Time, limit time.Duration) bool {
	late := limit > 0 && now.Sub(in.Since) >= limit
	return in.Member.State == quell.Failed || !in.Known || late || in.Backend.Draining && in.Backend.InFlight == 0
}
