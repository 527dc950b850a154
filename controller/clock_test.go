package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/internal/wallclock"
)

// Somebody sets the clock while the controller runs. Afterwards decisions are as frequent as before, the ages of readings and instances are
// right, drains last as long as configured, and the journal says that the clock was set.
func TestTheClockIsSet(t *testing.T) {
	for name, by := range map[string]time.Duration{
		"back by an hour": -time.Hour, "forward by an hour": time.Hour, "back by part of a period": -1300 * time.Millisecond,
		"forward by part of one": 1700 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			var clock *wallclock.Clock
			play(t, func(r *rig) {
				clock = wallclock.New()
				r.opts.Now = clock.Now
				r.opts.Service.Guard.StaleAfter = 3
				r.opts.Service.Group.Min, r.opts.Service.Group.Initial = 2, 3
				r.opts.Drain = 8 * time.Second
			}, func(r *rig) {
				ctx, quiet := context.WithCancel(context.Background()) // the context of the test's synctest bubble
				defer quiet()
				go reportAll(ctx, r, clock)
				r.run(5 * time.Second)
				r.balancer.set(func(b *fakeBalancer) { b.inFlight["i3"] = 1 }) // i3 always has an open request
				r.scaler.set(func(s *fakeScaler) {
					for i := range s.members { // without a monotonic reading, as in a list command's output
						s.members[i].Started = clock.Wall().Add(-5 * time.Second)
					}
				})
				r.c.work.Lock()
				r.c.mem.Draining["i3"] = clock.Now()
				r.c.work.Unlock()
				r.pass(2 * time.Second)
				before := len(r.journal.plans())
				clock.Set(by)

				r.pass(5 * time.Second)
				r.wantIDs("i1", "i2", "i3") // i3 drains for 7 s
				if made := len(r.journal.plans()) - before; made < 4 || made > 7 {
					t.Errorf("%d plans in the 5 s after the clock was set, want 5", made)
				}
				r.pass(5 * time.Second)
				r.wantIDs("i1", "i2")
				if made := len(r.journal.plans()) - before; made < 9 || made > 12 {
					t.Errorf("%d plans in the 10 s after the clock was set, want 10", made)
				}
				for _, in := range r.c.Status().Instances {
					if in.Stale || in.State != quell.Ready || in.AgeS < 15 || in.AgeS > 19 {
						t.Errorf("%+v: want a fresh, ready instance that started 17 s ago", in)
					}
				}
				for _, s := range r.journal.snapshots {
					for _, in := range s.Instances {
						if in.Observation == nil {
							continue
						}
						if old := s.At.Round(0).Sub(in.Observation.At.Round(0)); old < 0 || old > 2*time.Second {
							t.Errorf("snapshot of %v: the observation of %s is written down as %v old", s.At, in.ID, old)
						}
					}
				}
				const said = "the clock was set "
				if events := strings.Join(r.journal.events(), "\n"); strings.Count(events, said) != 1 ||
					!strings.Contains(events, said+strings.Fields(name)[0]+" by "+by.Abs().String()) {
					t.Errorf("the journal says:\n%s", events)
				}
			})
		})
	}
}

// reportAll reports for three instances every second.
func reportAll(ctx context.Context, r *rig, clock *wallclock.Clock) {
	for ctx.Err() == nil {
		for _, id := range []string{"i1", "i2", "i3"} {
			r.c.Observe(agentReading(id, .3), clock.Now())
		}
		tick.Sleep(ctx, time.Second)
	}
}

// An earlier controller stored a drain when its clock was ahead of the present time. The drain still ends in time.
func TestARestartAfterTheClockWasSetBack(t *testing.T) {
	play(t, func(r *rig) {
		r.opts.Drain = 8 * time.Second
		r.opts.Service.Group.Initial = 3
	}, func(r *rig) {
		r.run(3 * time.Second)
		r.balancer.set(func(b *fakeBalancer) { b.inFlight["i3"] = 1 })
		r.c.work.Lock()
		r.c.mem.Draining["i3"] = time.Now().Add(time.Hour)
		r.c.work.Unlock()
		r.pass(2 * time.Second)
		r.restart()
		r.run(6 * time.Second)
		r.wantIDs("i1", "i2", "i3")
		r.pass(4 * time.Second)
		r.wantIDs("i1", "i2")
	})
}

// The clock is set after a restart while an instance starts. It may take as long as before.
func TestTheClockIsSetAfterARestart(t *testing.T) {
	var clock *wallclock.Clock
	play(t, func(r *rig) {
		clock = wallclock.New()
		r.opts.Now = clock.Now
		r.scaler.add()
		r.scaler.add()
		r.scaler.slow = true
		r.scaler.add()
	}, func(r *rig) {
		r.run(10 * time.Second)
		r.restart()
		r.run(2 * time.Second)
		clock.Set(time.Hour)
		r.pass(5 * time.Second)
		r.wantIDs("i1", "i2", "i3")
		if row := r.row("i3"); row.State != quell.Starting {
			t.Errorf("the status shows %+v", row)
		}
	})
}
