package sim

import (
	"errors"
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

// renew asks for the instance on a host to be replaced, if there is an instance that can be.
func (s *simulation) renew(host string) {
	v, _ := s.look()
	for _, in := range s.members {
		if s.Scenario.Hosts[in.host].ID == host && s.fleet.Replaceable(&v, in.id, &s.service.Group, false) == nil {
			s.fleet.AskToReplace(life.Replacement{Old: in.id, At: s.clock(s.w.now)})
		}
	}
}

// takeUp begins the replacements that a plan asks for.
func (s *simulation) takeUp(plan *quell.Plan) {
	if len(plan.Replace) > 0 {
		v, _ := s.look()
		_, _ = s.fleet.TakeUp(s.clock(s.w.now), &v, plan, &s.service.Group, false) // the next plan asks again for what cannot be replaced
	}
}

// replaceNext makes the next step of the replacement that is under way, before each decision.
func (s *simulation) replaceNext() {
	if len(s.fleet.Replacing) == 0 {
		return
	}
	v, _ := s.look()
	rules := life.RulesOf(&s.service, table.All.Feels(s.service.Policy.Name), s.state.HasSeverity)
	if turn, r, _ := s.fleet.Replace(s.clock(s.w.now), &v, rules); turn == life.Renew {
		s.order(1, r.Old)
	}
}

var errNoMachine = errors.New("no machine is free")

// order starts up to n instances, as the live controller orders them. inPlaceOf is the instance that the new one will replace, if any.
func (s *simulation) order(n int, inPlaceOf string) (started int) {
	s.fleet.Inventory.Order(s.clock(s.w.now), n, inPlaceOf)
	var err error
	if started = s.start(n); started < n {
		err = errNoMachine
	}
	var ids []string
	for _, in := range s.instances[len(s.instances)-started:] {
		ids = append(ids, in.id)
		s.fleet.Name(inPlaceOf, in.id)
	}
	s.fleet.Inventory.Answer(ids, err)
	return started
}

// leaves returns whether an instance was removed, and drains.
func (s *simulation) leaves(in *instance) bool {
	_, drains := s.fleet.Draining[in.id]
	return drains
}
