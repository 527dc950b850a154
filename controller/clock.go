package controller

import (
	"context"
	"fmt"
	"time"
)

// anchored converts a stored time to this process's monotonic clock, so that the time's age does not change when the wall clock is set. If
// the wall clock was set back since the time was stored, the time may be in the future; it then counts as now.
func anchored(at, now time.Time) time.Time { return now.Add(-max(0, now.Sub(at))) }

// dates keeps each instance's start time as it was when first seen. Scalers report start times by the wall clock, which may be set later.
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

// watchClock logs that the wall clock was set since the last step, because from then on the journal's times are those of the changed clock.
func (c *nights) watchClock(ctx context.Context) {
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
	if set.Abs() >= clockSet {
		c.clockWasSet = true
	}
	if set.Abs() < worthTelling || !c.leading {
		return
	}
	c.event(ctx, fmt.Sprintf("the clock was set %s by %s; waiting and the age of readings do not depend on it", way,
		set.Abs().Round(time.Millisecond)))
}
