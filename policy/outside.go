package policy

import "github.com/quellhq/quell"

// Candidate is an instance as an Outside decision sees it.
type Candidate struct {
	*quell.Instance
	Protected bool
	Share     float64 // the wanted share; at first the present one. It is ignored if the instance is not ready
}

// Outside decides like a policy, but comes from another package and is not in the table of policies. It writes the shares that it wants
// into the candidates. most is how many instances may be in rotation.
type Outside func(s *quell.Snapshot, candidates []Candidate, most int) quell.Plan

// NewOutside returns an engine that decides by the function decide under the given name. The guard bounds its plans like those of a policy.
func NewOutside(service quell.Service, name string, decide Outside) *Engine {
	service.Policy = quell.Policy{Name: name}
	return &Engine{
		service: service, protected: SetOf(service.Group.Protected), contended: []Contended{{Resource: DefaultResource}},
		decides: func(in *Input, g *Group, _ *State) quell.Plan {
			candidates := make([]Candidate, len(g.Members))
			for i := range g.Members {
				m := &g.Members[i]
				candidates[i] = Candidate{m.Instance, m.Protected, m.Planned}
			}
			plan := decide(in.Snapshot, candidates, g.MaxSize(in))
			for i := range g.Members {
				g.Members[i].Planned = candidates[i].Share
			}
			return plan
		},
	}
}
