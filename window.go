package quell

import (
	"fmt"
	"time"
)

// Redline says when the controller tests instances at their red line by itself. The zero value means never.
type Redline struct {
	Nightly   Window   // each day, in local time
	Instances []string // that are tested in turn; empty: all
	Tests     int      // the most tests in one window, one after the other
	Risk      float64  // the share of the service's requests that may miss the objective because of a test
}

// Window is a part of each day, in local time. The zero value is no time at all.
type Window struct {
	From, To time.Duration // since midnight, whole minutes; if To is not after From, the window goes over midnight
}

const day = 24 * time.Hour

// Length is how long the window is on a day of 24 hours.
func (w Window) Length() time.Duration { return (w.To - w.From + day) % day }

// Left returns how long a window still lasts, by the clock on the wall, and whether the time lies in it.
func (w Window) Left(now time.Time) (time.Duration, bool) {
	since := (sinceMidnight(now) - w.From + day) % day
	return w.Length() - since, since < w.Length()
}

func sinceMidnight(at time.Time) time.Duration {
	h, m, s := at.Clock()
	return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second + time.Duration(at.Nanosecond())
}

// Next returns when the window begins next, after now. If the clock jumps over that time on a day, Next is where the clock goes on.
func (w Window) Next(now time.Time) time.Time {
	y, m, d := now.Date()
	for ahead := 0; ; ahead++ {
		at := time.Date(y, m, d+ahead, int(w.From/time.Hour), int(w.From%time.Hour/time.Minute), 0, 0, now.Location())
		if at.After(now) {
			return at
		}
	}
}

// String is the window as configurations have it, as in 02:00-04:30.
func (w Window) String() string {
	clock := func(t time.Duration) string { return fmt.Sprintf("%02d:%02d", t/time.Hour, t%time.Hour/time.Minute) }
	return clock(w.From) + "-" + clock(w.To)
}
