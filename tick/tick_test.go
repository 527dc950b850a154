package tick

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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
