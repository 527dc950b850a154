package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/life"
)

// sample is one period of the controller: take a snapshot, decide, apply.
func (s *simulation) sample() {
	s.w.agenda.add(s.w.now+s.service.Sampling.Seconds(), s.sample)
	s.replaceNext()
	snapshot := s.snapshot()
	s.sampled = s.w.now
	if s.w.now < s.zero {
		snapshot.Set(s.Scenario.Instances.Held())
	}
	s.cuts(&snapshot)
	if s.Snapshots != nil {
		s.Snapshots(&snapshot)
	}
	plan, state := s.engine.Decide(&snapshot, s.state)
	s.state = state
	if s.Plans != nil {
		s.Plans(&plan)
	}
	s.set(plan.Settings)
	changed := s.changeGroup(plan.Group)
	s.takeUp(&plan)
	moved := s.setWeights(plan.Weights)
	if changed || moved {
		s.changed()
	}
}

// changed records the time of a plan that changed something.
func (s *simulation) changed() {
	if at := s.w.now - s.zero; at >= 0 && s.w.now < s.end {
		s.changes = append(s.changes, duration(at))
	}
}

func (s *simulation) changeGroup(change *quell.GroupChange) (changed bool) {
	if change.Empty() {
		return false
	}
	for _, id := range change.Remove {
		changed = s.byID[id] != nil && s.fleet.Remove(s.clock(s.w.now), id) || changed
	}
	return s.order(change.Add, "") > 0 || changed
}

// setWeights puts a plan's shares into force. If the plan has none, the present ones stay.
func (s *simulation) setWeights(planned map[string]float64) (moved bool) {
	if len(planned) == 0 {
		_, group := s.look()
		planned = life.InForce(group, s.weights)
	}
	for id, w := range planned {
		in := s.byID[id]
		moved = moved || in == nil || life.Moves(in.backend(), in.shown, w)
	}
	s.weights = planned
	s.follow(planned)
	return moved
}

// set sets parameters of servers, as agents would. They have no effect on how long requests take.
func (s *simulation) set(settings []quell.Setting) {
	for _, o := range settings {
		if in := s.byID[o.Instance]; in != nil && in.settings != nil {
			in.settings = maps.Clone(in.settings) // a snapshot has the map
			in.settings[o.Key()] = o.Value
		}
	}
}

// spread distributes the shares again between two decisions, as the live controller does when the group changes.
func (s *simulation) spread() {
	_, group := s.look()
	s.follow(life.InForce(group, s.weights))
}

// follow puts the group and the balancer into the state that the given shares require.
func (s *simulation) follow(weights map[string]float64) {
	v, group := s.look()
	s.fleet.Follow(s.clock(s.w.now), &v, group, weights, drainLimit, &s.steps)
	for _, in := range s.members {
		in.shown = false
	}
	for _, b := range s.steps.Backends {
		in := s.byID[b.ID]
		in.shown, in.draining, in.candidate.Weight = true, b.Draining, b.Weight
	}
	for _, id := range s.steps.Stop {
		s.exit(s.byID[id])
	}
	s.balancer.set(s.members)
}

// tend ends instances that have drained, or whose time for draining is over.
func (s *simulation) tend() {
	s.w.agenda.add(s.w.now+life.Watch(s.service.Sampling).Seconds(), s.tend)
	if len(s.fleet.Draining) == 0 {
		return
	}
	now := s.clock(s.w.now)
	_, group := s.look()
	for i, in := range slices.Clone(s.members) { // an exit changes them
		if group[i].Leaving && group[i].Next(now, drainLimit) == life.Stop {
			s.exit(in)
			s.balancer.set(s.members)
		}
	}
}

// drainLimit is how long open requests of an instance that leaves may take, as on the emulated rig.
const drainLimit = 5 * time.Second

// look takes in what scaler and balancer would report now, as the live controller does. group has the members in their order, and is valid
// until the next look.
func (s *simulation) look() (v life.View, group []life.Instance) {
	members, states := make([]quell.Member, len(s.members)), make([]quell.BackendState, 0, len(s.members))
	for i, in := range s.members {
		members[i] = quell.Member{ID: in.id, Address: in.id, Type: s.Scenario.Hosts[in.host].Group, State: in.state, Started: s.clock(in.started)}
		if in.shown {
			states = append(states, in.backend())
		}
	}
	v, _ = s.fleet.Look(s.clock(s.w.now), members, states,
		life.Looking{Sampling: s.service.Sampling, Startup: s.service.Group.Startup, Leads: true})
	s.roster = v.Fill(s.roster)
	for i, in := range s.members {
		s.roster[i].Past, s.roster[i].Settings = in.past, in.settings
	}
	return v, s.roster
}

// backend is the state that the balancer would report for an instance.
func (in *instance) backend() quell.BackendState {
	b := quell.BackendState{Healthy: in.state == quell.Ready, InFlight: in.candidate.InFlight}
	b.ID, b.Weight, b.Draining = in.id, in.candidate.Weight, in.draining
	return b
}
