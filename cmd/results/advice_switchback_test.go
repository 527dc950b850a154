package main

import "testing"

// A policy that is made worse on purpose is found worse within an hour, PRIMA is found better while neighbours come and go, and neither is
// when nobody disturbs. The page has more seeds.
func TestComparisonsFindTheBetterOne(t *testing.T) {
	for _, c := range comparisons {
		r, err := c.play(t.Context(), 9301)
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict != c.Want {
			t.Errorf("%s: %s", c.Name, r.Text())
		}
	}
}
