package rivals

import (
	"fmt"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/setting"
)

// staticMemory is what static remembers.
type staticMemory struct {
	Above int `json:"above,omitempty"` // consecutive snapshots with a mean utilisation above the setting
}

// StaticSettings are the settings of static.
type StaticSettings struct {
	Resource    quell.Resource // whose utilisation is used
	Utilization float64        // add an instance above this mean utilisation; 0 turns it off
	Confirm     int            // W: act on the (W+1)th consecutive snapshot
}

var Static = policy.Spec[StaticSettings]{
	Name: "static", Plain: true, About: "equal weights: the balancer's own scheduling on a group of fixed size",
	Scope: policy.ServiceScope, Equal: true,
	Defaults: StaticSettings{Resource: quell.Network, Confirm: 1},
	Keys: func(s *StaticSettings) setting.Table {
		return setting.Table{
			policy.ResourceKey(&s.Resource),
			setting.Opt("utilization", setting.Share(&s.Utilization).Between(0, 1), "add an instance above this mean utilisation; 0% never does"),
			policy.ConfirmKey(&s.Confirm),
		}
	},
	Senses: func(s StaticSettings) policy.Senses { return policy.Sensing(s.Resource) },
	Memory: policy.Empty[staticMemory],
	Decide: static,
}

// static gives the ready instances equal weights, so that the balancer alone decides. If a utilisation is set, it also adds
// an instance whenever the mean utilisation is above it (PRIMA, section VI-C, uses 30%).
func static(in *policy.Input, set StaticSettings, g *policy.Group, st *policy.State) quell.Plan {
	var plan quell.Plan
	g.Equal()
	threshold := set.Utilization
	mean, ok := meanUse(g)
	above := threshold > 0 && ok && !quell.AtMost(mean, threshold)
	mem := policy.Remembered[staticMemory](st)
	mem.Above = policy.Consecutive(mem.Above, above)
	if mem.Above > set.Confirm {
		g.AddOne(in, &plan, "utilization", fmt.Sprintf("mean utilisation %.3f is above %.3f", mean, threshold))
	}
	return plan
}

// meanUse returns the mean load of the ready instances. Instances that have not reported, or whose share a person set, do not count.
func meanUse(g *policy.Group) (float64, bool) {
	load, known := g.Load, 0
	for _, m := range g.Ready {
		switch {
		case m.Fixed != nil:
			load -= m.Use
		case m.HasUse:
			known++
		}
	}
	if known == 0 {
		return 0, false
	}
	return load / float64(known), true
}
