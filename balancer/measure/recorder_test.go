package measure

import (
	"log/slog"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
)

// How many requests found no instance is in the readings of the sampling period in which they came, and in no fast ones.
func TestRequestsWithoutAnInstance(t *testing.T) {
	var got []quell.Reading
	in := balancer.Service{Name: "shop", Period: 2 * time.Second, Fast: time.Second, Logger: slog.New(slog.DiscardHandler)}
	r := NewRecorder(in, func(list []quell.Reading) { got = append(got, list...) })
	instances, now := map[string][]string{"a": {"10.0.0.1:80"}, "b": {"10.0.0.2:80"}}, time.Unix(100, 0)
	for _, c := range []struct {
		requests int
		ends     bool    // the sampling period
		want     float64 // requests a second in its readings
	}{{1, false, 0}, {3, true, 2}, {0, false, 0}, {0, true, 0}} {
		for range c.requests {
			r.Unserved()
		}
		got, now = nil, now.Add(time.Second)
		r.window(instances, now, time.Second, c.ends)
		for _, reading := range got {
			rate, told := reading.Observation.Counters[quell.CounterUnserved]
			if want := c.want > 0 && !reading.Fast; told != want || want && rate != c.want {
				t.Errorf("%+v, want %g a second", reading, c.want)
			}
		}
		if whole := len(got) == 4; whole != c.ends {
			t.Errorf("%d readings", len(got))
		}
	}
}
