package policy

import (
	"fmt"

	"github.com/quellhq/quell"
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

// Plain is the name of the policy that leaves everything to the balancer's own scheduling.
const Plain = "static"

var staticSpec = spec[StaticSettings]{
	name: Plain, about: "equal weights: the balancer's own scheduling on a group of fixed size",
	scope: ServiceScope, equal: true,
	defaults: StaticSettings{Resource: quell.Network, Confirm: 1},
	keys: func(s *StaticSettings) setting.Table {
		return setting.Table{
			resourceKey(&s.Resource),
			setting.Opt("utilization", setting.Share(&s.Utilization).Between(0, 1), "add an instance above this mean utilisation; 0% never does"),
			confirmKey(&s.Confirm),
		}
	},
	senses: func(s StaticSettings) Senses { return sensing(s.Resource) },
	memory: empty[staticMemory],
	decide: static,
}

// static gives the ready instances equal weights, so that the balancer alone decides. If a utilisation is set, it also adds
// an instance whenever the mean utilisation is above it (PRIMA, section VI-C, uses 30%).
func static(in *Input, set StaticSettings, g *group, st *State) quell.Plan {
	var plan quell.Plan
	g.equal()
	threshold := set.Utilization
	mean, ok := g.meanUse()
	above := threshold > 0 && ok && !quell.AtMost(mean, threshold)
	mem := remembered[staticMemory](st)
	mem.Above = next(mem.Above, above)
	if mem.Above > set.Confirm {
		g.addOne(in, &plan, "utilization", fmt.Sprintf("mean utilisation %.3f is above %.3f", mean, threshold))
	}
	return plan
}

// meanUse returns the mean load of the ready instances. Instances that have not reported, or whose share a person set, do not count.
func (g *group) meanUse() (float64, bool) {
	load, known := g.load, 0
	for _, m := range g.ready {
		switch {
		case m.fixed != nil:
			load -= m.use
		case m.hasUse:
			known++
		}
	}
	if known == 0 {
		return 0, false
	}
	return load / float64(known), true
}
