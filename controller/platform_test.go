package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// An instance that its platform ends drains at once: no new requests arrive, the open ones finish. Then the scaler is told that it has
// none, and Quell itself does not stop it.
func TestPlatformEndsAnInstance(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.balancer.set(func(b *fakeBalancer) { b.inFlight = map[string]int64{"i2": 2} })
		r.scaler.state("i2", quell.Draining)
		r.pass(time.Second)
		if b, there := r.balancer.backend("i2"); !there || !b.Draining || b.Weight != 0 {
			t.Errorf("with open requests: %+v, %t", b, there)
		}
		if drained := r.drained(); len(drained) > 0 {
			t.Errorf("%v have open requests", drained)
		}
		r.balancer.set(func(b *fakeBalancer) { b.inFlight = nil })
		r.pass(time.Second)
		if b, there := r.balancer.backend("i2"); there {
			t.Errorf("without requests: %+v", b)
		}
		if drained := r.drained(); !slices.Equal(drained, []string{"i2"}) {
			t.Errorf("drained: %v", drained)
		}
		if stopped := r.scaler.ended(); len(stopped) > 0 {
			t.Errorf("Quell stopped %v", stopped)
		}
	})
}

func (r *rig) drained() []string {
	r.scaler.mu.Lock()
	defer r.scaler.mu.Unlock()
	return slices.Clone(r.scaler.drained)
}
