package life

import (
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Step is the next action for one instance.
type Step int

// The steps, in the order of an instance's life. An instance that is only added to the balancer gets a share of 0, so that health
// checks and probes can begin.
const (
	Wait  Step = iota // not at the balancer: it is starting, or the scaler is stopping it, or will be asked to again
	Share             // at the balancer with its share of the requests
	Hold              // a person took it out of rotation: its open requests may take any time
	Drain             // it leaves: its open requests finish, no new ones arrive
	Stop              // it has drained: it is removed from the balancer and stopped
)

// Next returns the present step of an instance. If the instance leaves, its open requests may take as long as limit; 0 means any time.
func (in *Instance) Next(now time.Time, limit time.Duration) Step {
	switch {
	case in.Ending:
		return Wait
	case in.Member.State == quell.Draining && in.Known && !in.drained(now, limit):
		return Drain // the platform ends it, with open requests
	case in.Member.State == quell.Draining:
		return Wait
	case in.Leaving && in.drained(now, limit):
		if now.Before(in.Again) {
			return Wait
		}
		return Stop
	case in.Leaving:
		return Drain
	case in.Ordered:
		return Hold
	case in.Member.State == quell.Ready || in.Member.State == quell.Failed && in.Known:
		return Share
	}
	return Wait
}

// First returns how many instances are started in an empty group.
func First(g quell.Group) int { return min(max(g.Min, g.Initial), g.Max) }

// Watch returns the period at which a group is checked, between two decisions, for instances that became ready or have drained.
func Watch(sampling time.Duration) time.Duration { return min(sampling/4, 500*time.Millisecond) }

// Steps bring a group to the wanted state.
type Steps struct {
	Backends []quell.Backend // all backends that the balancer should have
	Stop     []string        // instances that the scaler should end
}

// Follow lists the steps of a group whose instances are to have the given shares. limit has the same meaning as in Instance.Next.
func Follow(now time.Time, group []Instance, weights map[string]float64, limit time.Duration) Steps {
	s := Steps{Backends: make([]quell.Backend, 0, len(group))}
	s.Refill(now, group, weights, limit)
	return s
}

// Refill sets s to the result of Follow, reusing its memory. Instances without an address are left out: a balancer would refuse the list.
func (s *Steps) Refill(now time.Time, group []Instance, weights map[string]float64, limit time.Duration) {
	s.Backends, s.Stop = s.Backends[:0], s.Stop[:0]
	var taken map[string]bool
	for i := range group {
		in := &group[i]
		b := quell.Backend{ID: in.Member.ID, Address: in.Member.Address, Probe: in.Member.Probe}
		switch in.Next(now, limit) {
		case Wait:
			continue
		case Stop:
			s.Stop = append(s.Stop, b.ID)
			continue
		case Share:
			b.Weight = weights[b.ID]
		case Hold:
			b.Draining, b.Held = true, true
		case Drain:
			b.Draining = true
		}
		if b.Address == "" && in.Known {
			if taken == nil {
				taken = addresses(group)
			}
			if !taken[in.Backend.Address] { // the scaler no longer knows the address; the balancer still has it
				b.Address, b.Probe = in.Backend.Address, in.Backend.Probe
			}
		}
		if b.Address != "" {
			s.Backends = append(s.Backends, b)
		}
	}
}

func addresses(group []Instance) map[string]bool {
	all := make(map[string]bool, len(group))
	for i := range group {
		all[group[i].Member.Address] = true
	}
	return all
}

// InForce returns the shares of a group until the next plan. Normally these are the shares of the last plan. If they would give no instance
// any requests, all shares are equal at once, because traffic cannot wait for a decision. An instance that is to replace another one gets
// no share before its turn, unless there is no other instance.
func InForce(group []Instance, planned map[string]float64) map[string]float64 {
	var ready, waiting []string
	var sum float64
	for i := range group {
		in := &group[i]
		switch {
		case in.Member.State != quell.Ready || in.Leaving || in.Held != nil:
			continue
		case in.For != "":
			waiting = append(waiting, in.Member.ID)
		default:
			ready = append(ready, in.Member.ID)
		}
		sum += planned[in.Member.ID]
	}
	if len(ready) == 0 {
		ready = waiting
	}
	if sum > 0 {
		return planned
	}
	return byBase(group, ready)
}

// Present returns the shares that ready instances have at the balancer, in the same proportions. One that is new to it gets the mean share.
func Present(group []Instance) map[string]float64 {
	shares, fresh, sum := map[string]float64{}, []string{}, 0.0
	for i := range group {
		in := &group[i]
		switch {
		case in.Member.State != quell.Ready || in.Leaving || in.Held != nil:
		case in.Known:
			shares[in.Member.ID] = in.Backend.Weight
			sum += in.Backend.Weight
		default:
			fresh = append(fresh, in.Member.ID)
		}
	}
	if sum == 0 { // nothing is known of their proportions
		return InForce(group, nil)
	}
	mean := sum / float64(len(shares))
	for _, id := range fresh {
		shares[id] = mean
		sum += mean
	}
	for id := range shares {
		shares[id] /= sum
	}
	return shares
}

// byBase returns shares of these instances in proportion to the weights that people gave them.
func byBase(group []Instance, ids []string) map[string]float64 {
	weights, sum := make(map[string]float64, len(ids)), 0.0
	for i := range group {
		in := &group[i]
		if !slices.Contains(ids, in.Member.ID) {
			continue
		}
		weights[in.Member.ID] = 1
		if in.Backend.Base != nil {
			weights[in.Member.ID] = *in.Backend.Base
		}
		sum += weights[in.Member.ID]
	}
	for id := range weights {
		weights[id] /= sum
	}
	return weights
}

// resolution is a difference of weights that no balancer can represent.
const resolution = 1e-6

// Moves returns whether a planned share differs from the balancer's share of the instance.
func Moves(b quell.BackendState, known bool, planned float64) bool {
	return !known || math.Abs(b.Weight-planned) > resolution
}

// Differs returns whether the wanted backends differ from the balancer's. Changes that a person made there are
// ignored.
func Differs(wanted []quell.Backend, inForce map[string]quell.BackendState) bool {
	if len(wanted) != len(inForce) {
		return true
	}
	for _, w := range wanted {
		b, ok := inForce[w.ID]
		if !ok || b.Address != w.Address || b.Probe != w.Probe {
			return true
		}
		if b.ByHand != nil {
			continue
		}
		if b.Draining != w.Draining || b.Held != w.Held || Moves(b, true, w.Weight) {
			return true
		}
	}
	return false
}

// Size is how many instances there are when a plan is carried out: those that start or are ready and are not removed, the ones that are
// coming, and what the plan adds.
func Size(s *quell.Snapshot, plan *quell.Plan) *int {
	n, change := s.Coming, quell.GroupChange{}
	if plan.Group != nil {
		change = *plan.Group
	}
	gone := make(map[string]bool, len(change.Remove))
	for _, id := range change.Remove {
		gone[id] = true
	}
	for i := range s.Instances {
		in := &s.Instances[i]
		if (in.State == quell.Ready || in.State == quell.Starting) && !gone[in.ID] {
			n++
		}
	}
	n += change.Add
	return &n
}
