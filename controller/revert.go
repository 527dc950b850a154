package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// pendingRevert is a parameter of a server that a policy changed which is no longer configured.
type pendingRevert struct {
	Value   float64       `json:"value"`             // before the change
	Ours    []float64     `json:"ours"`              // what that policy ordered; never changed
	Since   time.Time     `json:"since"`             // when the policy was no longer configured, or of the last reading with a foreign value
	Ordered time.Duration `json:"ordered,omitempty"` // for how long its value of before has been ordered
	Foreign int           `json:"foreign,omitempty"` // readings in a row with a value that nobody ordered
}

// Constants of pending reverts.
const (
	revertFor   = 24 * time.Hour // how long the value of before is ordered; an agent that refuses it restores it when it stops
	mostForeign = 3              // readings in a row with a value that nobody ordered show that somebody else set it
)

// inherit remembers which parameters of servers a policy has changed, if it is not the configured one. The first decision of that one drops
// the memory of the one before.
func (m *memory) inherit(now time.Time, state *policy.State, configured string) {
	if state.Policy == configured {
		return
	}
	changed := state.Changed()
	if len(changed) == 0 {
		return
	}
	all := map[string]map[string]pendingRevert{}
	maps.Copy(all, m.PendingReverts)
	for id, values := range changed {
		of := map[string]pendingRevert{}
		maps.Copy(of, all[id])
		for name, changed := range values {
			if _, known := of[name]; !known {
				of[name] = pendingRevert{Value: changed.Before, Ours: changed.Ours, Since: now}
			}
		}
		all[id] = of
	}
	m.PendingReverts = all
}

// takeBack adds the orders to a plan that bring such parameters back. It forgets those that are back, that somebody else has set since, or
// that were ordered for a day. lasts is for how long this plan's orders are sent, 0 if they are not.
func (m *memory) takeBack(s *quell.Snapshot, plan *quell.Plan, lasts time.Duration) {
	if len(m.PendingReverts) == 0 {
		return
	}
	instances := make(map[string]*quell.Instance, len(s.Instances))
	for i := range s.Instances {
		instances[s.Instances[i].ID] = &s.Instances[i]
	}
	left := map[string]map[string]pendingRevert{}
	for _, id := range slices.Sorted(maps.Keys(m.PendingReverts)) {
		for _, key := range slices.Sorted(maps.Keys(m.PendingReverts[id])) {
			old := m.PendingReverts[id][key]
			if in := instances[id]; in != nil {
				tell := func(format string, args ...any) {
					plan.Reasons = append(plan.Reasons, quell.Reason{Code: "setting", Instance: id, Text: fmt.Sprintf(format, args...)})
				}
				if !bringBack(in, plan, key, &old, lasts, tell) {
					continue
				}
			}
			if left[id] == nil {
				left[id] = map[string]pendingRevert{}
			}
			left[id][key] = old
		}
	}
	m.PendingReverts = left
}

// bringBack orders a value of before, instead of what the plan may order for the same parameter. lasts is that of takeBack. It returns
// false if there is nothing left to do.
func bringBack(in *quell.Instance, plan *quell.Plan, key string, old *pendingRevert, lasts time.Duration, tell func(string, ...any)) bool {
	if now, reported := in.Settings[key]; reported && in.Observation != nil && in.Observation.At.After(old.Since) {
		switch {
		case same(now, old.Value):
			return false
		case slices.ContainsFunc(old.Ours, func(v float64) bool { return same(now, v) }):
			old.Foreign = 0
		default:
			old.Foreign, old.Since = old.Foreign+1, in.Observation.At
		}
		if old.Foreign >= mostForeign {
			tell("somebody else set %s to %g: that value stays", key, now)
			return false
		}
	}
	if old.Foreign > 0 {
		return true // ordered now, the value would be replaced before it is sure whose it is
	}
	if old.Ordered += lasts; old.Ordered > revertFor {
		tell("%s is not back after a day: it is left as it is", key)
		return false
	}
	target, name, _ := strings.Cut(key, ".")
	plan.Settings = slices.DeleteFunc(plan.Settings, func(s quell.Setting) bool { return s.Instance == in.ID && s.Key() == key })
	plan.Settings = append(plan.Settings, quell.Setting{Instance: in.ID, Target: target, Name: name, Value: old.Value})
	tell("the policy that changed %s is no longer configured: it goes back to %g", key, old.Value)
	return true
}
