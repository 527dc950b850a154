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

// A balancer without any instance says so once per sampling period, and how many requests it refused.
func TestABalancerWithoutInstances(t *testing.T) {
	var got []quell.Reading
	in := balancer.Service{Name: "shop", Balancer: "east", Period: 2 * time.Second, Fast: time.Second, Logger: slog.New(slog.DiscardHandler)}
	r := NewRecorder(in, func(list []quell.Reading) { got = append(got, list...) })
	now := time.Unix(100, 0)
	for _, requests := range []int{6, 0} {
		for range requests {
			r.Unserved()
		}
		got = nil
		r.window(nil, now.Add(time.Second), time.Second, false)
		r.window(nil, now.Add(2*time.Second), time.Second, true)
		now = now.Add(2 * time.Second)
		if len(got) != 1 {
			t.Fatalf("%d readings", len(got))
		}
		rate, told := got[0].Observation.Counters[quell.CounterUnserved]
		if got[0].Instance != quell.NoInstance || rate != float64(requests)/2 || told != (requests > 0) || got[0].Validate() != nil {
			t.Errorf("%+v after %d requests: %v", got[0], requests, got[0].Validate())
		}
	}
}

// A request that ends counts as open for the time that the instance had it, but not for the hour of a download, and not at all if it lasts
// as long as its ends like.
func TestHowLongARequestWasOpen(t *testing.T) {
	const hour = time.Hour
	for _, c := range []struct {
		why       string
		end       Ending
		firstByte bool
		open      time.Duration
		want      float64 // requests in flight on average of a window of 10 s
	}{
		{"a response", Ending{Status: 200}, false, 30 * time.Second, 3},
		{"a download", Ending{Status: 200}, false, hour, 6},
		{"an upgrade", Ending{Status: 101}, false, hour, 0},
		{"a stream", Ending{Status: 200, Stream: true}, false, hour, 0},
		{"a stream that its client left", Ending{By: ByClient, Phase: InAnswer, Status: 200, Stream: true}, false, hour, 0},
		{"a stream whose first byte counts", Ending{Status: 200, Stream: true}, true, 30 * time.Second, 3},
	} {
		var got []quell.Reading
		in := balancer.Service{Name: "shop", Period: 10 * time.Second, FirstByte: c.firstByte, Logger: slog.New(slog.DiscardHandler)}
		r := NewRecorder(in, func(list []quell.Reading) { got = list })
		r.Judge("10.0.0.1:80", "/", c.end, Request{Took: c.open, Open: c.open})
		r.window(map[string][]string{"a": {"10.0.0.1:80"}}, time.Unix(100, 0), 10*time.Second, true)
		if len(got) != 1 || *got[0].Observation.InFlight != c.want || got[0].Requests != 1 {
			t.Errorf("%s: %+v, want %g", c.why, got, c.want)
		}
	}
}
