package controller

import (
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// Status says since when an instance, and the service, have been above the objective without a break.
func TestSinceWhenTheObjectiveIsMissed(t *testing.T) {
	c := assemble(&core{opts: Options{Service: testService()}}) // 75 ms
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for k, tc := range []struct {
		a, b          float64 // response times; 0: none
		since, a1, b1 int     // periods; -1: not missed
	}{
		{50, 50, -1, -1, -1}, {80, 50, 1, 1, -1}, {80, 90, 1, 1, 2}, {50, 90, 1, -1, 2}, {80, 90, 1, 4, 2}, {80, 0, 1, 4, -1},
		{75, 75, -1, -1, -1}, {80, 50, 7, 7, -1},
	} {
		s := Status{At: start.Add(time.Duration(k) * time.Second)}
		for i, v := range []float64{tc.a, tc.b} {
			row := InstanceStatus{ID: []string{"a", "b"}[i]}
			if v > 0 {
				row.LatencyMS = &v
			}
			s.Instances = append(s.Instances, row)
		}
		c.markMissed(&s)
		got := func(at *time.Time) int {
			if at == nil || at.IsZero() {
				return -1
			}
			return int(at.Sub(start) / time.Second)
		}
		if since, a, b := got(&s.MissedSince), got(s.Instances[0].MissedSince), got(s.Instances[1].MissedSince); since != tc.since ||
			a != tc.a1 || b != tc.b1 {
			t.Errorf("period %d: since %d, a %d, b %d; want %d, %d, %d", k, since, a, b, tc.since, tc.a1, tc.b1)
		}
	}
}

// What an instance can take follows from its capacity and what its own requests use, or those of the others if it has hardly any.
func TestHowManyRequestsAnInstanceCanTake(t *testing.T) {
	row := func(rate, use, capacity float64) InstanceStatus {
		return InstanceStatus{State: quell.Ready, RequestRate: &rate, Utilization: &use, Capacity: &capacity}
	}
	rows := []InstanceStatus{row(50, 0.25, 0.5), row(10, 0.05, 0.8), row(0, 0, 0.7), {ID: "no readings"}}
	canTake(rows)
	for i, want := range []float64{100, 160, 140} {
		if got := rows[i].CanTakeRate; got == nil || *got < want-1e-6 || *got > want+1e-6 {
			t.Errorf("instance %d: %v, want %v", i, got, want)
		}
	}
	if rows[3].CanTakeRate != nil {
		t.Error("an instance without a capacity can take something")
	}
	idle := []InstanceStatus{row(0, 0, 0.7)}
	if canTake(idle); idle[0].CanTakeRate != nil {
		t.Error("without requests it is known what they use")
	}
}

// Status names the time to the first byte, if the objective is about that.
func TestStatusNamesTheFirstByte(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.SLO.SetObjective("ttfb_p95") }, func(r *rig) {
		r.run(time.Second)
		if got := r.c.Status().SLO; got != "ttfb_p95 <= 75ms" {
			t.Error(got)
		}
	})
}
