package measure

import (
	"math"
	"testing"
	"time"
)

// Consecutive windows are combined into one: counts are added, histograms are merged, and the number of open requests is averaged over
// time.
func TestStretch(t *testing.T) {
	var s Stretch
	whole := New()
	for i, took := range []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 90 * time.Millisecond} {
		w := New()
		for _, tally := range []*Tally{w, whole} {
			tally.Arrived, tally.Requests = tally.Arrived+3, tally.Requests+2
			tally.Errors++
			tally.Moved += int64(i)
			tally.Latency(took)
			tally.Connect(took / 10)
		}
		s.Add(w, time.Duration(i+1)*time.Second, float64(i))
	}
	at := time.Unix(100, 0)
	got, err := s.Reading(at)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := whole.Reading(at, 6*time.Second, (0*1+1*2+2*3)/6.)
	if got.Requests != want.Requests || got.Errors != want.Errors || string(got.LatencyHDR) != string(want.LatencyHDR) ||
		string(got.ConnectHDR) != string(want.ConnectHDR) {
		t.Errorf("%+v, want %+v", got, want)
	}
	g, w := got.Observation, want.Observation
	if g.WindowS != 6 || *g.RequestRate != *w.RequestRate || *g.ErrorRate != *w.ErrorRate || math.Abs(*g.InFlight-*w.InFlight) > 1e-9 ||
		*g.LatencyMS.Mean != *w.LatencyMS.Mean {
		t.Errorf("%+v, want %+v", g, w)
	}
}
