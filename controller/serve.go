package controller

import (
	"context"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/life"
)

// serves returns whether this controller gives Quell's own balancer the group's instances although it only advises. It does not while one
// of them drains.
func (c *group) serves() bool {
	code, _ := c.idleness()
	drains := func(m quell.Member) bool { _, leaving := c.mem.Draining[m.ID]; return leaving }
	return c.opts.OwnBalancer && code == "advise" && !slices.ContainsFunc(c.fleet.Members, drains)
}

// serve gives Quell's own balancer the instances that are there, because it has none without a controller: nobody could send requests
// through it, and there would be nothing to judge. It changes no share for another reason, and stops nothing.
func (c *group) serve(ctx context.Context, v view) {
	group := v.Group()
	steps := life.Follow(c.now(), group, life.Present(group), c.opts.Drain)
	if len(v.Members) == 0 || !life.Differs(steps.Backends, v.Backends) {
		return
	}
	if err := c.opts.Balancer.Apply(ctx, steps.Backends); err != nil {
		c.failed("apply", err)
	}
}
