package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

// Agents put back what they changed. One that does not hear it is told again, and the release survives a kill meanwhile. Nothing is set
// again until an operator resumes.
func TestReleaseReachesAgents(t *testing.T) {
	agents := &fakeAgents{values: map[string]float64{}, fault: map[string]error{}}
	play(t, func(r *rig) { r.opts.Agents = agents }, func(r *rig) {
		r.step()
		r.step()
		for _, id := range []string{"i1", "i2"} {
			r.report(id, map[string]float64{"apache.MaxRequestWorkers": 120})
		}
		r.step()
		for _, id := range []string{"i1", "i2"} {
			agents.values[id+" apache.MaxRequestWorkers"] = 120
		}
		agents.fault["i2"] = errors.New("it is away")
		reply := r.ask(bus.Command{Name: bus.Release, By: "anna"})
		if reply.Error != "" || !strings.Contains(string(reply.Body), "it is away") {
			t.Fatalf("the reply is %s %s", reply.Error, reply.Body)
		}
		want := map[string]float64{"i2 apache.MaxRequestWorkers": 120}
		if !maps.Equal(agents.values, want) {
			t.Errorf("in force: %v", agents.values)
		}
		r.untouched(func() { r.step(); r.step() })
		r.restart()
		agents.fault = nil
		for range 3 {
			for _, id := range []string{"i1", "i2"} {
				r.report(id, map[string]float64{"apache.MaxRequestWorkers": 120})
			}
			r.untouched(r.step)
		}
		if left := r.c.Status().Released; left == nil || len(left.Left) > 0 || len(agents.values) > 0 {
			t.Errorf("left: %+v, in force: %v", left, agents.values)
		}
		r.do(bus.Command{Name: bus.Resume, By: "anna"})
		if r.c.Status().Released != nil || r.c.Status().Paused {
			t.Errorf("after resume: %+v", r.c.Status())
		}
	})
}

// A release puts instances back that were taken out of rotation, also where the balancer restores nothing by itself, and once it can be
// reached.
func TestReleasePutsInstancesBack(t *testing.T) {
	for _, forS := range []float64{0, 60} {
		play(t, nil, func(r *rig) {
			r.step()
			r.step()
			r.do(bus.Command{Name: bus.Drain, Instance: "i2", ForS: forS})
			r.wantDraining("i2")
			r.balancer.refuse.set(errBroken)
			r.do(bus.Command{Name: bus.Release})
			r.wantDraining("i2")
			r.balancer.refuse.set(nil)
			r.step()
			r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
			if b, _ := r.balancer.backend("i2"); b.Draining || b.Held {
				t.Errorf("%+v", b)
			}
			if left := r.c.Status().Released; left == nil || len(left.Left) > 0 {
				t.Errorf("left: %+v", left)
			}
			r.untouched(r.step)
		})
	}
}

// restoring is a balancer that knows what it had before Quell.
type restoring struct{ *fakeBalancer }

func (b restoring) Restore(context.Context) (unknown []string, err error) {
	b.set(func(b *fakeBalancer) {
		b.backends = slices.Clone(b.backends)
		for i := range b.backends {
			b.backends[i].Draining = false
		}
	})
	return nil, nil
}

// What a plan removed and what was being replaced before a release is in rotation after it, and is not stopped when an operator resumes.
func TestReleaseVoidsWhatWasPlanned(t *testing.T) {
	for name, change := range map[string]func(*rig){
		"a balancer that restores":       func(r *rig) { r.opts.Balancer = restoring{r.balancer} },
		"one that knows nothing earlier": func(*rig) {},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(r *rig) { three(r); change(r) }, func(r *rig) {
				r.step()
				r.step()
				r.scaler.set(func(s *fakeScaler) { s.slow = true })
				r.do(bus.Command{Name: bus.Replace, Instance: "i1"})
				r.balancer.set(func(b *fakeBalancer) { b.inFlight["i2"] = 1 })
				r.c.mem.Draining["i2"] = time.Now() // as after a plan
				r.step()
				r.wantDraining("i2")
				r.do(bus.Command{Name: bus.Release})
				if b, _ := r.balancer.backend("i2"); b.Draining {
					t.Errorf("after the release the balancer has %+v", b)
				}
				r.run(time.Minute)
				for _, id := range r.scaler.ids() {
					r.scaler.state(id, quell.Ready)
				}
				r.do(bus.Command{Name: bus.Resume})
				r.pass(3 * time.Second)
				if ended := r.scaler.ended(); len(ended) > 0 || len(r.c.Status().Pending) > 0 {
					t.Errorf("stopped %v, and pending is %v", ended, r.c.Status().Pending)
				}
				for _, id := range []string{"i1", "i2", "i3"} {
					if b, _ := r.balancer.backend(id); b.Draining || b.Weight == 0 {
						t.Errorf("the balancer has %+v", b)
					}
				}
			})
		})
	}
}

// What the scaler is ending already is not put back.
func TestReleaseLeavesWhatEnds(t *testing.T) {
	play(t, three, func(r *rig) {
		r.step()
		r.step()
		r.scaler.set(func(s *fakeScaler) { s.stopTake = time.Minute })
		r.c.mem.Draining["i2"] = time.Now()
		r.step() // it drains, and is empty
		r.c.tend(context.Background())
		r.do(bus.Command{Name: bus.Release})
		if _, drains := r.c.mem.Draining["i2"]; !drains {
			t.Error("the memory has forgotten that it leaves")
		}
		r.run(2 * time.Minute)
		r.wantIDs("i1", "i3", "i4")
	})
}

// A release is written down and carried out at once: no decision comes in between, which would put the shares of before in force after the
// balancer has been given back.
func TestReleaseIsOneStep(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.step()
		r.step()
		r.do(bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.7), ForS: 60})
		r.step()
		show := r.c.publish
		r.c.core.publish = func() { // the lock is about to be given up
			if r.c.mem.Released != nil {
				r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
			}
			show()
		}
		r.do(bus.Command{Name: bus.Release})
	})
}

// offline is a release that was carried out while no controller ran.
type offline struct {
	at    time.Time
	fault error // of Taken
	taken int   // how often Taken was called
}

func (o *offline) Released() (*Released, error) {
	if o.taken > 0 && o.fault == nil {
		return nil, nil
	}
	return &Released{By: "bob", At: o.at}, nil
}

func (o *offline) Taken() error {
	o.taken++
	return o.fault
}

// A release that was carried out while no controller ran is taken over once, also if it cannot be forgotten, or not at first. It is kept
// until the memory is stored.
func TestAReleaseIsTakenOverOnce(t *testing.T) {
	for name, fault := range map[string]error{"it can be forgotten": nil, "it cannot": errBroken} {
		t.Run(name, func(t *testing.T) {
			told := &offline{fault: fault}
			play(t, func(r *rig) {
				told.at = time.Now().Add(-time.Minute)
				r.opts.Earlier = told
				r.memory.later = 2
			}, func(r *rig) {
				r.scaler.set(func(s *fakeScaler) { s.add(); s.add() })
				r.step()
				if left := r.c.Status().Released; left == nil || left.By != "bob" {
					t.Fatalf("released: %+v", left)
				}
				r.run(3 * time.Second)
				r.do(bus.Command{Name: bus.Resume})
				r.pass(2 * time.Second)
				r.do(bus.Command{Name: bus.Drain, Instance: "i1"})
				if told.taken == 0 {
					t.Error("it was never forgotten")
				}
				r.restart()
				r.run(3 * time.Second)
				if left := r.c.Status().Released; left != nil {
					t.Errorf("released again: %+v", left)
				}
				if b, _ := r.balancer.backend("i1"); !b.Held {
					t.Errorf("i1 is put back: %+v", b)
				}
				r.restart()
				told.at, told.taken = time.Now(), 0 // another release
				r.run(3 * time.Second)
				if r.c.Status().Released == nil {
					t.Error("another release is not taken over")
				}
			})
		})
	}
}

// An instance that is put back while nothing is decided gets as many requests as the others do.
func TestAnInstanceThatComesBackInAPauseGetsAnEqualShare(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Group.Initial = 3 }, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Drain, Instance: "i2"})
		r.pass(2 * time.Second)
		r.wantWeights(map[string]float64{"i1": .5, "i2": 0, "i3": .5})
		r.do(bus.Command{Name: bus.Pause})
		r.do(bus.Command{Name: bus.Undrain, Instance: "i2"})
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5, "i3": .5})
		r.untouched(func() { r.pass(3 * time.Second) })
	})
}
