package controller

import (
	"context"
	"errors"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

// record stores the plan, the snapshot and the memory. It completes this even if the controller is told to end meanwhile. If the journal
// fails, control continues.
func (c *deciding) record(ctx context.Context, s *quell.Snapshot, plan *quell.Plan, o outcome) {
	if !c.leading {
		return
	}
	ctx, cancel := c.limit(context.WithoutCancel(ctx))
	defer cancel()
	written := c.opts.Journal.Append(ctx, c.entry(plan, o))
	if err := errors.Join(written, c.opts.Journal.AppendSnapshot(ctx, *s)); err != nil {
		c.failed("journal", err) // report both errors together: if they alternated, each would be logged as new
	}
	c.totals.journaled(written, c.now())
	c.remember(ctx)
}

// entry returns a plan as an entry of the journal.
func (c *core) entry(plan *quell.Plan, o outcome) bus.Entry {
	return bus.Entry{At: plan.At, Kind: bus.PlanEntry, Plan: plan, Applied: o.applied, Why: o.why, Would: o.would, Mode: c.opts.Service.Mode,
		Changes: o.changes}
}

// remember stores the memory.
func (c *core) remember(ctx context.Context) {
	c.watchFolder(ctx)
	if c.unsaved = c.save(ctx); c.unsaved != nil {
		c.failed("memory", c.unsaved)
	}
}

// event records something that happened outside a plan.
func (c *core) event(ctx context.Context, text string) {
	c.log.Info(text)
	entry := bus.Entry{At: c.now(), Kind: bus.EventEntry, Text: text, Mode: c.opts.Service.Mode}
	err := c.opts.Journal.Append(ctx, entry)
	if err != nil {
		c.failed("journal", err)
	}
	c.totals.journaled(err, c.now())
}
