package controller

import (
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// In advise mode Quell's own balancer gets the instances that are there, in equal shares, and the plan says what would be better. Shares
// that it has stay in proportion. A drain that is remembered of an instance that is gone is not in the way.
func TestOwnBalancerServesInAdviseMode(t *testing.T) {
	play(t, func(r *rig) {
		r.opts.OwnBalancer, r.opts.Service.Mode = true, quell.Advise
		r.scaler.set(func(s *fakeScaler) { s.add(); s.add() })
		r.memory.values[memoryKey] = []byte(`{"draining":{"i9":"2026-01-01T00:00:00Z"}}`)
	}, func(r *rig) {
		shares := func(want map[string]float64) {
			t.Helper()
			got := r.balancer.weights()
			for id, w := range want {
				if len(got) != len(want) || math.Abs(got[id]-w) > 1e-9 {
					t.Errorf("shares %v, want %v", got, want)
				}
			}
		}
		r.run(3 * time.Second)
		shares(map[string]float64{"i1": .5, "i2": .5})
		if e := r.journal.plans(); len(e) == 0 || len(e[len(e)-1].Plan.Weights) != 2 || e[len(e)-1].Applied {
			t.Errorf("the last plan: %+v", e)
		}
		r.balancer.set(func(b *fakeBalancer) { b.backends[0].Weight, b.backends[1].Weight = .7, .3 })
		r.pass(3 * time.Second)
		shares(map[string]float64{"i1": .7, "i2": .3})
		r.scaler.set(func(s *fakeScaler) { s.add() })
		r.pass(3 * time.Second)
		shares(map[string]float64{"i1": .7 / 1.5, "i2": .3 / 1.5, "i3": .5 / 1.5})
		r.scaler.state("i1", quell.Draining) // the platform ends it
		r.pass(3 * time.Second)
		shares(map[string]float64{"i2": .3 / .8, "i3": .5 / .8})
		if len(r.scaler.ended()) > 0 || len(r.scaler.starts) > 0 {
			t.Errorf("stopped %v, started %v", r.scaler.ended(), r.scaler.starts)
		}
	})
}

// Another balancer keeps what it has.
func TestOtherBalancersAreLeftAloneInAdviseMode(t *testing.T) {
	play(t, func(r *rig) {
		r.opts.Service.Mode = quell.Advise
		r.scaler.set(func(s *fakeScaler) { s.add() })
	}, func(r *rig) {
		r.run(3 * time.Second)
		if n := r.balancer.applies(); n > 0 {
			t.Errorf("the balancer was changed %d times", n)
		}
	})
}
