package controller

import (
	"context"

	"github.com/quellhq/quell"
)

// Informed is a balancer for which what is in force ends by itself, unless it is renewed in each period.
type Informed interface {
	// Inform renews what is in force, and says what each instance can carry: the largest use of the resource, as a fraction.
	Inform(ctx context.Context, resource quell.Resource, capacity map[string]float64) error
}

// inform renews what is in force at the balancer. It does so in a pause and in advise mode, too, because then what is in force stays.
func (c *Controller) inform(ctx context.Context, plan *quell.Plan) {
	b, ok := c.opts.Balancer.(Informed)
	if !ok {
		return
	}
	switch code, _ := c.idleness(); code {
	case "", "paused", "advise":
		if err := b.Inform(ctx, c.resource(), plan.Capacity); err != nil {
			c.failed("apply", err)
		}
	}
}
