package controller

import (
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// Weights that people gave, 30 and 60, stay as they are for an hour under static: nothing is sent to the balancer but, at most once, a list
// that takes the servers over as they are. So it is after a restart.
func TestStaticLeavesTheWeightsOfBefore(t *testing.T) {
	var given []quell.Backend
	play(t, func(r *rig) {
		r.opts.Fixed, r.opts.Service.Group.Fixed, r.opts.Service.Group.Min = true, true, 1
		r.scaler.add()
		r.scaler.add()
		for i, m := range r.scaler.members {
			given = append(given, quell.Backend{ID: m.ID, Address: m.Address, Probe: m.Probe, Weight: float64(1+i) / 3})
		}
		r.balancer.set(func(b *fakeBalancer) {
			b.backends, b.foreign, b.base = given, true, map[string]float64{given[0].ID: 2. / 3, given[1].ID: 4. / 3}
		})
	}, func(r *rig) {
		r.run(time.Hour)
		r.restart()
		r.run(time.Hour)
		if n := len(r.balancer.applied); n > 1 {
			t.Errorf("%d lists were sent", n)
		}
		for _, list := range r.balancer.applied {
			for i, b := range list {
				if b != given[i] {
					t.Errorf("%+v was sent, in force was %+v", b, given[i])
				}
			}
		}
		r.wantWeights(map[string]float64{given[0].ID: 1. / 3, given[1].ID: 2. / 3})
	})
}
