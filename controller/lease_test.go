package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/life"
)

// lead is a lease that the test grants and revokes.
type lead struct {
	mu   sync.Mutex
	held bool
	err  error
}

func (l *lead) ask(context.Context) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held, l.err
}

func (l *lead) set(held bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.err = held, err
}

func TestWithoutTheLeaseNothingIsDone(t *testing.T) {
	l := &lead{held: true}
	play(t, func(r *rig) { r.opts.Lead = l.ask }, func(r *rig) {
		r.run(3 * time.Second)
		l.set(false, errors.New("held by another"))
		plans := len(r.journal.plans())
		r.untouched(func() {
			r.scaler.set(func(s *fakeScaler) { s.add() })
			r.scaler.state("i1", quell.Failed)
			r.pass(10 * time.Second)
		})
		s := r.c.Status()
		if s.Leading || s.LastFailure["lease"] != "held by another" {
			t.Errorf("status %+v", s)
		}
		if n := len(r.journal.plans()); n != plans {
			t.Errorf("%d plans were written by a controller that stands by", n-plans)
		}
		l.set(true, nil)
		r.pass(5 * time.Second)
		r.wantIDs("i2", "i3")
		r.wantWeights(map[string]float64{"i2": .5, "i3": .5})
	})
}

// The lease is also checked between periods: a controller that lost it stops before the next decision.
func TestALostLeaseIsNoticedBetweenPeriods(t *testing.T) {
	l := &lead{held: true}
	play(t, func(r *rig) {
		r.opts.Lead = l.ask
		r.opts.Service.Sampling = time.Minute
	}, func(r *rig) {
		r.run(5 * time.Second)
		l.set(false, nil)
		r.pass(600 * time.Millisecond)
		r.untouched(func() {
			r.scaler.set(func(s *fakeScaler) { s.add() })
			r.pass(10 * time.Second)
		})
		if r.c.Status().Leading {
			t.Error("it still says that it leads")
		}
	})
}

func TestALeaseThatCannotBeRenewedIsKeptWhileItLasts(t *testing.T) {
	l := &lead{held: true}
	play(t, func(r *rig) { r.opts.Lead = l.ask }, func(r *rig) {
		r.run(3 * time.Second)
		l.set(true, errBroken)
		r.scaler.set(func(s *fakeScaler) { s.add() })
		r.pass(3 * time.Second)
		r.wantWeights(map[string]float64{"i1": 1. / 3, "i2": 1. / 3, "i3": 1. / 3})
		if s := r.c.Status(); !s.Leading || s.Failures["lease"] == 0 {
			t.Errorf("status %+v", s)
		}
	})
}

// A process that was frozen for longer than its lease may get a command before its loop runs again. It refuses it: what it remembers is
// old.
func TestACommandAsksForTheLease(t *testing.T) {
	l := &lead{held: true}
	play(t, func(r *rig) { r.opts.Lead, r.opts.Agents = l.ask, r.agents }, func(r *rig) {
		r.step()
		r.step()
		for _, cmd := range []bus.Command{
			{Name: bus.Drain, Instance: "i1"}, {Name: bus.Pause}, {Name: bus.Release}, {Name: bus.Train, Instance: "i1", ForS: 60},
		} {
			l.set(true, nil)
			r.step()
			stored, events := r.memory.values[memoryKey], len(r.journal.events())
			l.set(false, nil)
			r.untouched(func() {
				if reply := r.ask(cmd); !strings.Contains(reply.Error, "does not hold the lease") {
					t.Errorf("%s: %+v", cmd.Name, reply)
				}
			})
			if !slices.Equal(stored, r.memory.values[memoryKey]) || len(r.journal.events()) > events {
				t.Errorf("%s: something was written down", cmd.Name)
			}
		}
		if trained := r.trainings(); len(trained) > 0 {
			t.Errorf("an agent was asked to train: %+v", trained)
		}
		l.set(true, nil)
		r.step()
		reply := r.c.enforced(context.Background(), bus.Command{Name: bus.Undrain}, bus.Reply{})
		if reply.Error != "" {
			t.Errorf("while it leads: %+v", reply)
		}
		l.set(false, nil)
		r.balancer.set(func(b *fakeBalancer) { b.backends[0].Weight = .9 })
		r.untouched(func() { reply = r.c.enforced(context.Background(), bus.Command{Name: bus.Undrain}, bus.Reply{}) })
		if !strings.Contains(reply.Error, "this is written down") {
			t.Errorf("the lease was lost in between: %+v", reply)
		}
	})
}

// A controller that takes over continues from the memory that the previous leader stored, not from the memory that it read at its own
// start.
func TestTakingOver(t *testing.T) {
	l := &lead{held: false, err: fmt.Errorf("%w: held by another", ErrStandby)}
	play(t, func(r *rig) { r.opts.Lead = l.ask }, func(r *rig) {
		r.scaler.set(func(s *fakeScaler) { s.add(); s.add() })
		r.untouched(func() { r.run(5 * time.Second) })
		began := time.Now()
		if reply := r.ask(bus.Command{Name: bus.Pause}); !strings.Contains(reply.Error, "another one leads") || !reply.Standby {
			t.Errorf("a pause: %+v", reply)
		}
		if s := r.c.Status(); s.Failures["lease"] > 0 || !s.Standby {
			t.Errorf("standing by is no failure: %+v", s)
		}
		if waited := time.Since(began); waited < standbyPause {
			t.Errorf("answered after %v: before the leader might", waited)
		}

		leader := nextLeader(t, r)
		if reply := leader.Command(context.Background(), bus.Command{Name: bus.Pause, By: "bob"}); reply.Error != "" {
			t.Fatal(reply.Error)
		}
		l.set(true, nil)
		r.untouched(func() { r.pass(5 * time.Second) })
		if s := r.c.Status(); !s.Leading || !s.Paused || s.PausedBy != "bob" {
			t.Errorf("status %+v", s)
		}
	})
}

// nextLeader starts a controller that needs no lease, with the memory of the rig's, and lets it take its first step.
func nextLeader(t *testing.T, r *rig) *Controller {
	t.Helper()
	opts := r.opts
	opts.Lead = nil
	leader, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	leader.Step(context.Background())
	return leader
}

// A controller that leads again does not take an instance whose id is used again for the one that it stopped when it led before.
func TestLeadingAgain(t *testing.T) {
	l := &lead{held: true}
	play(t, func(r *rig) { three(r); r.opts.Lead = l.ask }, func(r *rig) {
		r.run(3 * time.Second)
		r.scaler.set(func(s *fakeScaler) { s.stopTake = 2 * time.Second })
		again := r.scaler.members[2]
		r.c.work.Lock()
		r.c.mem.Draining["i3"] = time.Now() // as after a plan
		r.c.work.Unlock()
		r.pass(time.Second)
		l.set(false, errors.New("held by another"))
		r.pass(5 * time.Second)
		if ended := r.scaler.ended(); !slices.Equal(ended, []string{"i3"}) {
			t.Fatalf("stopped %v", ended)
		}
		leader := nextLeader(t, r)
		r.pass(life.MissingWait(r.opts.Service.Sampling))
		leader.Step(context.Background())
		r.scaler.set(func(s *fakeScaler) { s.members = append(s.members, again) })
		leader.Step(context.Background())
		r.pass(life.EndWait)
		l.set(true, nil)
		r.pass(3 * time.Second)
		if row := r.row("i3"); row.State != quell.Ready || row.Weight == nil || *row.Weight == 0 {
			t.Errorf("the status shows %+v", row)
		}
		if in := r.journal.newest().Instances; slices.ContainsFunc(in, func(in quell.Instance) bool { return in.Stuck }) {
			t.Errorf("one is stuck: %+v", in)
		}
	})
}

// A controller that leads again, and after which nobody has stored anything, still has the orders that could not be stored.
func TestOrdersOutliveALeaseOnAFullDisk(t *testing.T) {
	l := &lead{held: true}
	play(t, func(r *rig) { r.opts.Lead = l.ask }, func(r *rig) {
		r.run(3 * time.Second)
		r.memory.fault.set(bus.ErrStoreClosed)
		r.do(bus.Command{Name: bus.Pause})
		l.set(false, nil)
		r.pass(3 * time.Second)
		l.set(true, nil)
		r.pass(3 * time.Second)
		r.memory.fault.set(nil)
		r.pass(3 * time.Second)
		if s := r.c.Status(); !s.Leading || !s.Paused {
			t.Errorf("leads %t, paused %t", s.Leading, s.Paused)
		}
		if !remembered(t, r.memory).Paused {
			t.Error("the pause is not stored")
		}
	})
}
