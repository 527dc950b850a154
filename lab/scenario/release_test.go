package scenario

import (
	"slices"
	"testing"
	"time"
)

// A release moves through the hosts of a group one after the other; another one may begin before it is through.
func TestReleases(t *testing.T) {
	sc := &Scenario{
		Duration: time.Minute,
		Hosts:    []Host{{ID: "h1", Group: "h"}, {ID: "h2", Group: "h"}, {ID: "x"}},
		Timeline: []Event{
			{At: 10 * time.Second, Release: &Release{Host: "h", Demand: 1.5, Every: 10 * time.Second}},
			{At: 15 * time.Second, Release: &Release{Host: "x", Demand: 2}},
			{At: 30 * time.Second, Release: &Release{Host: "h", Demand: 1}},
		},
	}
	want := []HostRelease{
		{"h1", 10 * time.Second, 1.5}, {"x", 15 * time.Second, 2}, {"h2", 20 * time.Second, 1.5}, {"h1", 30 * time.Second, 1},
		{"h2", 30 * time.Second, 1},
	}
	if got := sc.Releases(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	before := sc.Timeline[0].Release
	sc.Stretch(2 * time.Minute)
	if got := sc.Releases(); got[2] != (HostRelease{"h2", 40 * time.Second, 1.5}) || before.Every != 10*time.Second {
		t.Errorf("in twice the time: %v; the original has %v", got, before.Every)
	}
}
