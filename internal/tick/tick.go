// Package tick gives all processes the same sampling periods. Each period ends at a whole multiple of its length on the wall clock,
// so that readings of agents, probers and balancers cover the same time, and a probe is compared with the utilisation during that
// probe. If a machine's clock is slow, its readings are used one period later.
package tick

import (
	"context"
	"time"
)

// Until returns the time to the end of the present period. An end less than half a period away is skipped, because a
// timer may fire a moment before the wall clock reaches it, and the clock may have been set.
func Until(now time.Time, period time.Duration) time.Duration {
	wait := period - now.Sub(now.Truncate(period))
	if wait < period/2 {
		wait += period
	}
	return wait
}

// After returns the end of the period that follows the one that ended at the time last. If that end is past, or if it is no
// multiple of the period because the clock was set or the period changed, After returns the end of the present period. The returned
// time has now's monotonic reading, so waiting for it takes equally long if the wall clock is set meanwhile.
func After(last, now time.Time, period time.Duration) time.Time {
	wall := now.Round(0)
	next := last.Round(0).Add(period)
	if next.Equal(next.Truncate(period)) && next.After(wall) && next.Sub(wall) <= period {
		return now.Add(next.Sub(wall))
	}
	return now.Add(Until(now, period))
}

// Ends returns whether a period ended about now, give or take half of a shorter period that divides it.
func Ends(now time.Time, short, period time.Duration) bool {
	end := now.Round(short)
	return end.Equal(end.Truncate(period))
}

// Settle is how long after the end of a period its readings may still arrive: its last probe must be answered, and
// readings must be sent.
func Settle(period time.Duration) time.Duration {
	return min(period/5, 2*time.Second)
}

// SleepUntil waits until that moment as Sleep does.
func SleepUntil(ctx context.Context, at time.Time) bool { return Sleep(ctx, time.Until(at)) }

// Sleep waits and returns whether ctx has not ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
