package sim

import (
	"math"

	"github.com/quellhq/quell"
)

// sample is one period of the controller: look, decide, apply.
func (s *simulation) sample() {
	s.w.agenda.add(s.w.now+s.service.Sampling.Seconds(), s.sample)
	snapshot := s.snapshot()
	s.sampled = s.w.now
	if s.w.now < s.zero {
		snapshot.Set(s.Scenario.Instances.Held())
	}
	plan, state := s.engine.Decide(&snapshot, s.state)
	s.state = state
	if s.planned != nil {
		s.planned(&plan)
	}
	changed := s.changeGroup(plan.Group)
	moved := s.setWeights(plan.Weights)
	if changed || moved {
		s.changed()
	}
}

// changed notes a plan that changed something.
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
		if in := s.byID[id]; in != nil && !in.leaving {
			s.leave(in)
			changed = true
		}
	}
	return s.start(change.Add) > 0 || changed
}

// weightResolution is the difference of weights that no balancer could show.
const weightResolution = 1e-6

func (s *simulation) setWeights(weights map[string]float64) (moved bool) {
	for _, in := range s.members {
		if in.state == quell.Starting || in.leaving {
			continue
		}
		w, named := weights[in.id]
		moved = moved || named && math.Abs(in.candidate.Weight-w) > weightResolution
		in.candidate.Weight = w
	}
	s.spread()
	return moved
}
