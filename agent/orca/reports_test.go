package orca

import (
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// clock is a time that only moves when it is told to.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func reportsOf(services ...string) (*Reports, *clock) {
	c := &clock{time.Unix(1e9, 0)}
	r := New(c.now, slog.New(slog.DiscardHandler))
	r.Serve(services)
	return r, c
}

// weight is what Envoy and clients of gRPC compute from a report; false: they ignore it.
func weight(r *Reports, authority string) (float64, bool) {
	load := r.Load(authority)
	utilization := load.ApplicationUtilization
	if utilization == 0 {
		utilization = load.CpuUtilization
	}
	if utilization == 0 || load.RpsFractional == 0 {
		return 0, false
	}
	return load.RpsFractional / (utilization + load.Eps/load.RpsFractional), true
}

func TestTheWeightIsTheShare(t *testing.T) {
	for _, tc := range []struct {
		why         string
		use         map[quell.Resource]float64
		report      quell.LoadReport
		weight      float64
		utilization float64
	}{
		{"use over capacity", map[quell.Resource]float64{quell.Network: .3, quell.CPU: .9},
			quell.LoadReport{Share: .25, Resource: quell.Network, Capacity: new(.6), ValidS: 3}, 250_000, .5},
		{"an idle machine", map[quell.Resource]float64{quell.Network: 0},
			quell.LoadReport{Share: .25, Resource: quell.Network, Capacity: new(.6), ValidS: 3}, 250_000, leastUtilization},
		{"nearly no capacity", map[quell.Resource]float64{quell.Network: .9},
			quell.LoadReport{Share: .01, Resource: quell.Network, Capacity: new(1e-9), ValidS: 3}, 10_000, mostUtilization},
		{"no capacity known", map[quell.Resource]float64{quell.Network: .3, quell.CPU: .7}, quell.LoadReport{Share: .5, ValidS: 3}, 500_000, .7},
		{"nothing measured", nil, quell.LoadReport{Share: .5, Resource: quell.Network, Capacity: new(.6), ValidS: 3}, 500_000, leastUtilization},
		{"a drain: clients take the mean for a weight of 0", nil, quell.LoadReport{Share: 0, ValidS: 3}, 1, leastUtilization},
	} {
		r, _ := reportsOf("shop")
		r.Observe(tc.use)
		r.Tell("shop", tc.report)
		got, ok := weight(r, "10.0.0.1:80")
		if u := r.Load("").ApplicationUtilization; !ok || math.Abs(got-tc.weight) > 1e-6 || math.Abs(u-tc.utilization) > 1e-9 {
			t.Errorf("%s: weight %v (%v), utilization %v; want %v and %v", tc.why, got, ok, u, tc.weight, tc.utilization)
		}
	}
}

func TestReportsEnd(t *testing.T) {
	r, clock := reportsOf("shop")
	use := map[quell.Resource]float64{quell.CPU: .4, quell.Network: 1.2}
	r.Observe(use)
	if _, ok := weight(r, ""); ok {
		t.Error("there is a weight before the controller has said one")
	}
	r.Tell("shop", quell.LoadReport{Share: 1, ValidS: 3})
	clock.at = clock.at.Add(2999 * time.Millisecond)
	r.Observe(use)
	if w, ok := weight(r, ""); !ok || w != scale {
		t.Errorf("weight %v, %v before the report ends", w, ok)
	}
	clock.at = clock.at.Add(time.Millisecond)
	if _, ok := weight(r, ""); ok {
		t.Error("the report has not ended")
	}
	if load := r.Load(""); load.CpuUtilization != .4 || load.Utilization["network"] != 1 || load.ApplicationUtilization != 0 {
		t.Errorf("plain utilization is %v", load)
	}
	r.Tell("shop", quell.LoadReport{Share: 1, ValidS: 3})
	if _, ok := weight(r, ""); !ok {
		t.Error("a new report does not count")
	}
	r.Tell("shop", quell.LoadReport{})
	if _, ok := weight(r, ""); ok {
		t.Error("a report counts that was taken back")
	}
}

func TestSeveralServicesOnAMachine(t *testing.T) {
	r, _ := reportsOf("shop", "video")
	r.Tell("shop", quell.LoadReport{Share: .2, ValidS: 3})
	r.Tell("video", quell.LoadReport{Share: .7, ValidS: 3})
	r.Tell("gone", quell.LoadReport{Share: .1, ValidS: 3})
	for authority, want := range map[string]float64{"shop": 200_000, "video:9469": 700_000, "10.0.0.1:9469": 0, "gone": 0, "": 0} {
		if got, _ := weight(r, authority); math.Abs(got-want) > 1e-6 {
			t.Errorf("%q gets %v, want %v", authority, got, want)
		}
	}
	r.Serve([]string{"video"})
	if got, _ := weight(r, "10.0.0.1:9469"); math.Abs(got-700_000) > 1e-6 {
		t.Errorf("of one service that is left, the weight is %v", got)
	}
}

func TestIntervals(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		-time.Second: usual, 0: usual, time.Nanosecond: shortest, 5 * time.Second: 5 * time.Second, math.MaxInt64: longest,
	} {
		if got := every(asked); got != want {
			t.Errorf("asked for %v: every %v, want %v", asked, got, want)
		}
	}
}
