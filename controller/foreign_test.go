package controller

import (
	"testing"
	"time"

	"github.com/quellhq/quell/bus"
)

// If something else sets weights at the balancer, that is said, also how to set a share that stays, and they are set again. While the
// controller is paused they are left alone.
func TestWeightsThatSomethingElseSets(t *testing.T) {
	play(t, three, func(r *rig) {
		r.run(3 * time.Second)
		before := r.balancer.weights()
		change := func() {
			r.balancer.set(func(b *fakeBalancer) {
				for i := range b.backends {
					if b.backends[i].ID == "i2" {
						b.backends[i].Weight *= 0.1
					}
				}
			})
		}
		change()
		r.pass(3 * time.Second)
		r.wantEvent("something else changed weights at the balancer: i2 has 0.03, not 0.33", "quell override")
		if got := r.balancer.weights()["i2"]; got != before["i2"] {
			t.Errorf("i2 has %.3f, want %.3f again", got, before["i2"])
		}
		r.do(bus.Command{Name: bus.Pause})
		change()
		r.pass(3 * time.Second)
		r.wantEvent("something else changed weights")
		if got := r.balancer.weights()["i2"]; got == before["i2"] {
			t.Error("a paused controller set the weight again")
		}
	})
}
