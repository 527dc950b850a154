package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/life"
)

// If the memory is lost, a pause, overrides and drains are lost with it. So a controller that finds no memory must know whether
// there was one. It keeps a mark outside the store, and looks for what cannot exist at a first start: backends and instances of
// its own.

// Mark is stored outside the memory's store.
type Mark struct {
	Format  string `json:"format"`
	Service string `json:"service"`
	Orders  int    `json:"orders"` // number of operators' orders; the memory must have as many
	Owner   string `json:"owner"`  // the id by which a balancer recognises this controller
}

// MarkFormat is the format of a Mark.
const MarkFormat = "quell-installation/1"

// Marker stores the mark. Read returns an error wrapping quell.ErrNoData if there is none; any other error means that the mark is
// damaged.
type Marker interface {
	Read() (Mark, error)
	Write(Mark) error
}

// unmarked is the number of orders in a mark that was never written.
const unmarked = -1

// remembered loads the stored memory, and returns why it is not the latest one, "" if it is.
func (c *Controller) remembered(m *memory, found bool, damage error) (lost string) {
	c.marked, c.first = unmarked, false
	if c.opts.Marker == nil {
		return m.Lost
	}
	mark, err := c.opts.Marker.Read()
	if err == nil {
		c.marked = mark.Orders
		m.Owner = cmp.Or(m.Owner, mark.Owner)
	}
	switch {
	case damage != nil:
		return "the controller's memory cannot be read: " + damage.Error()
	case found && m.Lost != "":
		return m.Lost
	case found && err == nil && m.Orders < mark.Orders:
		return fmt.Sprintf("the controller's memory is an old one: it holds %d of %d orders of operators", m.Orders, mark.Orders)
	case found:
		return ""
	case errors.Is(err, quell.ErrNoData):
		c.first = true // unless the first look finds own instances
		return ""
	}
	return "the controller's memory is gone: the store is empty, and this is no first start"
}

// judge decides, after scaler and balancer have answered, whether a controller without memory starts for the first
// time.
func (c *Controller) judge(ctx context.Context, v view) {
	if !c.first {
		return
	}
	c.first = false
	if owned := new(quell.OwnedError); errors.As(c.refused, &owned) && owned.Owner.Name != c.opts.Name {
		return // what exists belongs to another controller
	}
	if trace := c.trace(v); trace != "" {
		c.lose(ctx, "the controller's memory is gone: the data folder is empty, but "+trace)
	}
}

// trace describes what only an earlier run can have left, "" if there is nothing.
func (c *Controller) trace(v view) string {
	if c.opts.OwnMembers && len(v.members) > 0 {
		return fmt.Sprintf("%d instances run that it started", len(v.members))
	}
	if !c.opts.OwnBackends || len(v.backends) == 0 {
		return ""
	}
	if !c.opts.Fixed {
		return fmt.Sprintf("the balancer has %d backends that it set", len(v.backends))
	}
	equal := 1 / float64(len(v.backends)) // as a balancer begins with a listed fleet
	for _, b := range v.backends {
		if b.Draining || life.Moves(b, true, equal) {
			return "the balancer has weights that it set"
		}
	}
	return ""
}

// lose switches to advice until an operator resumes.
func (c *Controller) lose(ctx context.Context, why string) {
	c.mem.Lost = why
	c.log.Error("nothing is changed until `quell resume`: a pause, overrides and drains may be forgotten", "because", why)
	c.event(ctx, why+"; a pause, overrides and drains may be forgotten, so nothing is changed until quell resume")
}

// saved records that the memory was stored, and stores the mark.
func (c *Controller) saved() error {
	if c.opts.Marker == nil || c.marked == c.mem.Orders {
		return nil
	}
	if err := c.opts.Marker.Write(Mark{MarkFormat, c.opts.Service.Name, c.mem.Orders, c.mem.Owner}); err != nil {
		return fmt.Errorf("storing the mark of this installation: %w", err)
	}
	c.marked = c.mem.Orders
	return nil
}

// watchFolder notices that the data folder was emptied under a running controller, which still has everything in memory. It reopens
// the store, and the next save writes the memory and the mark again.
func (c *Controller) watchFolder(ctx context.Context) {
	if c.opts.Marker == nil || c.marked == unmarked || !c.leading {
		return
	}
	if _, err := c.opts.Marker.Read(); err == nil {
		return
	}
	c.marked = unmarked
	if c.opts.Reopen != nil {
		if err := c.opts.Reopen(); err != nil {
			c.failed("memory", fmt.Errorf("opening the store again in a data folder that was emptied: %w", err))
			return
		}
	}
	c.event(ctx, "the data folder was emptied or its mark damaged: the memory is written anew, the journal before this is lost")
}

// notThere returns whether the store cannot be reached at present. That says nothing about what it holds.
func notThere(err error) bool {
	return bus.Unavailable(err)
}
