package controller

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/life"
)

const patience = 20 * time.Second // in synthetic time

func TestAGroupBeginsAndSettles(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Group.Initial = 3 }, func(r *rig) {
		r.run(3 * time.Second)
		r.wantIDs("i1", "i2", "i3")
		r.wantWeights(map[string]float64{"i1": 1. / 3, "i2": 1. / 3, "i3": 1. / 3})
		if !slices.Equal(r.scaler.starts, []int{3}) {
			t.Errorf("started %v, want 3 at once", r.scaler.starts)
		}
		r.untouched(func() { r.pass(patience) })
		if n := len(r.journal.plans()); n < 20 {
			t.Errorf("%d plans in the journal: they are made and written down though nothing changes", n)
		}
	})
}

func TestTheFirstInstancesAreTriedAgain(t *testing.T) {
	play(t, func(r *rig) {
		r.opts.Service.Group.Initial = 3
		r.scaler.fault.err = errBroken
	}, func(r *rig) {
		r.run(3 * time.Second)
		r.scaler.fault.set(nil)
		r.pass(3 * time.Second)
		r.wantIDs("i1", "i2", "i3")
	})
}

func TestAStepWithoutInstancesAsksForTheLeast(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.step()
		r.wantIDs("i1", "i2")
		if s := r.journal.newest(); len(s.Instances) != 0 {
			t.Errorf("the snapshot holds %v", s.Instances)
		}
		if s := r.c.Status(); s.At.IsZero() || s.Decisions != 1 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestAReadyInstanceIsShownBeforeItGetsTraffic(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.scaler.set(func(s *fakeScaler) { s.slow = true; s.add() })
		r.untouched(func() { r.pass(2 * time.Second) })
		r.balancer.set(func(b *fakeBalancer) { b.sick["i3"] = true })
		r.scaler.state("i3", quell.Ready)
		r.pass(2 * time.Second)
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5, "i3": 0})
		r.balancer.set(func(b *fakeBalancer) { b.sick["i3"] = false })
		r.pass(2 * time.Second)
		r.wantWeights(map[string]float64{"i1": 1. / 3, "i2": 1. / 3, "i3": 1. / 3})
	})
}

// Both instances get a share before their first health check, because no instance is ready. The instance whose check comes late is not
// counted as missing.
func TestAnInstanceThatIsCheckedLateIsNotReplaced(t *testing.T) {
	play(t, func(r *rig) {
		r.scaler.slow = true
		r.balancer.sick["i2"] = true
	}, func(r *rig) {
		r.run(400 * time.Millisecond)
		r.scaler.state("i1", quell.Ready)
		r.scaler.state("i2", quell.Ready)
		r.pass(3 * time.Second)
		r.wantIDs("i1", "i2")
		r.balancer.set(func(b *fakeBalancer) { b.sick["i2"] = false })
		r.pass(2 * time.Second)
		r.wantIDs("i1", "i2")
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
	})
}

// shrunk has three instances. The youngest, i3, is to be removed and has two open requests.
func shrunk(t *testing.T, body func(*rig)) {
	play(t, func(r *rig) { r.opts.Service.Group.Initial = 3 }, func(r *rig) {
		r.run(3 * time.Second)
		r.balancer.set(func(b *fakeBalancer) { b.inFlight["i3"] = 2 })
		r.scaler.set(func(s *fakeScaler) { s.members[2].Started = time.Now() })
		smaller := r.opts.Service
		smaller.Group.Initial, smaller.Group.Max = 0, 2
		if err := r.c.Reload(smaller, nil, false); err != nil {
			t.Fatal(err)
		}
		r.opts.Service = smaller
		r.pass(2 * time.Second)
		body(r)
	})
}

func (r *rig) wantDraining(id string) {
	r.t.Helper()
	if b, ok := r.balancer.backend(id); !ok || !b.Draining || b.Weight != 0 {
		r.t.Fatalf("%s: %+v, %v; it should drain", id, b, ok)
	}
	if ended := r.scaler.ended(); len(ended) > 0 {
		r.t.Fatalf("%v stopped, with requests open", ended)
	}
}

func TestDraining(t *testing.T) {
	shrunk(t, func(r *rig) {
		r.wantDraining("i3")
		r.pass(3 * time.Second)
		r.wantDraining("i3")
		if s := r.c.Status().Instances; len(s) != 3 || s[2].State != quell.Draining {
			t.Errorf("status %+v", s)
		}
		r.balancer.set(func(b *fakeBalancer) { b.inFlight["i3"] = 0 })
		r.pass(time.Second)
		r.wantIDs("i1", "i2")
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
		if ended := r.scaler.ended(); !slices.Equal(ended, []string{"i3"}) {
			t.Errorf("stopped %v", ended)
		}
	})
}

func TestDrainingWhatHasNoWeight(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Group.Initial = 3 }, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Override, Instance: "i3", Weight: at(0)})
		r.balancer.set(func(b *fakeBalancer) { b.inFlight["i3"] = 1 })
		r.scaler.set(func(s *fakeScaler) { s.members[2].Started = time.Now() })
		r.pass(2 * time.Second)
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5, "i3": 0})
		smaller := r.opts.Service
		smaller.Group.Initial, smaller.Group.Max = 0, 2
		if err := r.c.Reload(smaller, nil, false); err != nil {
			t.Fatal(err)
		}
		r.pass(2 * time.Second)
		r.wantDraining("i3")
	})
}

func TestDrainingEndsInTime(t *testing.T) {
	shrunk(t, func(r *rig) {
		r.pass(6 * time.Second)
		r.wantDraining("i3")
		r.pass(4 * time.Second)
		r.wantIDs("i1", "i2")
	})
}

func TestARestartGoesOnWithADrain(t *testing.T) {
	for name, forget := range map[string]bool{"from the memory": false, "from the balancer, with the memory lost": true} {
		t.Run(name, func(t *testing.T) {
			shrunk(t, func(r *rig) {
				r.opts.Service.Group.Max = 5 // no other reason to drain it again
				r.kill()
				if forget {
					r.memory.values = map[string][]byte{}
				}
				r.restart()
				r.run(3 * time.Second)
				r.wantDraining("i3")
				r.balancer.set(func(b *fakeBalancer) { b.inFlight["i3"] = 0 })
				r.pass(time.Second)
				r.wantIDs("i1", "i2")
			})
		})
	}
}

func TestARestartEndsWhatHadDrained(t *testing.T) {
	shrunk(t, func(r *rig) {
		r.scaler.stop.set(errBroken)
		r.balancer.set(func(b *fakeBalancer) { b.inFlight["i3"] = 0 })
		r.pass(3 * time.Second)
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
		r.scaler.stop.set(nil)
		r.restart()
		r.run(time.Second)
		r.wantIDs("i1", "i2")
	})
}

func TestAnInstanceThatCannotBeStoppedIsTriedAgain(t *testing.T) {
	shrunk(t, func(r *rig) {
		r.scaler.stop.set(errBroken)
		r.balancer.set(func(b *fakeBalancer) { b.inFlight["i3"] = 0 })
		r.pass(3 * time.Second)
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
		if s := r.c.Status(); s.Failures["apply"] == 0 || s.LastFailure["apply"] != "stopping i3: it is broken" {
			t.Errorf("failures %v", s.LastFailure)
		}
		r.scaler.stop.set(nil)
		r.pass(time.Second)
		r.wantIDs("i1", "i2")
	})
}

func TestASlowEndHoldsNothingUp(t *testing.T) {
	shrunk(t, func(r *rig) {
		r.scaler.set(func(s *fakeScaler) { s.stopTake = 30 * time.Second })
		r.balancer.set(func(b *fakeBalancer) { b.inFlight["i3"] = 0 })
		r.pass(time.Second)
		before := len(r.journal.plans())
		r.pass(20 * time.Second)
		if n := len(r.journal.plans()) - before; n < 19 {
			t.Errorf("%d decisions in 20 s", n)
		}
		if ended := r.scaler.ended(); !slices.Equal(ended, []string{"i3"}) {
			t.Errorf("stopped %v, want i3 once", ended)
		}
		r.wantIDs("i1", "i2", "i3")
		r.pass(15 * time.Second)
		r.wantIDs("i1", "i2")
	})
}

func TestAStoppedInstanceThatIsStillListedGetsNothing(t *testing.T) {
	shrunk(t, func(r *rig) {
		r.scaler.set(func(s *fakeScaler) { s.stays = true })
		r.balancer.set(func(b *fakeBalancer) { b.inFlight["i3"] = 0 })
		r.pass(patience)
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
		if ended := r.scaler.ended(); !slices.Equal(ended, []string{"i3"}) {
			t.Errorf("stopped %v, want i3 once", ended)
		}
		if s := r.journal.newest().Instances[2]; s.State != quell.Draining {
			t.Errorf("%s is %s in the snapshot", s.ID, s.State)
		}
		r.pass(life.EndWait - patience + 2*time.Second)
		if s := r.journal.newest().Instances[2]; !s.Stuck || !slices.Equal(r.scaler.ended(), []string{"i3", "i3"}) {
			t.Errorf("still listed after %v: stuck %v, stopped %v", life.EndWait, s.Stuck, r.scaler.ended())
		}
		const told = "i3 was stopped 5m0s ago, and the scaler still lists it: stopping it again"
		if text := r.c.Status().LastFailure["apply"]; text != told {
			t.Errorf("the status says %q", text)
		}
	})
}

func TestAnInstanceThatExitsIsReplaced(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.scaler.state("i2", quell.Failed)
		r.pass(6 * time.Second)
		r.wantIDs("i1", "i3")
		r.wantWeights(map[string]float64{"i1": .5, "i3": .5})
	})
}

// An unhealthy instance loses its weight with the first plan after its failure. It must count as failed even afterwards, when it has no
// weight.
func TestAnInstanceThatFailsItsHealthChecksIsReplaced(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.balancer.set(func(b *fakeBalancer) { b.sick["i2"] = true })
		r.pass(8 * time.Second)
		r.wantIDs("i1", "i3")
		r.wantWeights(map[string]float64{"i1": .5, "i3": .5})
	})
}

func TestOneMissedHealthCheckReplacesNothing(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.opts.Service.Group.Min = 1
		r.restart()
		r.scaler.set(func(s *fakeScaler) { s.add(); s.add() })
		r.run(3 * time.Second)
		r.balancer.set(func(b *fakeBalancer) { b.sick["i2"] = true })
		r.pass(time.Second)
		r.wantWeights(map[string]float64{"i1": 1, "i2": 0})
		r.balancer.set(func(b *fakeBalancer) { b.sick["i2"] = false })
		r.pass(5 * time.Second)
		r.wantIDs("i1", "i2")
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
	})
}

func TestAnInstanceThatNeverPassesAHealthCheckIsGivenUp(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.balancer.sick["i2"] = true
		r.scaler.set(func(s *fakeScaler) { s.add() })
		r.run(3 * time.Second)
		r.wantIDs("i1", "i2")
		r.pass(r.opts.Service.Group.Startup - 5*time.Second)
		r.wantIDs("i1", "i2")
		r.pass(15 * time.Second)
		r.wantIDs("i1", "i3")
	})
}

func TestAFixedGroupIsNeverChanged(t *testing.T) {
	play(t, func(r *rig) {
		r.opts.Fixed = true
		r.scaler.add()
	}, func(r *rig) {
		r.run(patience)
		r.wantIDs("i1")
		r.wantWeights(map[string]float64{"i1": 1})
		if len(r.scaler.starts) > 0 {
			t.Errorf("started %v", r.scaler.starts)
		}
		last := r.journal.plans()[3]
		if last.Plan.Group == nil || last.Plan.Group.Add != 1 {
			t.Errorf("the advice to add one is missing: %+v", last.Plan)
		}
	})
	play(t, func(r *rig) { r.opts.Fixed = true }, func(r *rig) {
		r.untouched(func() { r.run(patience) })
	})
}

func TestMovedInstances(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.scaler.set(func(s *fakeScaler) { s.members[0].Address, s.members[1].Probe = "10.9.9.9:80", "10.9.9.9:81" })
		r.pass(time.Second)
		if b, _ := r.balancer.backend("i1"); b.Address != "10.9.9.9:80" || b.Weight != .5 {
			t.Errorf("%+v", b)
		}
		if b, _ := r.balancer.backend("i2"); b.Probe != "10.9.9.9:81" || b.Weight != .5 {
			t.Errorf("%+v", b)
		}
		if m := r.c.Members(); len(m) != 2 || m[1].Probe != "10.9.9.9:81" {
			t.Errorf("members %+v", m)
		}
		r.scaler.set(func(s *fakeScaler) { s.members[0].Address = "10.9.9.7:80" })
		r.pass(time.Second)
		if b, _ := r.balancer.backend("i1"); b.Address != "10.9.9.7:80" {
			t.Errorf("%+v", b)
		}
	})
}

// lopsided is a service with two instances and a policy that keeps the weights in force.
func lopsided(r *rig) {
	r.opts.Service.Policy.Name = "lr"
	r.scaler.add()
	r.scaler.add()
	r.balancer.backends = []quell.Backend{
		{ID: "i1", Address: "10.0.0.1:80", Weight: .8}, {ID: "i2", Address: "10.0.0.2:80", Weight: .2},
	}
}

func TestARestartChangesNothingByItself(t *testing.T) {
	play(t, lopsided, func(r *rig) {
		r.untouched(func() { r.run(patience) })
		r.restart()
		r.balancer.set(func(b *fakeBalancer) { b.backends[0].Weight, b.backends[1].Weight = .3, .7 })
		r.untouched(func() { r.run(patience) })
	})
}

func TestWeightsComeBack(t *testing.T) {
	want := map[string]float64{"i1": .8, "i2": .2}
	for name, damage := range map[string]func(*fakeBalancer){
		"after the balancer lost everything":     func(b *fakeBalancer) { b.backends = nil },
		"after somebody changed them":            func(b *fakeBalancer) { b.backends[0].Weight = .1 },
		"after somebody took an instance out":    func(b *fakeBalancer) { b.backends = b.backends[:1] },
		"after somebody added what is not known": func(b *fakeBalancer) { b.backends = append(b.backends, quell.Backend{ID: "x", Weight: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, lopsided, func(r *rig) {
				r.run(3*time.Second + 10*time.Millisecond)
				r.balancer.set(damage)
				r.pass(500 * time.Millisecond)
				r.wantWeights(want)
			})
		})
	}
	t.Run("after both restarted and the balancer lost everything", func(t *testing.T) {
		play(t, lopsided, func(r *rig) {
			r.run(3 * time.Second)
			r.restart()
			r.balancer.set(func(b *fakeBalancer) { b.backends = nil })
			r.run(500 * time.Millisecond)
			r.wantWeights(want)
		})
	})
}

func TestABalancerThatSendsNothingAnywhereGetsEqualWeights(t *testing.T) {
	play(t, lopsided, func(r *rig) {
		r.balancer.backends = nil
		r.run(0)
		if got := r.balancer.weights(); !maps.Equal(got, map[string]float64{"i1": .5, "i2": .5}) {
			t.Errorf("weights %v before the first decision", got)
		}
	})
}
