package policy

import "github.com/quellhq/quell"

// Candidate is an instance as a decision from outside of this package sees it.
type Candidate struct {
	*quell.Instance
	Protected bool
	Share     float64 // what it is to have; at first what it has. Those of ready instances count
}

// Outside is a decision that is no policy which can be chosen. most is how many instances may be in rotation.
type Outside func(s *quell.Snapshot, candidates []Candidate, most int) quell.Plan

// NewOutside returns an engine that decides so under a name, and clamps what comes out as any policy's plan.
func NewOutside(service quell.Service, name string, decide Outside) *Engine {
	service.Policy = quell.Policy{Name: name}
	return &Engine{
		service: service, protected: setOf(service.Group.Protected), contended: []contended{{resource: defaultResource}},
		decides: func(in *Input, g *group, _ *State) quell.Plan {
			candidates := make([]Candidate, len(g.members))
			for i := range g.members {
				m := &g.members[i]
				candidates[i] = Candidate{m.Instance, m.protected, m.share}
			}
			plan := decide(in.Snapshot, candidates, g.most(in))
			for i := range g.members {
				g.members[i].share = candidates[i].Share
			}
			return plan
		},
	}
}
