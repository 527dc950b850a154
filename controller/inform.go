package controller

import (
	"context"

	"github.com/quellhq/quell"
)

// Informed is a balancer that is told in each period how busy its instances are. What is in force there may end unless it is renewed.
type Informed interface {
	// Inform renews what is in force, and says what each instance can carry, the largest use of the resource, and its use, both as fractions.
	Inform(ctx context.Context, resource quell.Resource, capacity, use map[string]float64) error
}

// IdleFirst is a balancer that knows whether it sends a request to an idle instance whatever its weight. It may have become known by the
// last State.
type IdleFirst interface {
	IdleFirst() bool
}

func (c *deciding) idleFirst() bool {
	b, ok := c.opts.Balancer.(IdleFirst)
	return ok && b.IdleFirst()
}

// inform renews what is in force at the balancer. It does so in a pause and in advise mode, too, because then what is in force stays.
func (c *deciding) inform(ctx context.Context, view *view, plan *quell.Plan) {
	b, ok := c.opts.Balancer.(Informed)
	if !ok {
		return
	}
	switch code, _ := c.idleness(); code {
	case "", "paused", "advise":
		if err := b.Inform(ctx, c.resource(), plan.Capacity, useOf(view.snapshot, c.resource())); err != nil {
			c.failed("apply", err)
		}
	}
}

// useOf returns each instance's use of a resource, where it is known.
func useOf(s *quell.Snapshot, resource quell.Resource) map[string]float64 {
	use := map[string]float64{}
	if s == nil {
		return use
	}
	for i := range s.Instances {
		if o := s.Instances[i].Observation; o != nil {
			if u, known := o.Utilization[resource]; known {
				use[s.Instances[i].ID] = u
			}
		}
	}
	return use
}
