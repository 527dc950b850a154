package controller

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
	"github.com/quellhq/quell/policy"
)

func TestAdviceTouchesNothing(t *testing.T) {
	play(t, func(r *rig) {
		r.opts.Service.Mode = quell.Advise
		r.opts.Service.Group.Initial = 3
	}, func(r *rig) {
		r.untouched(func() {
			r.run(3 * time.Second)
			r.scaler.set(func(s *fakeScaler) { s.add(); s.add() })
			r.balancer.set(func(b *fakeBalancer) {
				b.backends = []quell.Backend{{ID: "i1", Address: "10.0.0.1:80", Weight: 1}, {ID: "i2", Address: "10.0.0.2:80"}}
			})
			r.pass(5 * time.Second)
			r.scaler.state("i2", quell.Failed)
			r.pass(5 * time.Second)
		})
		plans := r.journal.plans()
		if len(plans) < 10 {
			t.Fatalf("%d plans were written down", len(plans))
		}
		for _, e := range plans {
			if e.Applied || e.Mode != quell.Advise || len(e.Changes) > 0 {
				t.Errorf("%+v", e)
			}
		}
		if first := plans[0].Plan.Group; first == nil || first.Add != 2 {
			t.Errorf("the first plan asks for %+v, want 2 instances", first)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Pause})
		r.untouched(func() {
			r.scaler.set(func(s *fakeScaler) { s.add() })
			r.pass(5 * time.Second)
		})
		if s := r.c.Status(); !s.Paused || s.PausedBy != "ann" {
			t.Errorf("status %+v", s)
		}
		r.restart()
		r.untouched(func() { r.run(5 * time.Second) })
		if s := r.c.Status(); !s.Paused || s.PausedBy != "ann" {
			t.Errorf("after a restart: %+v", s)
		}
		r.do(bus.Command{Name: bus.Resume})
		r.pass(3 * time.Second)
		r.wantWeights(map[string]float64{"i1": 1. / 3, "i2": 1. / 3, "i3": 1. / 3})
		events := r.journal.events()[1:] // the first event is about the first instances
		if !slices.Equal(events, []string{"paused by ann", "resumed by ann"}) {
			t.Errorf("events %q", events)
		}
	})
}

// If a person changes something at the balancer during a pause, the change stays after the pause unless the policy's plan differs.
func TestWhatWasDoneDuringAPauseStays(t *testing.T) {
	play(t, lopsided, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Pause})
		r.pass(2 * time.Second)
		r.balancer.set(func(b *fakeBalancer) { b.backends[0].Weight, b.backends[1].Weight = .3, .7 })
		r.pass(2 * time.Second)
		r.do(bus.Command{Name: bus.Resume})
		r.untouched(func() { r.pass(5 * time.Second) })
	})
}

func TestOverride(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.7)})
		r.pass(2 * time.Second)
		r.wantWeights(map[string]float64{"i1": .7, "i2": .3})
		if last := r.journal.snapshots[len(r.journal.snapshots)-1]; last.Instances[0].Override == nil || *last.Instances[0].Override != .7 ||
			last.Instances[1].Override != nil {
			t.Errorf("the recorded snapshot does not say what was set: %+v", last.Instances)
		}
		if s := r.c.Status(); s.Overrides["i1"] != .7 {
			t.Errorf("status %+v", s)
		}
		r.restart()
		r.untouched(func() { r.run(3 * time.Second) })
		if s := r.c.Status(); s.Overrides["i1"] != .7 {
			t.Errorf("after a restart: %+v", s)
		}
		r.do(bus.Command{Name: bus.Clear, Instance: "i1"})
		r.pass(2 * time.Second)
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
		if last := r.journal.snapshots[len(r.journal.snapshots)-1]; last.Instances[0].Override != nil {
			t.Error("the recorded snapshot still has it")
		}
		events := r.journal.events()[1:]
		if !slices.Equal(events, []string{"weight of i1 set to 0.700 by ann", "override of i1 cleared by ann"}) {
			t.Errorf("events %q", events)
		}
	})
}

func TestCommandsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		cmd  bus.Command
		want string
	}{
		"an unknown instance": {bus.Command{Name: bus.Override, Instance: "i9", Weight: at(.5)}, `no instance "i9"`},
		"too much":            {bus.Command{Name: bus.Override, Instance: "i1", Weight: at(1.5)}, "from 0 to 1"},
		"not a number":        {bus.Command{Name: bus.Override, Instance: "i1", Weight: at(math.NaN())}, "from 0 to 1"},
		"no weight":           {bus.Command{Name: bus.Override, Instance: "i1"}, "from 0 to 1"},
		"nothing to clear":    {bus.Command{Name: bus.Clear, Instance: "i1"}, `no override of "i1"`},
		"an unknown command":  {bus.Command{Name: "explode"}, `unknown command "explode"`},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(r *rig) {
				r.run(3 * time.Second)
				if reply := r.ask(c.cmd); !strings.Contains(reply.Error, c.want) {
					t.Errorf("%+v, want %q", reply, c.want)
				}
				if s := r.c.Status(); len(s.Overrides) > 0 || len(r.journal.events()) != 1 {
					t.Errorf("it left something: %v, %v", s.Overrides, r.journal.events())
				}
			})
		})
	}
}

// A pause is refused if it cannot be stored, because it would be lost in a restart.
func TestACommandThatCannotBeStoredIsTakenBack(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.memory.fault.set(errBroken)
		if reply := r.ask(bus.Command{Name: bus.Pause}); !strings.Contains(reply.Error, errBroken.Error()) {
			t.Errorf("%+v", reply)
		}
		if s := r.c.Status(); s.Paused || len(r.journal.events()) != 1 {
			t.Errorf("it left something: %+v, %v", s, r.journal.events())
		}
	})
}

// Until the controller has read its stored memory, it refuses commands, because they would overwrite the memory.
func TestCommandsBeforeTheLoopAreRefused(t *testing.T) {
	play(t, nil, func(r *rig) {
		if reply := r.ask(bus.Command{Name: bus.Pause}); reply.Error == "" || len(r.memory.values) > 0 {
			t.Errorf("%+v, memory %v", reply, r.memory.values)
		}
	})
}

func TestStatusAsACommand(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		var s Status
		if err := json.Unmarshal(r.ask(bus.Command{Name: bus.Status}).Body, &s); err != nil {
			t.Fatal(err)
		}
		if s.Service != "shop" || s.SLO != "mean <= 75ms" || len(s.Instances) != 2 || s.InstanceSeconds < 6 || s.InstanceSeconds > 7 {
			t.Errorf("%+v", s)
		}
		if s.Instances[0].Address != "10.0.0.1:80" || *s.Instances[0].Weight != .5 || s.Instances[0].LatencyMS != nil {
			t.Errorf("%+v", s.Instances[0])
		}
	})
}

func goldenModels(t *testing.T) *model.Models {
	t.Helper()
	m, err := modelfile.Load("../examples/golden/models.json")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func hasReason(p *quell.Plan, code string) bool {
	return slices.ContainsFunc(p.Reasons, func(r quell.Reason) bool { return r.Code == code })
}

func TestWithoutModelsWeightsAreEqual(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Policy.Name = "prima" }, func(r *rig) {
		r.run(3 * time.Second)
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
		s, plans := r.c.Status(), r.journal.plans()
		if s.Policy != "prima" || !strings.HasPrefix(s.Models, "no models yet: ") || !hasReason(plans[len(plans)-1].Plan, "no_models") {
			t.Errorf("status %+v, plan %+v", s, plans[len(plans)-1].Plan)
		}
		if err := r.c.Reload(r.opts.Service, goldenModels(t), false); err != nil {
			t.Fatal(err)
		}
		if s := r.c.Status(); s.Models != "in use" {
			t.Errorf("models %q right after they came", s.Models)
		}
		r.pass(2 * time.Second)
		plans = r.journal.plans()
		last := plans[len(plans)-1].Plan
		if last.Policy != "prima" || hasReason(last, "no_models") {
			t.Errorf("plan %+v", last)
		}
	})
}

func TestABadReloadKeepsWhatRuns(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		for name, change := range map[string]func(*quell.Service){
			"an unknown policy": func(s *quell.Service) { s.Policy.Name = "magic" },
			"another service":   func(s *quell.Service) { s.Name = "other" },
		} {
			bad := r.opts.Service
			bad.Group.Max = 1
			change(&bad)
			var mistake *quell.UserError
			if err := r.c.Reload(bad, nil, false); !errors.As(err, &mistake) {
				t.Errorf("%s: %v, want a mistake of the user", name, err)
			}
		}
		r.untouched(func() { r.pass(5 * time.Second) })
		if s := r.c.Status(); s.Policy != "static" || s.Service != "shop" {
			t.Errorf("status %+v", s)
		}
	})
}

func TestAReloadChangesThePeriod(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		faster := r.opts.Service
		faster.Sampling = 100 * time.Millisecond
		if err := r.c.Reload(faster, nil, false); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Second)
		before := len(r.journal.plans())
		r.pass(2 * time.Second)
		if n := len(r.journal.plans()) - before; n < 19 || n > 21 {
			t.Errorf("%d plans in 2 s", n)
		}
	})
}

// A share that a plan has set is shown as the present one, beside the change; in advise mode the share of before stays.
func TestASharesChangeIsShownAtOnce(t *testing.T) {
	for mode, want := range map[quell.Mode]float64{quell.Act: .7, quell.Advise: .5} {
		play(t, nil, func(r *rig) {
			r.run(2 * time.Second)
			r.do(bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.7)})
			next := r.opts.Service
			next.Mode = mode
			if err := r.c.Reload(next, nil, false); err != nil {
				t.Fatal(err)
			}
			r.pass(time.Second)
			if now := *r.c.Status().Instances[0].Now; now != want {
				t.Errorf("mode %s: now %g, want %g", mode, now, want)
			}
		})
	}
}

func TestChangesAreTold(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.scaler.set(func(s *fakeScaler) { s.add() })
		r.run(1500 * time.Millisecond)
		s := r.c.Status()
		if !slices.Equal(s.Changes, []string{"add i2"}) || s.Decisions != 1 {
			t.Errorf("changes %q", s.Changes)
		}
		r.pass(time.Second)
		s = r.c.Status()
		if !slices.Equal(s.Changes, []string{"weights i1=0.500 i2=0.500"}) || s.Decisions != 2 {
			t.Errorf("changes %q", s.Changes)
		}
		told := s.ChangedAt
		r.pass(5 * time.Second)
		if s = r.c.Status(); !s.ChangedAt.Equal(told) || !s.At.After(told) || s.Decisions != 2 {
			t.Errorf("changes %q at %v, last decision at %v", s.Changes, s.ChangedAt, s.At)
		}
	})
}

// If a reload changes the policy, the shares move to the new policy's shares by steps, even if the new policy alone would keep the present
// ones.
func TestAReloadHandsSharesOverBySteps(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Policy.Name = "lr" }, func(r *rig) {
		r.run(time.Second)
		r.do(bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.9)})
		r.pass(time.Second)
		r.wantWeights(map[string]float64{"i1": .9, "i2": .1})
		r.c.work.Lock() // as if the policy lr had wanted these shares
		r.c.mem.State.Instances = map[string]*policy.InstanceState{"i1": {Guarded: policy.Guarded{Joined: true}},
			"i2": {Guarded: policy.Guarded{Joined: true}}}
		r.c.work.Unlock()
		r.do(bus.Command{Name: bus.Clear, Instance: "i1"})
		next := r.opts.Service
		next.Policy.Name = "lsf"
		if err := r.c.Reload(next, nil, false); err != nil {
			t.Fatal(err)
		}
		for _, want := range []float64{.65, .5, .5} {
			r.pass(time.Second)
			r.wantWeights(map[string]float64{"i1": want, "i2": 1 - want})
		}
		r.untouched(func() { r.pass(3 * time.Second) })
	})
}

// Models that are learned in place: until readings teach something the weights are equal, and what was learned and how far the policy may
// go survive a restart. A person can set the latter.
func TestLearnsInPlace(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Policy.Name, r.opts.Learn = "prima", true }, func(r *rig) {
		r.run(3 * time.Second)
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
		s, plans := r.c.Status(), r.journal.plans()
		if last := plans[len(plans)-1].Plan; s.Models != "learned in place" || !hasReason(last, "learning") {
			t.Errorf("models %q, plan %+v", s.Models, last)
		}
		r.do(bus.Command{Name: bus.Authority, Level: quell.AuthorityStep, By: "ann"})
		r.restart()
		r.run(3 * time.Second)
		if s := r.c.Status(); s.Authority != quell.AuthorityStep {
			t.Errorf("authority %q after a restart", s.Authority)
		}
		r.do(bus.Command{Name: bus.Authority, By: "ann"})
		r.pass(3 * time.Second)
		if s := r.c.Status(); s.Authority != quell.AuthorityAdvise {
			t.Errorf("authority %q when nobody sets it any more", s.Authority)
		}
		if reply := r.ask(bus.Command{Name: bus.Authority, Level: "much"}); reply.Error == "" {
			t.Error("an unknown authority is accepted")
		}
		known := r.c.mem.State.Learned.Periods
		r.do(bus.Command{Name: bus.Forget, By: "ann"})
		r.pass(time.Second)
		if now := r.c.mem.State.Learned; now == nil || now.Periods >= known {
			t.Errorf("after %d periods everything was forgotten, and now it has learned from %+v", known, now)
		}
	})
}
