package life

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Replacement is the state of replacing an instance by a new one, from the request until the old instance leaves. The controller stores
// it, so that a restart does not lose it.
type Replacement struct {
	Old     string    `json:"old"`
	By      string    `json:"by"`             // who asked for it
	Keep    bool      `json:"keep,omitempty"` // the old instance is taken out of rotation and goes on running, for a look
	At      time.Time `json:"at"`             // when
	New     string    `json:"new,omitempty"`
	Tries   int       `json:"tries,omitempty"`      // number of new instances ordered
	Ordered time.Time `json:"ordered,omitzero"`     // when the last one was ordered
	Ready   time.Time `json:"ready_since,omitzero"` // since when the new instance is ready; zero if it is not
}

// Turn is the next action of a replacement.
type Turn int

// The turns, in the order of a replacement.
const (
	Await    Turn = iota // do nothing yet
	Renew                // order a new instance; remove that of an earlier attempt
	TakeOver             // the new one may have a share, and the old one leaves
	CallOff              // the old one stays; a new one that is not in service is removed
	Over                 // the old one is already gone; a new one stays
)

// Replacing has the times that decide when a new instance may take over.
type Replacing struct {
	Startup   time.Duration // how long it may take to be listed, and again to become ready
	SlowStart time.Duration // its age before it takes a full share
	Patience  time.Duration // how long a ready new instance waits for its first probe
	Probed    func(id string) bool
	Bound     int      // largest size of the group
	Protected []string // ids of instances that are never replaced
}

// Patience returns how long a new instance waits for its first probe: as long as a reading may be old.
func Patience(service *quell.Service) time.Duration {
	const standing = 3 // periods, used if guard.stale_after is 0
	return time.Duration(cmp.Or(service.Guard.StaleAfter, standing)) * service.Sampling
}

// mostTries limits the new instances ordered in one replacement.
const mostTries = 3

// Next returns the next action of a replacement, and the reason for it. coming says that the ordered instance is not in the scaler's list
// yet. In group, the field Last must have each instance's state in the last snapshot.
func (r *Replacement) Next(now time.Time, group []Instance, coming bool, rules *Replacing) (turn Turn, why string) {
	old, fresh := find(group, r.Old), find(group, r.New)
	if fresh == nil || !fresh.inOrder() {
		r.Ready = time.Time{}
	} else if r.Ready.IsZero() {
		r.Ready = now
	}
	serves := fresh != nil && fresh.Known && fresh.Backend.Weight > 0
	switch {
	case old == nil:
		return Over, r.Old + " is gone"
	case old.Leaving && serves:
		return Over, r.New + " has its place"
	case old.Leaving && old.failed():
		return Over, r.Old + " has failed"
	case old.Leaving:
		return CallOff, r.Old + " is removed without a replacement"
	case slices.Contains(rules.Protected, r.Old):
		return CallOff, r.Old + " is protected"
	case old.Held != nil:
		return CallOff, r.Old + " is held by " + old.Held.By
	case fresh != nil && fresh.Held != nil:
		return CallOff, r.New + " is held by " + fresh.Held.By
	case r.Tries == 0:
		return Renew, ""
	case fresh == nil && coming:
		return Await, "a fresh instance is not listed yet"
	}
	if why := r.broken(now, fresh, rules); why != "" {
		return r.again(why)
	}
	return r.await(now, fresh, rules)
}

// find returns the instance with that ID, or nil if there is none.
func find(group []Instance, id string) *Instance {
	i := slices.IndexFunc(group, func(in Instance) bool { return in.Member.ID == id })
	if i < 0 {
		return nil
	}
	return &group[i]
}

func (in *Instance) failed() bool { return in.Member.State == quell.Failed || in.Last == quell.Failed }

// inOrder returns whether the instance could get requests.
func (in *Instance) inOrder() bool {
	return in.Member.State == quell.Ready && in.Known && in.Backend.Healthy && !in.Leaving && !in.failed()
}

// broken returns why a new instance cannot be used, or "" if it can.
func (r *Replacement) broken(now time.Time, fresh *Instance, rules *Replacing) string {
	switch {
	case fresh == nil && r.New == "":
		return "no fresh instance appeared"
	case fresh == nil:
		return r.New + " is gone"
	case fresh.Leaving:
		return r.New + " leaves"
	case fresh.failed():
		return r.New + " has failed"
	case r.Ready.IsZero() && now.Sub(r.Ordered) > 2*rules.Startup:
		return fmt.Sprintf("%s was not ready within %v", r.New, 2*rules.Startup)
	}
	return ""
}

// again orders another instance, unless that was tried often enough.
func (r *Replacement) again(why string) (Turn, string) {
	if r.Tries >= mostTries {
		return CallOff, fmt.Sprintf("%s, and %d were tried", why, r.Tries)
	}
	return Renew, why
}

// await returns the action if the new instance is ready or may still become ready.
func (r *Replacement) await(now time.Time, fresh *Instance, rules *Replacing) (Turn, string) {
	switch {
	case r.Ready.IsZero():
		return Await, r.New + " is starting"
	case lately(now, fresh.Member.Started, rules.SlowStart):
		return Await, r.New + " is younger than guard.slow_start"
	case !rules.Probed(r.New) && lately(now, r.Ready, rules.Patience):
		return Await, r.New + " is not probed yet"
	}
	return TakeOver, r.New + " is ready"
}

// lately returns whether less than d has passed since a moment. A moment that is still to come has passed: the clock was set back.
func lately(now, since time.Time, d time.Duration) bool {
	passed := now.Sub(since)
	return passed >= 0 && passed < d
}

// Order records that a new instance is about to be ordered.
func (r *Replacement) Order(now time.Time) {
	r.New, r.Ready = "", time.Time{}
	r.Ordered = now
	r.Tries++
}
