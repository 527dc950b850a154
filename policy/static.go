package policy

import (
	"fmt"

	"github.com/quellhq/quell"
)

// staticMemory is what static remembers.
type staticMemory struct {
	Above int `json:"above,omitempty"` // consecutive snapshots above the utilisation
}

// static is the balancer alone: equal weights over the ready instances. With a utilisation threshold it also adds
// an instance while the mean utilisation is above it (PRIMA, section VI-C, uses 30%).
func static(in Input, g *group, st *State) quell.Plan {
	var plan quell.Plan
	g.equal()
	threshold := in.Service.Policy.Utilization
	mean, ok := g.meanUse()
	above := threshold > 0 && ok && !quell.AtMost(mean, threshold)
	mem := remembered[staticMemory](st)
	mem.Above = next(mem.Above, above)
	if mem.Above > in.Service.Policy.Confirm {
		g.addOne(in, &plan, "utilization", fmt.Sprintf("mean utilisation %.3f is above %.3f", mean, threshold))
	}
	return plan
}

// meanUse is the load per ready instance, not counting those that have not told theirs and those whose share a person set.
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
