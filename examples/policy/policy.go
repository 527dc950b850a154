// Package policy is an example of a policy outside Quell: docs/write-a-policy.md walks through it. It gives instances with many failed
// requests less of the load.
package policy

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/setting"
)

// Settings are the settings of the policy. Both are fractions.
type Settings struct {
	Errors float64 // an instance fails if more of its requests do
	Keeps  float64 // the part of an equal share that such an instance keeps
}

// instance is what the policy remembers of an instance.
type instance struct {
	Failed int `json:"failed,omitempty"` // consecutive snapshots in which it failed
}

// Spec declares the policy.
var Spec = policy.Spec[Settings]{
	Name: "forgiving", About: "equal weights, and less for instances that fail twice in a row",
	Scope:    policy.ServiceScope,
	Defaults: Settings{Errors: 0.05, Keeps: 0.5},
	Keys: func(s *Settings) setting.Table {
		return setting.Table{
			setting.Opt("errors", setting.Share(&s.Errors).Above(0).Below(1), "an instance fails if more of its requests do"),
			setting.Opt("keeps", setting.Share(&s.Keeps).Between(0, 1), "the part of an equal share that a failing instance keeps"),
		}
	},
	Instance: policy.Empty[instance],
	Decide:   decide,
}

// decide sets the share of each ready instance. The guard then bounds them.
func decide(_ *policy.Input, set Settings, g *policy.Group, _ *policy.State) quell.Plan {
	var plan quell.Plan
	policy.RememberedOf[instance](g)
	sum := 0.0
	for _, m := range g.Ready {
		mem := policy.MemoryOf[instance](m)
		fails := m.Fresh && m.Observation.ErrorRate != nil && *m.Observation.ErrorRate > set.Errors
		mem.Failed = policy.Consecutive(mem.Failed, fails)
		m.Planned = 1
		if mem.Failed > 1 {
			m.Planned = set.Keeps
			policy.AddReason(&plan, "failing", m.ID, "%.0f%% of its requests fail: it keeps %.0f%% of an equal share",
				100**m.Observation.ErrorRate, 100*set.Keeps)
		}
		sum += m.Planned
	}
	if sum == 0 {
		g.Equal()
		return plan
	}
	for _, m := range g.Ready {
		m.Planned /= sum
	}
	return plan
}
