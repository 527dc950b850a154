// Package life holds the rules for the instances of a group. It turns the reports of scaler and balancer into a snapshot, and the shares
// of a plan into steps (the next action for each instance). It is pure; the controller and the simulator use the same rules.
package life

import (
	"time"

	"github.com/quellhq/quell"
)

// Instance is one member of a group at one moment, as its scaler, its balancer and its controller know it.
type Instance struct {
	Member  quell.Member
	Backend quell.BackendState // as the balancer reports it; set if Known
	Known   bool               // the balancer has it
	Held    *quell.Held        // a person took it out of rotation, with a command to Quell or at the balancer itself
	Ordered bool               // Held was asked for by a command to Quell, so Quell must pass it on to the balancer
	Leaving bool               // a plan removed it
	Since   time.Time          // if it leaves: since when the balancer sends it no new requests; zero: it still does, as far as is known
	Ending  bool               // the scaler was told to stop it
	Stuck   bool               // the scaler could not stop it, or still lists it long after
	Again   time.Time          // not before this is the scaler asked again to stop it

	For  string      // the instance that it will replace; until then it gets no share
	Last quell.State // state in the last snapshot; empty if it was not in that snapshot

	Past        Past               // as of the last snapshot
	Observation *quell.Observation // nil if there are no readings
	Settings    map[string]float64 // settings in force, as its agent last reported them
}

// Orphaned returns whether the balancer drains the instance although no plan and no person is known to have asked for it. In this case an
// earlier controller began the drain, and ended before it could store that. What the platform itself ends is no orphan.
func (in *Instance) Orphaned() bool {
	return in.Known && in.Backend.Draining && !in.Leaving && in.Held == nil && !in.Backend.Held && in.Member.State != quell.Draining
}

// away returns whether a balancer sends a backend no new requests, because it was told to or because a person took the backend out there.
func away(b *quell.BackendState) bool { return b.Draining || b.ByHand != nil }

// drained returns whether an instance that leaves, or that its platform ends, can be stopped. It can if the balancer drains it and has no
// open request at it, if it never got requests, if it has exited, or if limit is not 0 and it has got no new requests for that long. While
// the balancer cannot be told, the instance gets its full share, and that time does not count.
func (in *Instance) drained(now time.Time, limit time.Duration) bool {
	late := limit > 0 && in.Leaving && away(&in.Backend) && !in.Since.IsZero() && now.Sub(in.Since) >= limit
	return in.Member.State == quell.Failed || !in.Known || late || in.Backend.Draining && in.Backend.InFlight == 0
}
