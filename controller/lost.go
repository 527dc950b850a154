package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/life"
)

// If the memory is lost, pauses, overrides and drains are lost with it. So a controller that finds no memory must know whether there was
// one. For this it keeps a mark outside the store. It also looks for backends and instances of its own, which cannot exist at a first
// start.

// Mark is stored outside the memory's store.
type Mark struct {
	Format  string `json:"format"`
	Service string `json:"service"`
	Orders  int    `json:"orders"` // number of operators' orders; the memory must contain as many
	Owner   string `json:"owner"`  // the id by which a balancer recognises this controller
}

// MarkFormat is the format of a Mark.
const MarkFormat = "quell-installation/1"

// Marker stores the mark. Read returns an error wrapping quell.ErrNoData if there is none; any other error means that the mark is
// damaged. The first save after a start writes the mark in any case, so a lost copy of it is replaced.
type Marker interface {
	Read() (Mark, error)
	Write(Mark) error
}

// unmarked stands for the mark's number of orders while no mark has been read or stored.
const unmarked = -1

// remembered loads the stored memory. It returns why the memory is not the latest one, "" if it is.
func (c *leadership) remembered(m *memory, found bool, damage error) (lost string) {
	c.marked, c.first = unmarked, false
	if c.opts.Marker == nil {
		return m.Lost
	}
	mark, err := c.opts.Marker.Read()
	m.Owner = cmp.Or(m.Owner, mark.Owner)
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
		c.first = true // unless own instances are found
		return ""
	}
	return "the controller's memory is gone: the store is empty, and this is no first start"
}

// judge decides whether a controller without memory starts for the first time. It does so once scaler and balancer have answered.
func (c *leadership) judge(ctx context.Context, v view) {
	if !c.first {
		return
	}
	c.first = false
	if owned := new(quell.OwnedError); errors.As(c.refused, &owned) && owned.Owner.Name != c.opts.Name {
		return // the existing instances and backends belong to another controller
	}
	if trace := c.trace(v); trace != "" {
		c.lose(ctx, "the controller's memory is gone: the data folder is empty, but "+trace)
	}
}

// trace describes instances or backends that only an earlier run can have left, "" if there are none.
func (c *leadership) trace(v view) string {
	if c.opts.OwnMembers && len(v.Members) > 0 {
		return fmt.Sprintf("%d instances run that it started", len(v.Members))
	}
	if !c.opts.OwnBackends || len(v.Backends) == 0 {
		return ""
	}
	if !c.opts.Listed {
		return fmt.Sprintf("the balancer has %d backends that it set", len(v.Backends))
	}
	equal := 1 / float64(len(v.Backends)) // the weights with which a balancer starts if its fleet is listed
	for _, b := range v.Backends {
		if b.Draining || life.Moves(b, true, equal) {
			return "the balancer has weights that it set"
		}
	}
	return ""
}

// lose makes the controller only advise until an operator resumes it.
func (c *leadership) lose(ctx context.Context, why string) {
	c.mem.Lost = why
	c.log.Error("nothing is changed until `quell resume`: a pause, overrides and drains may be forgotten", "because", why)
	c.event(ctx, why+"; a pause, overrides and drains may be forgotten, so nothing is changed until quell resume")
}

// markError says that the mark could not be stored. The memory is.
type markError struct{ err error }

func (e *markError) Error() string { return "storing the mark of this installation: " + e.err.Error() }
func (e *markError) Unwrap() error { return e.err }

// saved records that the memory was stored, and stores the mark. A mark of which that failed may be stored all the same, so it is written
// again in any case.
func (c *core) saved() error {
	c.forgetEarlier()
	if c.opts.Marker == nil || c.marked == c.mem.Orders {
		return nil
	}
	if err := c.opts.Marker.Write(Mark{MarkFormat, c.opts.Service.Name, c.mem.Orders, c.mem.Owner}); err != nil {
		c.marked = unmarked
		return &markError{err}
	}
	c.marked = c.mem.Orders
	return nil
}

// watchFolder notices if the data folder was emptied while the controller runs. The controller still has everything in memory: it reopens
// the store, and the next save writes the memory and the mark again. If the store cannot be reopened, that is tried again in each period.
func (c *core) watchFolder(ctx context.Context) {
	if c.opts.Marker == nil || c.marked == unmarked && !c.emptied || !c.leading {
		return
	}
	if _, err := c.opts.Marker.Read(); err == nil && !c.emptied {
		return
	}
	c.marked, c.emptied = unmarked, true
	if c.opts.Reopen != nil {
		if err := c.opts.Reopen(); err != nil {
			c.failed("memory", fmt.Errorf("opening the store again in a data folder that was emptied: %w", err))
			return
		}
	}
	c.emptied = false
	c.event(ctx, "the data folder was emptied or its mark damaged: the memory is written anew, the journal before this is lost")
}
