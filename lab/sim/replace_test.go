package sim

import (
	"errors"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// renewing is a scenario with three instances on four machines. After 20 s a person orders the replacement of the instance on h2.
func renewing(t *testing.T, policy string, o Options) *simulation {
	t.Helper()
	sc := plainScenario(4, 0.4, 40e6, 60*time.Second)
	sc.Instances, sc.Service.Sampling = scenario.Instances{Start: 3, Fixed: 3, Startup: 2 * time.Second}, time.Second
	sc.Service.SLO.Threshold = 40 * time.Millisecond
	o.Scenario, o.Run = sc, scenario.Run{Policy: quell.Policy{Name: policy}, Scheduling: quell.LeastConn, Fixed: 3}
	if o.Renewals == nil {
		o.Renewals = []Renewal{{Host: "h2", At: 20 * time.Second}}
	}
	s, err := newSimulation(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ids are the instances at the end.
func (s *simulation) ids() (ids []string) {
	for _, in := range s.members {
		ids = append(ids, in.id)
	}
	return ids
}

// A new instance replaces the old one, even if the group already has its largest size, and no request fails.
func TestAReplacementLosesNothing(t *testing.T) {
	for _, policy := range []string{"static", "lsf"} {
		o := Options{}
		if policy == "lsf" {
			o.Models = prepared(t, renewing(t, "static", Options{}).Scenario)
		}
		s := renewing(t, policy, o)
		var fewest, most int
		fewest = len(s.Scenario.Hosts)
		var look func()
		look = func() {
			s.w.agenda.add(s.w.now+0.1, look)
			serving := 0
			for _, in := range s.members {
				if in.shown && !in.draining && in.candidate.Weight > 0 {
					serving++
				}
			}
			fewest, most = min(fewest, serving), max(most, len(s.members))
		}
		s.w.agenda.add(s.zero, look)
		if err := s.play(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := s.result(); r.Errors > 0 || len(s.instances) != 4 {
			t.Errorf("%s: %d of %d requests failed, %d instances were started", policy, r.Errors, r.Requests, len(s.instances))
		}
		if fewest < 3 || most != 4 || s.byID["i2"] != nil || s.byID["i4"] == nil {
			t.Errorf("%s: at least %d served, at most %d were there; at the end %v", policy, fewest, most, s.ids())
		}
	}
}

// If the old instance crashes while the new one starts, no second new instance is started.
func TestTheOldInstanceCrashesMeanwhile(t *testing.T) {
	s := renewing(t, "static", Options{Failures: []Failure{{Host: "h2", At: 21500 * time.Millisecond}}})
	if err := s.play(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.instances) != 4 || s.byID["i2"] != nil || s.byID["i4"] == nil {
		t.Errorf("%d instances were started; at the end %v", len(s.instances), s.ids())
	}
}

// If no machine is free, nothing changes.
func TestAReplacementWithoutAMachine(t *testing.T) {
	s := renewing(t, "static", Options{Renewals: []Renewal{{Host: "h1", At: time.Second}, {Host: "h2", At: time.Second}}})
	s.Scenario.Hosts = s.Scenario.Hosts[:3]
	if err := s.play(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := s.result(); r.Errors > 0 || len(s.instances) != 3 || len(s.fleet.Replacing) > 0 {
		t.Errorf("%d requests failed, %d instances were started, %v", r.Errors, len(s.instances), s.fleet.Replacing)
	}
}

// Plans ask for replacements at most as often as group.replace.every allows.
func TestPlansAskForReplacements(t *testing.T) {
	var s *simulation
	s = renewing(t, "static", Options{Renewals: []Renewal{}, Plans: func(plan *quell.Plan) {
		if s.w.now > s.zero+10 {
			plan.Replace = []string{s.members[0].id}
		}
	}})
	s.service.Group.Replace.Every = 25 * time.Second
	if err := s.play(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.instances) != 5 {
		t.Errorf("%d instances were started in 50 s", len(s.instances))
	}
}

func TestRenewalsOfUnknownHosts(t *testing.T) {
	sc := plainScenario(2, 0.4, 40e6, 10*time.Second)
	var user *quell.UserError
	if _, err := Run(t.Context(), Options{Scenario: sc, Run: sc.Runs[0], Renewals: []Renewal{{Host: "nowhere"}}}); !errors.As(err, &user) {
		t.Errorf("%v", err)
	}
}
