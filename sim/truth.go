package sim

import (
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// Policies lists what Run can play: the policies that can be chosen, and the one that only a simulator can have.
func Policies() []string {
	names := append(policy.Names(), policy.Clairvoyant)
	slices.Sort(names)
	return names
}

func newEngine(service quell.Service, models *model.Models) (*policy.Engine, error) {
	if service.Policy.Name == policy.Clairvoyant {
		return policy.NewClairvoyant(service, models)
	}
	return policy.NewEngine(service, models)
}

func (s *simulation) decide(snapshot *quell.Snapshot) (quell.Plan, policy.State) {
	if s.service.Policy.Name == policy.Clairvoyant {
		return s.engine.DecideKnowing(snapshot, s.state, s.truth())
	}
	return s.engine.Decide(snapshot, s.state)
}

// truth is what neighbours ask for at each instance's machine.
func (s *simulation) truth() map[string]float64 {
	truth := make(map[string]float64, len(s.members))
	for _, in := range s.members {
		truth[in.id] = s.w.asked(in.host, s.service.Policy.Resource)
	}
	return truth
}

// asked is the share of a host's resource that neighbours ask for now.
func (w *world) asked(hostIndex int, r quell.Resource) float64 {
	at := w.hosts[hostIndex].stations[kindOf(r)]
	if at == nobody {
		return 0
	}
	s := &w.stations[at]
	return s.neighbours.perSecond*s.neighbours.work/s.servers + 1 - s.share
}
