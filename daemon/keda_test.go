package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/controller"
)

func TestWanted(t *testing.T) {
	now, four := time.Unix(1000, 0), 4
	known := controller.Status{Leading: true, Wanted: &four, At: now.Add(-5 * time.Second), SamplingS: 10}
	change := func(f func(*controller.Status)) controller.Status { s := known; f(&s); return s }
	for name, tc := range map[string]struct {
		status controller.Status
		why    string // "": known
	}{
		"known":          {known, ""},
		"standing by":    {change(func(s *controller.Status) { s.Leading = false }), "not the leader"},
		"just started":   {change(func(s *controller.Status) { s.Wanted = nil }), "no decision"},
		"stuck":          {change(func(s *controller.Status) { s.At = now.Add(-time.Minute) }), "1m0s ago"},
		"a long period":  {change(func(s *controller.Status) { s.At, s.SamplingS = now.Add(-5*time.Minute), 120 }), ""},
		"a missed one":   {change(func(s *controller.Status) { s.At, s.SamplingS = now.Add(-7*time.Minute), 120 }), "7m0s ago"},
		"clock set back": {change(func(s *controller.Status) { s.At = now.Add(time.Hour) }), ""},
	} {
		n, err := wanted(tc.status, now)
		if tc.why == "" && (n != 4 || err != nil) || tc.why != "" && (err == nil || !strings.Contains(err.Error(), tc.why)) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}
