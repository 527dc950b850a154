package tick

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell/internal/wallclock"
	"pgregory.net/rapid"
)

func TestUntil(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		period := time.Duration(rapid.Int64Range(int64(10*time.Millisecond), int64(time.Hour)).Draw(t, "period"))
		now := time.Unix(0, rapid.Int64Range(0, 4e18).Draw(t, "now"))
		wait := Until(now, period)
		if wait < period/2 || wait > period+period/2 {
			t.Fatalf("wait %v of a period of %v", wait, period)
		}
		if end := now.Add(wait); !end.Equal(end.Truncate(period)) {
			t.Fatalf("the period ends at %v, which is no whole multiple of %v", end, period)
		}
	})
}

func TestEnds(t *testing.T) {
	at := func(seconds float64) time.Time { return time.Unix(0, int64(seconds*1e9)) }
	for seconds, want := range map[float64]bool{9.999: true, 10: true, 10.3: true, 9: false, 11: false, 10.6: false, 0: true} {
		if got := Ends(at(seconds), time.Second, 10*time.Second); got != want {
			t.Errorf("ten seconds end at %g s: %v", seconds, got)
		}
	}
}

func TestAfter(t *testing.T) {
	at := func(seconds float64) time.Time { return time.Unix(0, int64(seconds*1e9)) }
	for _, c := range []struct {
		why             string
		last, now, want float64
	}{
		{"at once", 10, 10.001, 11},
		{"late, but in time for the next", 10, 10.95, 11},
		{"the next has passed", 10, 11.1, 12},
		{"it has just passed, or is near: the one after", 10, 11.9, 13},
		{"the clock was set forward", 10, 3600.4, 3601},
		{"and back", 3600, 10.4, 11},
		{"by less than a period", 10.3, 10.4, 11},
	} {
		if got := After(at(c.last), at(c.now), time.Second); !got.Equal(at(c.want)) {
			t.Errorf("%s: %v after %v, at %v; want %v", c.why, got.Sub(at(0)), c.last, c.now, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		period := time.Duration(rapid.Int64Range(int64(10*time.Millisecond), int64(time.Hour)).Draw(t, "period"))
		last := time.Unix(0, rapid.Int64Range(0, 4e18).Draw(t, "last"))
		now := last.Add(time.Duration(rapid.Int64Range(-1e12, 1e12).Draw(t, "later")))
		next := After(last, now, period)
		if !next.Equal(next.Truncate(period)) || !next.After(now) || next.Sub(now) > period+period/2 {
			t.Fatalf("%v is followed by %v at %v", last, next, now)
		}
	})
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		if !Sleep(ctx, time.Second) || time.Since(began) != time.Second {
			t.Errorf("slept %v of 1 s", time.Since(began))
		}
		cancel()
		if Sleep(ctx, time.Hour) || time.Since(began) != time.Second {
			t.Error("it sleeps on after its context has ended")
		}
	})
}

// Waiting for the end of a period takes equally long if the wall clock is set meanwhile.
func TestAfterIsWaitedForByTheMonotonicClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := wallclock.New()
		now := clock.Now()
		for name, last := range map[string]time.Time{"first": {}, "next": now.Truncate(time.Second)} {
			end := After(last, now, time.Second)
			wait := end.Sub(clock.Now())
			clock.Set(-time.Hour)
			if left := end.Sub(clock.Now()); left != wait {
				t.Errorf("%s: after the clock was set back, %v are left of %v", name, left, wait)
			}
			clock.Set(time.Hour)
		}
	})
}

// Looks go on at the same pace from one waiting to the next. They are fewer if they take long, and the waiting still ends in time.
func TestSubsamples(t *testing.T) {
	for takes, want := range map[time.Duration]int{0: 33, 3 * time.Millisecond: 17, 2 * time.Second: 4} {
		synctest.Test(t, func(t *testing.T) {
			looks, began := 0, time.Now()
			g := Subsamples{Every: 300 * time.Millisecond, Pause: 200, Look: func(now time.Time) {
				if looks++; !now.Equal(time.Now()) {
					t.Errorf("it looks at %v, and it is told %v", time.Now(), now)
				}
				time.Sleep(takes)
			}}
			for i := range 10 {
				end := began.Add(time.Duration(i+1) * time.Second)
				if !g.Until(t.Context(), end) || takes < time.Second && !time.Now().Equal(end) {
					t.Errorf("takes %v: it waited until %v, not %v", takes, time.Now(), end)
				}
			}
			if looks != want {
				t.Errorf("takes %v: %d looks, want %d", takes, looks, want)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if g.Until(ctx, time.Now().Add(time.Hour)) {
				t.Error("it looks on after its context has ended")
			}
		})
	}
}
