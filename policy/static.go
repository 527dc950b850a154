package policy

import "github.com/quellhq/quell"

// static is the balancer alone: equal weights over the ready instances. With a utilisation threshold it also adds
// an instance while the mean utilisation is above it (PRIMA, section VI-C, uses 30%).
func static(in Input, g *group, st *State) quell.Plan {
	plan := quell.Plan{Weights: g.equal()}
	threshold := in.Service.Policy.Utilization
	if threshold == 0 || len(g.ready) == 0 {
		return plan
	}
	mean := g.load / float64(len(g.ready))
	st.ScaleOut = next(st.ScaleOut, !quell.AtMost(mean, threshold))
	if st.ScaleOut > in.Service.Policy.Confirm && g.outstandingStarts() == 0 {
		plan.Group = &quell.GroupChange{Add: 1}
		addReason(&plan, "utilization", "", "mean utilisation %.3f is above %.3f: adding 1", mean, threshold)
	}
	return plan
}

// outstandingStarts counts what is coming for a policy that needs no severity.
func (g *group) outstandingStarts() int { return g.starting }
