package wallclock

import (
	"testing"
	"testing/synctest"
	"time"
)

// A clock that was set has another wall time, but durations measured with it stay right.
func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		began := time.Now()
		before := c.Now()
		time.Sleep(10 * time.Second)
		c.Set(-time.Hour)
		after := c.Now()
		if span := after.Sub(before); span != 10*time.Second {
			t.Errorf("%v by the monotonic clock, want 10 s", span)
		}
		if !before.Round(0).Equal(began) || !c.Wall().Equal(began.Add(10*time.Second-time.Hour)) {
			t.Errorf("the wall shows %v, then %v, from %v on", before.Round(0), c.Wall(), began)
		}
		if later := after.Add(time.Second); later.Sub(before) != 11*time.Second || !later.After(before) {
			t.Errorf("a second later: %v", later)
		}
	})
}
