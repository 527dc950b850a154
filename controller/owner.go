package controller

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/quellhq/quell"
)

// leadership is whether this controller leads, and what it continues from.
type leadership struct{ *releases }

// Ownable is a balancer that obeys one controller at a time. Controllers on the same bus share one owner's id, which is in their memory.
// Controllers on different buses learn of each other only through the balancer.
type Ownable interface {
	// Own makes this controller the owner, or renews its lease. A *quell.OwnedError says that another controller's lease
	// is valid.
	Own(ctx context.Context, owner quell.Owner) error
	// Disown ends the lease, so that another controller can take over at once.
	Disown(ctx context.Context) error
}

// own renews the balancer's lease while this controller is the leader and may act, and ends it if a reload has made this one only advise.
// If the balancer cannot be reached, that is reported when it is next asked for its state.
func (c *leadership) own(ctx context.Context) {
	balancer, ok := c.opts.Balancer.(Ownable)
	if !ok || !c.leading || c.opts.Service.Mode != quell.Act || c.mem.Released != nil {
		if ok && c.leading && c.owns && c.mem.Released == nil { // a release disowns by itself
			c.giveUp(ctx, balancer)
		}
		c.refused, c.owns = nil, false
		return
	}
	c.owns = true
	err := balancer.Own(ctx, quell.Owner{ID: c.mem.Owner, Name: c.opts.Name})
	switch {
	case errors.As(err, new(*quell.OwnedError)):
		if c.refused == nil {
			c.note(ctx, "this controller changes nothing: "+err.Error())
		}
		c.refused, c.adopt, c.owns = err, true, false
	case err == nil && c.refused != nil:
		c.note(ctx, "this controller drives the balancer now: the other one is gone")
		c.refused = nil
	}
}

// giveUp ends the balancer's lease.
func (c *leadership) giveUp(ctx context.Context, balancer Ownable) {
	if err := balancer.Disown(ctx); err != nil {
		c.log.Warn("another controller must wait for the lease of this one", "error", err)
	}
}

// disown ends the balancer's lease when this controller stops.
func (c *leadership) disown() {
	ctx, done := c.turn(context.Background())
	defer done()
	balancer, ok := c.opts.Balancer.(Ownable)
	if !ok || !c.leading || c.refused != nil {
		return
	}
	c.giveUp(ctx, balancer)
}

// newOwner returns an id that no other controller has.
func newOwner() string { return rand.Text() }
