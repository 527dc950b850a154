package sim

import (
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/policy/table"
)

// Renewal replaces the instance on a host by a fresh one, at a moment of the scenario.
type Renewal struct {
	Host string
	At   time.Duration
}

// renew asks for the instance on a host to be replaced, if there is an instance.
func (s *simulation) renew(host string) {
	for _, in := range s.members {
		if s.Scenario.Hosts[in.host].ID == host {
			s.askToReplace(in.id)
		}
	}
}

func (s *simulation) askToReplace(id string) {
	if !slices.ContainsFunc(s.replacing, func(r life.Replacement) bool { return r.Old == id }) {
		s.replacing = append(s.replacing, life.Replacement{Old: id, At: s.clock(s.w.now)})
	}
}

// takeUp begins the replacements that a plan asks for, with at least the service's interval between two of them.
func (s *simulation) takeUp(plan *quell.Plan) {
	for _, id := range plan.Replace {
		if every := s.service.Group.Replace.Every.Seconds(); s.takenUp == nil || s.w.now-*s.takenUp >= every {
			now := s.w.now
			s.takenUp = &now
			s.askToReplace(id)
		}
	}
}

// replaceNext takes the next step of the replacement that is under way, before each decision.
func (s *simulation) replaceNext() {
	if len(s.replacing) == 0 {
		return
	}
	r := &s.replacing[0]
	now := s.clock(s.w.now)
	turn, _ := r.Next(now, s.group(), false, s.rules())
	switch turn {
	case life.Await:
		return
	case life.Renew:
		s.leave(r.New)
		if r.Order(now); s.start(1) == 1 {
			fresh := s.instances[len(s.instances)-1]
			r.New, fresh.replaces = fresh.id, r.Old
		}
		return
	case life.TakeOver:
		s.leave(r.Old)
	case life.CallOff:
		s.leave(r.New)
	}
	if fresh := s.byID[r.New]; fresh != nil {
		fresh.replaces = ""
	}
	s.replacing = s.replacing[1:]
}

// leave makes an instance drain.
func (s *simulation) leave(id string) (began bool) {
	in := s.byID[id]
	if in == nil || in.leaving {
		return false
	}
	in.leaving, in.since = true, s.w.now
	return true
}

// rules are the rules of the live controller for replacements.
func (s *simulation) rules() *life.Replacing {
	feels := table.All.Feels(s.service.Policy.Name)
	return &life.Replacing{
		Startup: s.service.Group.Startup, SlowStart: s.service.Guard.SlowStart, Patience: life.Patience(&s.service),
		Probed: func(id string) bool { return !feels || s.state.Instances[id].Severity != nil },
	}
}
