package acs

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// In a solo run the others have a small cap. The rate of the second period counts from then on.
func TestACSSoloRun(t *testing.T) {
	e, st := acsEngine(t, func(s *Settings) { s.By, s.Solo = Weights, time.Hour }), policy.State{}
	var solo []string
	for period := range 12 {
		rate := 40.
		if period == 3 {
			rate = 100 // in the second period of the solo run
		}
		s := during(working("a", 0.5, 0.5, &rate), working("b", 0.25, 0.75, nil))
		s.At = s.At.Add(time.Duration(period) * time.Second)
		var plan quell.Plan
		plan, st = e.Decide(s, reread(t, st))
		if plan.Reasons[0].Code == "acs_solo" {
			solo = append(solo, fmt.Sprint(period))
			capped := slices.IndexFunc(plan.Limits, func(l quell.Limit) bool { return l.Unit != quell.WeightUnit })
			if capped < 0 || plan.Limits[capped].Instance != "b" || plan.Limits[capped].Value != acsIdle {
				t.Errorf("period %d: %+v", period, plan.Limits)
			}
		} else if got := *plan.Tenants["a"].Slowdown; len(solo) > 0 && period > 4 && math.Abs(got-2.5) > 1e-9 {
			t.Errorf("period %d: slowdown %v, want 2.5", period, got)
		}
	}
	if len(solo) != 2 {
		t.Errorf("solo runs in periods %v, want two", solo)
	}
}
