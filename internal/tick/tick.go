// Package tick gives everybody the same sampling periods. Each ends at a whole multiple of its length on the wall clock,
// so that what agents, probers and balancers tell of one period is of the same stretch of time: a probe is judged by
// the utilisation at which it was taken. Where clocks disagree, what comes late is decided on one period later.
package tick

import (
	"context"
	"time"
)

// Until returns the time to the end of the present period. An end less than half a period away is passed over: a timer
// may fire a moment before the wall clock is there, and the clock may have been set.
func Until(now time.Time, period time.Duration) time.Duration {
	wait := period - now.Sub(now.Truncate(period))
	if wait < period/2 {
		wait += period
	}
	return wait
}

// After returns the end of the period after the one that ended at last. Where that is over, or not of this grid, because the
// clock was set or the period has changed, it is the end of the present period. The wall clock says which moment that is; the time
// returned has now's monotonic reading, so whoever waits for it waits as long if the wall clock is set meanwhile.
func After(last, now time.Time, period time.Duration) time.Time {
	wall := now.Round(0)
	next := last.Round(0).Add(period)
	if next.Equal(next.Truncate(period)) && next.After(wall) && next.Sub(wall) <= period {
		return now.Add(next.Sub(wall))
	}
	return now.Add(Until(now, period))
}

// Ends says whether a period ended at about now, where moments are told apart by a shorter one that divides it.
func Ends(now time.Time, short, period time.Duration) bool {
	end := now.Round(short)
	return end.Equal(end.Truncate(period))
}

// Settle is how long after the end of a period its readings may still be on their way: its last probe is answered, its
// readings travel.
func Settle(period time.Duration) time.Duration {
	return min(period/5, 2*time.Second)
}

// SleepUntil is Sleep until that moment.
func SleepUntil(ctx context.Context, at time.Time) bool { return Sleep(ctx, time.Until(at)) }

// Sleep waits and says whether ctx is still alive.
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
