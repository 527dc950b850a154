package redline

import (
	"math"
	"strings"
	"testing"
)

// Where a balancer gives more than shares say, steps of the share become smaller, so that steps of the rate do not become larger.
func TestStepsOfTheRate(t *testing.T) {
	for _, gain := range []float64{1, 2, 4, 8} {
		s := newService()
		s.part = func(share float64) float64 { return min(0.9, math.Pow(3*share, gain)/3) }
		x, err := New(Options{Instance: "i1", SLO: slo, Risk: 0.01}, s.period())
		if err != nil {
			t.Fatal(err)
		}
		for done := false; !done; {
			m := x.Next(s.period())
			s.share, done = m.Share, m.Done
		}
		r := x.Result()
		if r.Interrupted && gain < 8 || r.Use == nil && gain < 8 {
			t.Errorf("gain %g: %s", gain, r.Text(slo))
		}
		for i := 1; i < len(r.Levels); i++ {
			most := 1 + most
			if i == 1 {
				most = math.Pow(1+first, gain)
			}
			if step := r.Levels[i].Rate / r.Levels[i-1].Rate; step > most+0.001 {
				t.Errorf("gain %g: step %d raised the rate by %.0f%%", gain, i, 100*(step-1))
			}
		}
	}
}

// A balancer that gives nearly all requests to the largest weight ends the test in the first period of a step.
func TestALeapEndsTheTest(t *testing.T) {
	s := newService()
	s.part = func(share float64) float64 {
		if share > 1./3 {
			return 0.62
		}
		return 1. / 3
	}
	x, err := New(Options{Instance: "i1", SLO: slo, Risk: 0.01}, s.period())
	if err != nil {
		t.Fatal(err)
	}
	after := 0
	for done := false; !done; {
		m := x.Next(s.period())
		s.share, done = m.Share, m.Done
		if m.Share > 1./3 {
			after++
		}
	}
	r := x.Result()
	if want := "raised its part of the requests by 86%"; after != 1 || !r.Interrupted || !strings.Contains(r.Why, want) {
		t.Errorf("%d periods after the step: %s", after, r.Why)
	}
	if s.share != 1./3 {
		t.Errorf("the share at the end is %g", s.share)
	}
}
