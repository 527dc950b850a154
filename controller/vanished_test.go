package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// vanish makes somebody delete backends at the balancer, which does not take them back, as with LVS.
func (r *rig) vanish(ids ...string) {
	r.balancer.set(func(b *fakeBalancer) {
		b.lost = map[string]bool{}
		for _, id := range ids {
			b.lost[id] = true
		}
	})
}

// A healthy instance that somebody else deleted from the balancer has failed: it is replaced. If it comes back in time, it goes on.
func TestVanishedFromTheBalancer(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.vanish("i2")
		r.pass(time.Second)
		if in := r.journal.newest().Instances[1]; in.State != quell.Failed || !in.Gone {
			t.Errorf("%+v", in)
		}
		r.vanish()
		r.pass(time.Second)
		if in := r.journal.newest().Instances[1]; in.State != quell.Ready || in.Gone {
			t.Errorf("%+v", in)
		}
		r.vanish("i2")
		r.pass(5 * time.Second)
		r.wantIDs("i1", "i3")
		said := func(e quell.Reason) bool {
			return e.Text == "giving up i2: healthy before, and gone from the balancer"
		}
		if !slices.ContainsFunc(r.reasons(), said) {
			t.Errorf("nobody said why: %+v", r.reasons())
		}
		r.vanish("i1", "i2", "i3") // everything: the balancer says nothing about instances
		r.pass(r.opts.Service.Group.Startup)
		r.wantIDs("i1", "i3")
	})
}

// reasons lists those of all plans in the journal.
func (r *rig) reasons() (all []quell.Reason) {
	for _, e := range r.journal.plans() {
		all = append(all, e.Plan.Reasons...)
	}
	return all
}

// In a fixed fleet nothing is stopped. In advise mode the plan says what it would do.
func TestVanishedAndNothingIsStopped(t *testing.T) {
	for why, c := range map[string]struct {
		change func(*rig)
		want   string
	}{
		"fixed":  {func(r *rig) { r.opts.Fixed, r.opts.Service.Group.Fixed = true, true }, "gone from the balancer: i2; no request goes there"},
		"advise": {func(r *rig) { r.opts.Service.Mode = quell.Advise }, "giving up i2: healthy before, and gone from the balancer"},
	} {
		play(t, func(r *rig) {
			r.scaler.members = []quell.Member{
				{ID: "i1", Address: "10.0.0.1:80", State: quell.Ready}, {ID: "i2", Address: "10.0.0.2:80", State: quell.Ready},
			}
			r.balancer.backends = []quell.Backend{{ID: "i1", Address: "10.0.0.1:80", Weight: .5}, {ID: "i2", Address: "10.0.0.2:80", Weight: .5}}
			c.change(r)
		}, func(r *rig) {
			r.run(3 * time.Second)
			r.vanish("i2")
			r.pass(5 * time.Second)
			r.wantIDs("i1", "i2")
			if !slices.ContainsFunc(r.reasons(), func(e quell.Reason) bool { return strings.HasPrefix(e.Text, c.want) }) {
				t.Errorf("%s: %+v", why, r.reasons())
			}
		})
	}
}
