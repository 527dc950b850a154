package controller

import (
	"context"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/internal/wallclock"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
)

func (r *rig) overrideFor(id string, weight float64, d time.Duration) {
	r.t.Helper()
	r.do(bus.Command{Name: bus.Override, Instance: id, Weight: &weight, ForS: d.Seconds()})
}

var (
	evenTwo = map[string]float64{"i1": .5, "i2": .5}
	raised  = map[string]float64{"i1": .9, "i2": .1}
)

// An override for a time ends by itself, whatever happens meanwhile. Then the shares of before are put back at once.
func TestATemporaryOverrideEnds(t *testing.T) {
	for name, meanwhile := range map[string]func(r *rig){
		"nothing happens":            func(r *rig) { r.pass(4 * time.Second); r.wantWeights(raised); r.pass(4 * time.Second) },
		"the controller is killed":   func(r *rig) { r.restart(); r.run(4 * time.Second); r.wantWeights(raised); r.pass(4 * time.Second) },
		"killed until after its end": func(r *rig) { r.kill(); r.pass(time.Minute); r.restart(); r.run(time.Second) },
		"the clock is set back while no controller runs": func(r *rig) {
			r.kill()
			r.opts.Now = setBack(time.Hour)
			r.restart()
			r.run(4 * time.Second)
			r.wantWeights(raised)
			r.pass(5 * time.Second)
		},
		"a pause": func(r *rig) {
			r.do(bus.Command{Name: bus.Pause})
			r.pass(4 * time.Second)
			r.wantWeights(raised)
			r.pass(4 * time.Second)
		},
		"a pause, and the controller is killed": func(r *rig) {
			r.do(bus.Command{Name: bus.Pause})
			r.restart()
			r.run(8 * time.Second)
		},
		"the balancer cannot be reached at its end": func(r *rig) {
			r.balancer.refuse.set(errBroken)
			r.pass(9 * time.Second)
			r.wantWeights(raised)
			r.balancer.refuse.set(nil)
			r.pass(2 * time.Second)
		},
		"it is renewed": func(r *rig) {
			r.pass(2 * time.Second)
			r.overrideFor("i1", .95, 6*time.Second)
			r.pass(5 * time.Second)
			r.wantWeights(map[string]float64{"i1": .95, "i2": .05})
			r.pass(3 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(r *rig) {
				r.run(3 * time.Second)
				r.overrideFor("i1", .9, 6*time.Second)
				r.pass(time.Second)
				r.wantWeights(raised)
				if s := r.c.Status(); s.Overrides["i1"] != .9 || s.Temporary["i1"].By != "ann" || s.Temporary["i1"].LeftS > 6 {
					t.Errorf("the status shows %v, %+v", s.Overrides, s.Temporary)
				}
				meanwhile(r)
				r.wantWeights(evenTwo)
				if s := r.c.Status(); len(s.Overrides)+len(s.Temporary) > 0 {
					t.Errorf("after its end the status shows %v, %v", s.Overrides, s.Temporary)
				}
				r.wantEvent("weight of i1 no longer set", "the time that ann set is over")
				if mem := remembered(t, r.memory); len(mem.Temporary.Overrides) > 0 || mem.Temporary.GoBack {
					t.Errorf("the memory still has %+v", mem.Temporary)
				}
			})
		})
	}
}

// setBack is a clock that is behind.
func setBack(by time.Duration) func() time.Time {
	clock := wallclock.New()
	clock.Set(-by)
	return clock.Now
}

// Setting the clock of a running controller does not change when an override ends.
func TestATemporaryOverrideDoesNotFollowTheClock(t *testing.T) {
	for name, by := range map[string]time.Duration{"back": -time.Hour, "forward": time.Hour} {
		t.Run(name, func(t *testing.T) {
			var clock *wallclock.Clock
			play(t, func(r *rig) { clock = wallclock.New(); r.opts.Now = clock.Now }, func(r *rig) {
				r.run(3 * time.Second)
				r.overrideFor("i1", .9, 6*time.Second)
				r.pass(time.Second)
				clock.Set(by)
				r.pass(4 * time.Second)
				r.wantWeights(raised)
				r.pass(3 * time.Second)
				r.wantWeights(evenTwo)
			})
		})
	}
}

// Another controller takes over: it ends what the first one was told.
func TestAnotherControllerEndsATemporaryOverride(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.overrideFor("i1", .9, 6*time.Second)
		r.pass(time.Second)
		leads := true
		r.opts.Lead = func(context.Context) (bool, error) { return leads, nil }
		r.restart() // the second controller, with the lease of the first
		r.run(time.Second)
		r.wantWeights(raised)
		r.pass(6 * time.Second)
		r.wantWeights(evenTwo)
	})
}

// Clearing an override that has an end puts the shares of before back at once, and a lasting override below it is in force again.
func TestClearingATemporaryOverride(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Override, Instance: "i2", Weight: at(.6)})
		r.pass(time.Second)
		r.overrideFor("i1", .9, time.Minute)
		r.pass(2 * time.Second)
		r.do(bus.Command{Name: bus.Clear, Instance: "i1"})
		r.pass(500 * time.Millisecond)
		r.wantWeights(map[string]float64{"i1": .4, "i2": .6})
	})
}

// A release forgets what has an end, too.
func TestAReleaseForgetsTemporaryOverrides(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.overrideFor("i1", .9, 3*time.Second)
		r.pass(time.Second)
		r.do(bus.Command{Name: bus.Release})
		r.untouched(func() { r.pass(5 * time.Second) })
		if mem := remembered(t, r.memory); len(mem.Temporary.Overrides) > 0 {
			t.Errorf("the memory still has %+v", mem.Temporary)
		}
	})
}

// What somebody sets without an end while another share has one stays at that one's end, also in a pause; what is cleared is not put back.
func TestLastingOverridesOutliveTemporaryOnes(t *testing.T) {
	most := bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.8)}
	for name, c := range map[string]struct {
		before, meanwhile bus.Command
		want              map[string]float64
	}{
		"set":     {bus.Command{Name: bus.Status}, most, map[string]float64{"i1": .8, "i2": .2}},
		"cleared": {most, bus.Command{Name: bus.Clear, Instance: "i1"}, evenTwo},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(r *rig) {
				r.run(3 * time.Second)
				r.do(c.before)
				r.pass(2 * time.Second)
				r.overrideFor("i2", .05, 5*time.Second)
				r.pass(time.Second)
				r.do(c.meanwhile)
				r.pass(time.Second)
				r.do(bus.Command{Name: bus.Pause})
				r.pass(5 * time.Second)
				r.wantWeights(c.want)
			})
		})
	}
}

// A command that clears only what it set itself leaves what somebody else has set since then.
func TestClearingOnlyOnesOwn(t *testing.T) {
	own := bus.Command{Name: bus.Clear, Instance: "i1", Weight: at(.9)}
	for name, c := range map[string]struct {
		since bus.Command
		want  map[string]float64
	}{
		"an order without an end": {
			bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.1)}, map[string]float64{"i1": .1, "i2": .9}},
		"one with an end": {
			bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.2), ForS: 60}, map[string]float64{"i1": .2, "i2": .8}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(r *rig) {
				r.run(3 * time.Second)
				r.overrideFor("i1", .9, time.Minute)
				r.pass(time.Second)
				r.do(c.since)
				if reply := r.ask(own); !strings.Contains(reply.Error, "set anew since then") {
					t.Errorf("%+v", reply)
				}
				r.pass(2 * time.Second)
				r.wantWeights(c.want)
			})
		})
	}
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.overrideFor("i1", .9, time.Minute)
		r.pass(time.Second)
		r.do(own)
		r.pass(time.Second)
		r.wantWeights(evenTwo)
	})
}

// Where the balancer does not know what it had before Quell, a release puts back the shares of before those that were set for a time.
func TestAReleaseEndsTemporaryShares(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.overrideFor("i1", .9, time.Minute)
		r.pass(time.Second)
		r.wantWeights(raised)
		r.do(bus.Command{Name: bus.Release})
		r.wantWeights(evenTwo)
	})
}

func TestTemporaryCommandsThatAreRefused(t *testing.T) {
	override := func(s float64) bus.Command {
		return bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.5), ForS: s}
	}
	for name, c := range map[string]struct {
		before func(*rig)
		cmd    bus.Command
		want   string
	}{
		"in a pause": {func(r *rig) { r.do(bus.Command{Name: bus.Pause}) }, override(60), "nothing is changed now: paused by ann"},
		"a drain after a release": {func(r *rig) { r.do(bus.Command{Name: bus.Release}) },
			bus.Command{Name: bus.Drain, Instance: "i1", ForS: 60, Force: true}, "it was released"},
		"in advise mode": {func(r *rig) { r.c.opts.Service.Mode = quell.Advise }, override(60), "nothing is changed now: advise mode"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(r *rig) {
				r.run(3 * time.Second)
				c.before(r)
				if reply := r.ask(c.cmd); !strings.Contains(reply.Error, c.want) {
					t.Errorf("%+v, want %q", reply, c.want)
				}
				if s := r.c.Status(); len(s.Temporary) > 0 {
					t.Errorf("it left %v", s.Temporary)
				}
			})
		})
	}
}

// A hold with an end ends by itself, also over a kill and in a pause.
func TestATemporaryHoldEnds(t *testing.T) {
	for name, meanwhile := range map[string]func(*rig){
		"nothing happens":          func(*rig) {},
		"the controller is killed": func(r *rig) { r.restart(); r.run(time.Second) },
		"a pause":                  func(r *rig) { r.do(bus.Command{Name: bus.Pause}) },
		"the balancer fails":       func(r *rig) { r.balancer.refuse.set(errBroken) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, three, func(r *rig) {
				r.run(3 * time.Second)
				r.do(bus.Command{Name: bus.Drain, Instance: "i3", ForS: 5})
				r.pass(time.Second)
				if row := r.row("i3"); row.Held == nil || row.HeldUntil == nil {
					t.Errorf("the status shows %+v", row)
				}
				meanwhile(r)
				r.pass(6 * time.Second)
				r.balancer.refuse.set(nil)
				r.pass(2 * time.Second)
				if row := r.row("i3"); row.Held != nil || row.HeldUntil != nil {
					t.Errorf("after its end the status shows %+v", row)
				}
				if b, _ := r.balancer.backend("i3"); b.Held || b.Draining || b.Weight == 0 {
					t.Errorf("the balancer has %+v", b)
				}
				r.wantEvent("i3 put back: the time for which ann took it out is over")
			})
		})
	}
}

// An undrain ends the time, too: a later drain without an end stays.
func TestUndrainEndsTheTime(t *testing.T) {
	play(t, three, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Drain, Instance: "i3", ForS: 5})
		r.do(bus.Command{Name: bus.Undrain, Instance: "i3"})
		r.do(bus.Command{Name: bus.Drain, Instance: "i3"})
		r.pass(8 * time.Second)
		if row := r.row("i3"); row.Held == nil || row.HeldUntil != nil {
			t.Errorf("the status shows %+v", row)
		}
	})
}

// A drain without an end stays, also if the instance had been gone after one with an end.
func TestADrainOutlivesAnEarlierTime(t *testing.T) {
	play(t, three, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Drain, Instance: "i3", ForS: 5})
		r.c.mem.Held = map[string]quell.Held{} // as after the instance was gone
		r.do(bus.Command{Name: bus.Drain, Instance: "i3"})
		r.pass(8 * time.Second)
		if row := r.row("i3"); row.Held == nil || row.HeldUntil != nil {
			t.Errorf("the status shows %+v", row)
		}
	})
}

// An authority with an end ends by itself, also over a restart. What the policy had earned is there again.
func TestATemporaryAuthorityEnds(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Policy.Name, r.opts.Learn = "prima", true }, func(r *rig) {
		r.run(3 * time.Second)
		before := r.c.Status().Authority
		r.do(bus.Command{Name: bus.Authority, Level: quell.AuthorityStep, ForS: 6})
		r.pass(time.Second)
		r.restart()
		r.run(2 * time.Second)
		s := r.c.Status()
		if s.Authority != quell.AuthorityStep || s.AuthorityFor == nil || before == quell.AuthorityStep {
			t.Errorf("authority %q (%+v), before %q", s.Authority, s.AuthorityFor, before)
		}
		r.pass(5 * time.Second)
		if s = r.c.Status(); s.Authority != before || s.AuthorityFor != nil {
			t.Errorf("after its end the authority is %q (%+v), before it was %q", s.Authority, s.AuthorityFor, before)
		}
		r.wantEvent("authority no longer set to step")
	})
}

// A change is not watched under another authority, and what was taken back before and meanwhile counts.
func TestATemporaryAuthorityEndsTheWatching(t *testing.T) {
	m := memory{State: policy.State{Trust: policy.Trust{Harms: 2, Change: &policy.Change{}, Undone: &policy.Undone{}}}}
	m.authorizeFor(time.Unix(0, 0), bus.Command{Level: quell.Full, By: "anna", ForS: 60})
	if m.State.Trust.Change != nil || m.State.Trust.Undone != nil {
		t.Errorf("an earlier change is still watched: %+v", m.State.Trust)
	}
	_, after := m.lent(m.State, func(s policy.State) (quell.Plan, policy.State) {
		s.Trust = policy.Trust{Harms: 1}
		return quell.Plan{}, s
	})
	if after.Trust.Harms != 3 || m.Temporary.Authority != nil {
		t.Errorf("after a change was taken back: %+v", after.Trust)
	}
}

// What resets a policy's authority resets what it has earned, too, while a person has set another authority for a time.
func TestATemporaryAuthorityEarnsNothingForAnotherPolicy(t *testing.T) {
	earned := policy.Trust{Level: quell.Full, Good: 3}
	engine := func(name string, learns bool) *policy.Engine {
		service := testService()
		service.Policy.Name = name
		compile := table.All.NewEngine
		if learns {
			compile = table.All.NewLearningEngine
		}
		e, err := compile(service, nil)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for name, tc := range map[string]struct {
		engine *policy.Engine
		before string // the policy that decided before
		byHand string
		want   policy.Trust
	}{
		"the same policy":                   {engine("static", false), "static", "", earned},
		"another policy":                    {engine("static", false), "lsf", "", policy.Trust{}},
		"another policy, and a lasting one": {engine("static", false), "lsf", "ben", policy.Trust{Level: quell.Full, ByHand: "ben"}},
		"its models lack something":         {engine("prima", true), "prima", "", policy.Trust{Level: quell.AuthorityAdvise}},
	} {
		own := earned
		own.ByHand = tc.byHand
		m := memory{State: policy.State{Policy: tc.before, Trust: own}}
		m.authorizeFor(time.Unix(0, 0), bus.Command{Level: quell.AuthorityStep, By: "ann", ForS: 60})
		_, after := m.lent(m.State, func(s policy.State) (quell.Plan, policy.State) {
			return tc.engine.Decide(&quell.Snapshot{At: time.Unix(1, 0)}, s)
		})
		got := after.Trust
		if got.Measure = nil; !reflect.DeepEqual(got, tc.want) || after.Earned != nil {
			t.Errorf("%s: afterwards it has %+v, want %+v", name, got, tc.want)
		}
		if lent := m.Temporary.Authority.Trust; lent.Level != quell.AuthorityStep || lent.ByHand != "ann" {
			t.Errorf("%s: for a time it has %+v", name, lent)
		}
	}
}

func TestTerms(t *testing.T) {
	stored := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		at   time.Duration // after it was stored, by the wall clock
		want time.Duration
	}{
		"at once":                   {0, time.Minute},
		"later":                     {20 * time.Second, 40 * time.Second},
		"after its end":             {time.Hour, 0},
		"the clock was set back":    {-time.Hour, time.Minute},
		"the clock was set forward": {24 * time.Hour, 0},
	} {
		now := stored.Add(c.at)
		if left := newTerm(stored, time.Minute).resumed(now).left(now); left != c.want {
			t.Errorf("%s: %v left, want %v", name, left, c.want)
		}
	}
	for _, absurd := range []float64{math.Inf(-1), -1e300, 0} {
		if left := (Term{Until: stored.Add(time.Hour), LeftS: absurd}).resumed(stored).left(stored); left != 0 {
			t.Errorf("%g s were left in the memory: %v left", absurd, left)
		}
	}
}

// Another drain of an instance renews the end of a hold, or takes it away. A hold without an end gets none by the way.
func TestADrainRenewsAHold(t *testing.T) {
	play(t, three, func(r *rig) {
		r.run(3 * time.Second)
		drain := func(s float64) bus.Command { return bus.Command{Name: bus.Drain, Instance: "i3", ForS: s} }
		r.do(drain(5))
		r.pass(3 * time.Second)
		r.do(drain(20))
		r.pass(6 * time.Second)
		if row := r.row("i3"); row.Held == nil || row.HeldUntil == nil {
			t.Errorf("after the first end: %+v", row)
		}
		r.do(drain(0))
		r.pass(20 * time.Second)
		if row := r.row("i3"); row.Held == nil || row.HeldUntil != nil {
			t.Errorf("without an end: %+v", row)
		}
		if reply := r.ask(drain(5)); !strings.Contains(reply.Error, "without an end: quell undrain puts it back") {
			t.Errorf("%+v", reply)
		}
	})
}
