package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/life"
)

// order makes the scaler start n instances, and returns a description of them, "" if none was started. It stores the order first: if the
// controller is killed in between, the next one would otherwise order them a second time. If the order fails and may have been carried out
// all the same, an event says so. inPlaceOf is the instance that the new one will replace, if any.
func (c *Controller) order(ctx context.Context, n int, inPlaceOf string) (started string, err error) {
	c.mem.Inventory.Order(c.now(), n, inPlaceOf)
	if c.unsaved = c.save(ctx); c.unsaved != nil { // the disk may be full, which must not prevent a replacement
		c.failed("memory", c.unsaved)
	}
	ids, err := c.opts.Scaler.Start(ctx, n)
	if inPlaceOf != "" && len(ids) > 0 {
		c.nameFresh(inPlaceOf, ids[0])
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
func (c *Controller) noteUnsure(ctx context.Context, n int, err error) {
	ctx, cancel := c.limit(context.WithoutCancel(ctx))
	defer cancel()
	startup := c.opts.Service.Group.Startup
	c.event(ctx, fmt.Sprintf("%d instance(s) may have started: %v. They count as coming for %v, and against group.max for %v", n, err, startup,
		life.Doubt(startup)))
}

// crowded returns whether one instance more could be too many, because of instances that cannot be stopped, or should all orders that are
// not known to have failed have worked. A replacement may exceed group.max by one.
func (c *Controller) crowded(v *view) bool {
	list := c.mem.Inventory
	if list.MayCome() == 0 && len(v.stuck) == 0 {
		return false
	}
	n := list.Coming() + list.MayCome() + len(v.stuck)
	for _, m := range v.members {
		if _, leaving := c.mem.Draining[m.ID]; !leaving && m.State != quell.Failed {
			n++
		}
	}
	return n > c.opts.Service.Group.Max
}

// takeInventory compares the scaler's list with its previous list and with the orders. It reports orders that produced no instance.
func (c *Controller) takeInventory(ctx context.Context, v *view) {
	list := c.mem.Inventory
	for _, a := range list.Look(c.now(), v.members) {
		c.nameFresh(a.For, a.ID)
		if c.leading && !a.Named { // the scaler names instances late, or the controller that ordered this one was killed
			c.event(ctx, fmt.Sprintf("started %s: the scaler lists it now, and it was ordered before", a.ID))
		}
	}
	if c.leading {
		startup := c.opts.Service.Group.Startup
		for _, late := range list.Overdue(c.now(), startup) {
			text := fmt.Sprintf("%d instance(s) ordered %v ago", late.Count+len(late.IDs), c.now().Sub(late.At).Round(time.Second))
			if len(late.IDs) > 0 {
				text += " (named: " + strings.Join(late.IDs, ", ") + ")"
			}
			text += fmt.Sprintf(" never appeared in the scaler's list: they are no longer waited for. "+
				"They may still come, and count against group.max for %v from the order. "+
				"Look at what starts and lists instances; group.startup is %v", life.Doubt(startup), startup)
			c.failed("scaler", errors.New(text))
			c.event(ctx, text)
		}
	}
	v.coming, v.mayCome, v.places = list.Coming(), list.MayCome(), c.placesOf()
}
