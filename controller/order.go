package controller

import (
	"context"
	"fmt"
	"strings"

	"github.com/quellhq/quell/life"
)

// order makes the scaler start n instances, and returns a description of them, "" if none was started. It stores the order first: if the
// controller is killed in between, the next one would otherwise order them a second time. If the order fails and may have been carried out
// all the same, an event says so. inPlaceOf is the instance that the new one will replace, if any.
func (c *group) order(ctx context.Context, n int, inPlaceOf string) (started string, err error) {
	c.mem.Inventory.Order(c.now(), n, inPlaceOf)
	if c.unsaved = c.save(ctx); c.unsaved != nil { // the disk may be full, which must not prevent a replacement
		c.failed("memory", c.unsaved)
	}
	ids, err := c.opts.Scaler.Start(ctx, n)
	if inPlaceOf != "" && len(ids) > 0 {
		c.mem.Name(inPlaceOf, ids[0])
	}
	parts := ids
	switch later := c.mem.Inventory.Answer(ids, err); {
	case later > 0 && err != nil:
		c.noteUnsure(ctx, later, err)
	case later > 0:
		parts = append(parts, fmt.Sprintf("%d that the scaler has yet to name", later))
	}
	return strings.Join(parts, ", "), err
}

// noteUnsure records that an order failed and may have been carried out. The scaler may have used up the time of ctx.
func (c *group) noteUnsure(ctx context.Context, n int, err error) {
	ctx, cancel := c.limit(context.WithoutCancel(ctx))
	defer cancel()
	startup := c.opts.Service.Group.Startup
	c.event(ctx, fmt.Sprintf("%d instance(s) may have started: %v. They count as coming for %v, and against group.max for %v", n, err, startup,
		life.Doubt(startup)))
}
