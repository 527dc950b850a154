package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/life"
)

// later is a service whose scaler returns no ids from Start; new instances appear only in its list.
func later(r *rig) { r.scaler.later = true }

func TestInstancesThatAreNamedLater(t *testing.T) {
	play(t, later, func(r *rig) {
		r.run(10 * time.Second)
		r.wantOrders(2)
		if s := r.c.Status(); s.Coming != 2 || len(s.Instances) != 0 {
			t.Errorf("%d coming, instances %v", s.Coming, s.Instances)
		}
		r.scaler.appear(1)
		r.pass(10 * time.Second)
		r.wantOrders(2)
		r.wantWeights(map[string]float64{"i1": 1})
		if s := r.journal.newest(); s.Coming != 1 || len(s.Instances) != 1 {
			t.Errorf("%+v", s)
		}
		r.scaler.appear(1)
		r.pass(2 * time.Second)
		r.wantOrders(2)
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
		if s := r.c.Status(); s.Coming != 0 || s.Failures["scaler"] != 0 {
			t.Errorf("%d coming, failures %v", s.Coming, s.Failures)
		}
		r.untouched(func() { r.pass(patience) })
	})
}

// wantOrders checks the arguments of Start.
func (r *rig) wantOrders(want ...int) {
	r.t.Helper()
	r.scaler.mu.Lock()
	defer r.scaler.mu.Unlock()
	same := len(r.scaler.starts) == len(want)
	for i := range want {
		same = same && r.scaler.starts[i] == want[i]
	}
	if !same {
		r.t.Fatalf("ordered %v, want %v", r.scaler.starts, want)
	}
}

func TestInstancesThatNeverAppear(t *testing.T) {
	play(t, later, func(r *rig) {
		r.run(r.opts.Service.Group.Startup - time.Second)
		r.wantOrders(2)
		r.pass(3 * time.Second)
		r.wantOrders(2, 2)
		const told = "2 instance(s) ordered 30s ago never appeared in the scaler's list"
		if s := r.c.Status(); !strings.Contains(s.LastFailure["scaler"], told) || s.Failures["scaler"] != 1 {
			t.Errorf("failures %v", s.LastFailure)
		}
		if events := r.journal.events(); len(events) != 2 || !strings.Contains(events[1], told) {
			t.Errorf("events %q", events)
		}
	})
}

func TestAnOrderOutlivesTheController(t *testing.T) {
	play(t, later, func(r *rig) {
		r.run(3 * time.Second)
		r.restart()
		r.run(3 * time.Second)
		r.wantOrders(2)
		r.kill()
		r.scaler.appear(2)
		r.restart()
		r.run(3 * time.Second)
		r.wantOrders(2)
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
	})
	t.Run("that was killed while it ordered", func(t *testing.T) {
		play(t, later, func(r *rig) {
			killed := &killedScaler{fakeScaler: r.scaler}
			r.opts.Scaler, killed.die = killed, func() { r.memory.fault.set(errBroken) } // from here on nothing can be written
			r.restart()
			r.run(3 * time.Second)
			r.kill()
			r.memory.fault.set(nil)
			r.opts.Scaler = r.scaler
			r.restart()
			r.run(10 * time.Second)
			r.wantOrders(2)
			r.scaler.appear(2)
			r.pass(2 * time.Second)
			r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
			r.wantEvent("started i1: the scaler lists it now, and it was ordered before")
			r.wantEvent("started i2: the scaler lists it now, and it was ordered before")
		})
	})
}

// killedScaler kills the controller while it starts instances.
type killedScaler struct {
	*fakeScaler
	die func()
}

func (s *killedScaler) Start(ctx context.Context, n int) ([]string, error) {
	s.die()
	return s.fakeScaler.Start(ctx, n)
}

func TestInstanceSeconds(t *testing.T) {
	play(t, func(r *rig) { r.scaler.slow = true }, func(r *rig) {
		r.run(10 * time.Second)
		seconds := func(want float64) {
			t.Helper()
			if got := r.c.Status().InstanceSeconds; got < want-1 || got > want+1 {
				t.Errorf("%v instance-seconds, want %v", got, want)
			}
		}
		seconds(20)
		r.restart()
		seconds(0) // of the instances that it has seen: none yet
		r.run(10 * time.Second)
		seconds(40)
		r.scaler.state("i1", quell.Failed)
		r.pass(500 * time.Millisecond)
		before := r.c.Status().InstanceSeconds
		r.c.shown.mu.Lock()
		r.c.shown.now.cost.MS -= 100 // in fact i1 ended a moment earlier
		r.c.shown.mu.Unlock()
		if after := r.c.Status().InstanceSeconds; after < before {
			t.Errorf("the cost fell from %v to %v s", before, after)
		}
	})
}

// A start program that hangs may have started its instances. With a list that is 90 s late, more than group.max are never ordered.
func TestAnOrderThatMayHaveWorked(t *testing.T) {
	hanging := func(r *rig) {
		r.scaler.hangs = true
		r.opts.Service.Sampling, r.opts.Service.Group.Max = 10*time.Second, 4
	}
	play(t, hanging, func(r *rig) {
		r.run(20 * time.Second)
		r.wantOrders(2) // group.min: they count as coming
		r.wantEvent("2 instance(s) may have started: starting 2: context deadline exceeded. They count as coming for 30s, and against " +
			"group.max for 5m0s")
		r.pass(40 * time.Second)
		r.wantOrders(2, 2) // group.startup has passed
		r.kill()
		r.restart() // the next controller remembers them
		r.run(time.Minute)
		r.wantOrders(2, 2)
		if s := r.c.Status(); s.MayCome != 4 || s.Coming != 0 {
			t.Errorf("%d may come, %d are coming", s.MayCome, s.Coming)
		}
		if last := r.journal.newest(); last.MayCome != 4 {
			t.Errorf("%+v", last)
		}
		r.scaler.appear(4)
		r.pass(time.Minute)
		r.wantOrders(2, 2)
		if s := r.c.Status(); s.MayCome != 0 || len(s.Instances) != 4 {
			t.Errorf("%d may come, %d instances", s.MayCome, len(s.Instances))
		}
	})
	t.Run("that did not", func(t *testing.T) {
		play(t, hanging, func(r *rig) {
			r.run(50 * time.Second)
			r.wantOrders(2, 2)
			r.scaler.set(func(s *fakeScaler) { s.hangs = false })
			r.pass(life.Doubt(30 * time.Second))
			r.wantOrders(2, 2, 2)
		})
	})
	t.Run("replacement", func(t *testing.T) {
		play(t, full, func(r *rig) {
			r.run(3 * time.Second)
			r.scaler.set(func(s *fakeScaler) { s.hangs = true })
			r.do(replaceFirst)
			r.pass(2 * time.Minute)
			r.wantOrders(2, 1)
			if got := strings.Join(r.c.Status().Pending, "; "); !strings.Contains(got, "may still come") {
				t.Errorf("pending %s", got)
			}
			r.scaler.set(func(s *fakeScaler) { s.hangs = false })
			r.scaler.appear(1)
			r.pass(20 * time.Second)
			r.wantIDs("i2", "i3")
			r.wantOrders(2, 1)
		})
	})
}
