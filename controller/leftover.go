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

// leftover is a parameter of a server that a policy changed which is no longer configured.
type leftover struct {
	Value float64   `json:"value"` // before the change
	Since time.Time `json:"since"` // when the policy was no longer configured
}

// leftoverFor is how long the value of before is ordered. An agent that refuses it for a day restores it when it stops.
const leftoverFor = 24 * time.Hour

// inherit remembers which parameters of servers a policy has changed, if it is not the configured one. The first decision of that one drops
// the memory of the one before.
func (c *Controller) inherit(state *policy.State, configured string) {
	if state.Policy == configured {
		return
	}
	for id, values := range state.Changed() {
		all := maps.Clone(c.mem.Leftovers)
		if all == nil {
			all = map[string]map[string]leftover{}
		}
		of := maps.Clone(all[id])
		if of == nil {
			of = map[string]leftover{}
		}
		for name, value := range values {
			if _, known := of[name]; !known {
				of[name] = leftover{value, c.now()}
			}
		}
		all[id], c.mem.Leftovers = of, all
	}
}

// takeBack adds the orders to a plan that bring such parameters back. Those that are back, or were ordered for a day, are forgotten.
func (c *Controller) takeBack(s *quell.Snapshot, plan *quell.Plan) {
	if len(c.mem.Leftovers) == 0 {
		return
	}
	settings := make(map[string]map[string]float64, len(s.Instances))
	for i := range s.Instances {
		settings[s.Instances[i].ID] = s.Instances[i].Settings
	}
	left := map[string]map[string]leftover{}
	for _, id := range slices.Sorted(maps.Keys(c.mem.Leftovers)) {
		inForce, there := settings[id]
		for _, key := range slices.Sorted(maps.Keys(c.mem.Leftovers[id])) {
			old := c.mem.Leftovers[id][key]
			if now, reported := inForce[key]; reported && same(now, old.Value) || s.At.Sub(old.Since) >= leftoverFor {
				continue
			}
			if left[id] == nil {
				left[id] = map[string]leftover{}
			}
			left[id][key] = old
			if there {
				bringBack(plan, id, key, old.Value)
			}
		}
	}
	c.mem.Leftovers = left
}

// bringBack orders a value of before, instead of what the plan may order for the same parameter.
func bringBack(plan *quell.Plan, id, key string, value float64) {
	target, name, _ := strings.Cut(key, ".")
	plan.Settings = slices.DeleteFunc(plan.Settings, func(s quell.Setting) bool { return s.Instance == id && s.Key() == key })
	plan.Settings = append(plan.Settings, quell.Setting{Instance: id, Target: target, Name: name, Value: value})
	plan.Reasons = append(plan.Reasons, quell.Reason{Code: "setting", Instance: id,
		Text: fmt.Sprintf("the policy that changed %s is no longer configured: it goes back to %g", key, value)})
}
