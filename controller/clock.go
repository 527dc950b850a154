package controller

import (
	"context"
	"fmt"
	"time"
)

// anchored is a moment of the past, as somebody wrote it down, on this process's own clock: how long ago it was no longer changes
// when the wall clock is set. One that lies in the future, by a clock that was set back since, counts as now.
func anchored(at, now time.Time) time.Time { return now.Add(-max(0, now.Sub(at))) }

// dates keeps the times of starts, which scalers tell by the wall clock, as they were when they were first seen.
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

// watchClock tells when the wall clock was set since the last step: what is written down from then on has other times.
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
