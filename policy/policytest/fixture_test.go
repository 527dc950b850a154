package policytest

import "testing"

// A line says how many requests came per second, and how many were answered.
func TestSnapHasRates(t *testing.T) {
	o := Snap(t, 0, "i1 weight=1 use=0.5 rate=100 answered=90").Instances[0].Observation
	if o.RequestRate == nil || *o.RequestRate != 100 || o.AnsweredRate == nil || *o.AnsweredRate != 90 {
		t.Errorf("got %v and %v", o.RequestRate, o.AnsweredRate)
	}
}
