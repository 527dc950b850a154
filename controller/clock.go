package controller

import (
	"context"
	"fmt"
	"time"
)

// anchored converts a stored time to this process's monotonic clock, so that its age does not change when the wall clock is set.
// A time in the future, written before the clock was set back, counts as now.
func anchored(at, now time.Time) time.Time { return now.Add(-max(0, now.Sub(at))) }

// dates keeps start times as they were when first seen, because scalers report them by the wall clock.
type dates map[string]dated

type dated struct{ told, at time.Time }

func (d dates) of(id string, told, now time.Time) time.Time {
	known, ok := d[id]
	if !ok || !known.told.Equal(told) {
		known = dated{told, anchored(told, now)}
		d[id] = known
	}
	return known.at
}

// watchClock logs when the wall clock was set since the last step, because later times in the journal are by the new
// clock.
func (c *Controller) watchClock(ctx context.Context) {
	now, last := c.now(), c.stepped
	c.stepped = now
	if last.IsZero() {
		return
	}
	const worthTelling = time.Second
	set := now.Round(0).Sub(last.Round(0)) - now.Sub(last)
	way := "forward"
	if set < 0 {
		way = "back"
	}
	if set.Abs() < worthTelling || !c.leading {
		return
	}
	c.event(ctx, fmt.Sprintf("the clock was set %s by %s; waiting and the age of readings do not depend on it", way,
		set.Abs().Round(time.Millisecond)))
}
