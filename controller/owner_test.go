package controller

import (
	"context"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

// leased is a balancer that obeys one controller at a time.
type leased struct {
	*fakeBalancer
	owned bool
	ended int // how often Disown was called
}

func (b *leased) Own(context.Context, quell.Owner) error {
	b.owned = true
	return nil
}

func (b *leased) Disown(context.Context) error {
	b.owned = false
	b.ended++
	return nil
}

// mute is a balancer that takes connections and does not answer who owns it.
type mute struct{ *fakeBalancer }

func (mute) Own(ctx context.Context, _ quell.Owner) error { <-ctx.Done(); return ctx.Err() }

func (mute) Disown(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// A balancer that does not answer keeps nobody from pausing.
func TestAMuteBalancerDelaysNoOrder(t *testing.T) {
	play(t, func(r *rig) { r.opts.Balancer = mute{r.balancer} }, func(r *rig) {
		r.step()
		before := time.Now()
		r.do(bus.Command{Name: bus.Pause})
		if waited := time.Since(before); !r.c.mem.Paused || waited > 0 {
			t.Errorf("after %v, paused %t", waited, r.c.mem.Paused)
		}
	})
}

// A controller that was reloaded to advise gives up the balancer's lease, once, so that another one may drive it.
func TestAdviseGivesUpTheBalancer(t *testing.T) {
	b, l := new(leased), &lead{held: true}
	play(t, func(r *rig) {
		b.fakeBalancer = r.balancer
		r.opts.Balancer, r.opts.Lead = b, l.ask
	}, func(r *rig) {
		r.step()
		r.step()
		mode := func(m quell.Mode) {
			service := r.opts.Service
			service.Mode = m
			if err := r.c.Reload(service, nil, false); err != nil {
				t.Fatal(err)
			}
			r.step()
			r.step()
		}
		mode(quell.Advise)
		if b.owned || b.ended != 1 {
			t.Errorf("advising, it owns the balancer: %t; ended %d times", b.owned, b.ended)
		}
		mode(quell.Act)
		if !b.owned {
			t.Error("acting again, it does not own the balancer")
		}
		l.set(false, nil) // another controller on the same bus has the same id
		mode(quell.Advise)
		if b.ended != 1 {
			t.Error("it ended the lease of the one that leads")
		}
	})
}
