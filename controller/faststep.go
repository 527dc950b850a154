package controller

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/policy"
)

// cuts are a fast policy's factors by instance.
type cuts = map[string]quell.Factor

// nextFastStep returns when the readings of the next fast period should have arrived; false if there is no fast policy.
func (c *Controller) nextFastStep(last time.Time) (time.Time, bool) {
	period := c.shown.read().fast
	if period == 0 {
		return time.Time{}, false
	}
	settle := tick.Settle(period)
	return tick.After(last.Add(-settle), c.now().Add(-settle), period).Add(settle), true
}

// compose applies the cuts and the server parameters that the fast policy asks for. It records what changed, what would have been changed,
// and what failed, if that is news.
func (c *deciding) compose(ctx, limited context.Context, view *view, wanted *quell.Plan, news bool) {
	plan, state := c.mem.lent(c.mem.State, func(state policy.State) (quell.Plan, policy.State) {
		return c.engine.ComposeCuts(view.snapshot, state, wanted)
	})
	c.mem.State = state
	o := c.carryOut(limited, view, &plan)
	c.mem.Cutting = len(wanted.Factor) > 0 || len(o.changes) > 0 || len(o.would) > 0 // shares may need several steps to return to normal
	c.showCuts(&plan, o)
	news = news || len(o.changes) > 0 || outage.Kind(o.why) != outage.Kind(c.composed.why) || !slices.Equal(o.would, c.composed.would)
	if c.composed = o; !news {
		return
	}
	c.tell(&plan, o)
	ctx, cancel := c.limit(context.WithoutCancel(ctx))
	defer cancel()
	if err := c.opts.Journal.Append(ctx, c.entry(&plan, o)); err != nil {
		c.failed("journal", err)
	}
	c.remember(ctx)
}

// differ returns whether the cut shares or their factors differ from those before.
func differ(before, after cuts) bool {
	if len(before) != len(after) {
		return true
	}
	for id, f := range after {
		if old, ok := before[id]; !ok || math.Abs(old.Value-f.Value) > quell.SumTolerance {
			return true
		}
	}
	return false
}

// showCuts updates the shares in the status after a change of the cuts.
func (c *board) showCuts(plan *quell.Plan, o outcome) {
	reasons := reasonsByInstance(plan.Reasons, plan.At)
	rows := make([]InstanceStatus, len(c.status.Instances))
	for i, row := range c.status.Instances {
		if w := entry(plan.Weights, row.ID); w != nil {
			row.Weight = w
		}
		if text, ok := reasons[row.ID]; ok {
			row.Reason = text
		}
		rows[i] = row
	}
	c.status.Instances = rows
	if len(o.changes) > 0 {
		c.status.Changes, c.status.ChangedAt = o.changes, plan.At
	}
}

// cutOf returns the factor by which an instance's share is cut at a time, nil if it is not cut.
func cutOf(factors cuts, id string, now time.Time) *float64 {
	f := factors[id]
	if left := f.Left(now); left < 1 {
		return &left
	}
	return nil
}
