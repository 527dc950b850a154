package policy

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quellhq/quell"
)

// A group whose metrics are gone, all or those of half of it, is not made smaller, although nothing shows any load.
// (kedacore/keda#1850, kubernetes/kubernetes#99394 and #105187)
func TestMissingMetricsAreNoCalm(t *testing.T) {
	busy := func(n int) string { return fmt.Sprintf("i%d weight=0.25 use=0.25 cap=0.3 age=%d", n, 1000-n) }
	for _, policy := range []string{"prima", "hpa", "static", "pid", "ice"} {
		for i := range 8 {
			silent, from := 1+i/2, 5*(i%2) // from the beginning, or later
			s := golden(policy, 75, 0)
			s.Group.Min, s.Group.Max, s.Guard.StaleAfter = 1, 8, 3
			tell(&s, "Utilization", 0.25)
			e := engine(t, s, goldenModels(t))
			var st State
			for k := range 100 {
				var rows []string
				for n := 1; n <= 4; n++ {
					if k >= from && n <= silent {
						rows = append(rows, fmt.Sprintf("i%d weight=0.25 age=%d silent", n, 1000-n))
					} else {
						rows = append(rows, busy(n))
					}
				}
				var plan quell.Plan
				if plan, st = e.Decide(snap(t, k, rows...), st); plan.Group != nil && len(plan.Group.Remove) > 0 {
					t.Fatalf("%s with %d of 4 silent from %d on, snapshot %d: %s; %v", policy, silent, from, k, brief(plan), plan.Reasons)
				}
			}
		}
	}
}

// Decisions that come faster than drains end never empty the pool: what drains is not counted as left. (hashicorp/nomad-autoscaler#376)
func TestScalingInFasterThanDrains(t *testing.T) {
	for _, policy := range []string{"prima", "hpa"} {
		s := golden(policy, 75, 0)
		s.Group.Min, s.Group.Max = 2, 8
		tell(&s, "Utilization", 0.5)
		e := engine(t, s, goldenModels(t))
		var st State
		draining := map[string]bool{}
		for k := range 60 {
			var rows []string
			for n := 1; n <= 6; n++ {
				if id := fmt.Sprintf("i%d", n); draining[id] {
					rows = append(rows, id+" draining use=0.01")
				} else {
					rows = append(rows, fmt.Sprintf("%s weight=%v use=0.01 cap=0.3 age=%d", id, 1/float64(6-len(draining)), 1000-n))
				}
			}
			var plan quell.Plan
			if plan, st = e.Decide(snap(t, k, rows...), st); plan.Group == nil {
				continue
			}
			for _, id := range plan.Group.Remove {
				draining[id] = true
			}
		}
		if left := 6 - len(draining); left != 2 {
			t.Errorf("%s: %d of 6 are left, and group.min is 2", policy, left)
		}
	}
}

// Outlier detection never ejects all hosts, nor nearly all. (envoyproxy/envoy#2671, istio/istio#20135)
func TestNotAllAreOutliers(t *testing.T) {
	for why, change := range map[string]func([]shown){
		"all are slow":        func(w []shown) { each(w, func(s *shown) { s.ms = 900 }) },
		"all but one is slow": func(w []shown) { each(w[1:], func(s *shown) { s.ms = 900 }) },
		"all fail":            func(w []shown) { each(w, func(s *shown) { s.errors = 1 }) },
		"all but one fail":    func(w []shown) { each(w[1:], func(s *shown) { s.errors = 1 }) },
		"half fail":           func(w []shown) { each(w[5:], func(s *shown) { s.errors = 0.5 }) },
	} {
		c := newFlock(t, 10, func(*OutlierSettings) {})
		for range 30 {
			c.second()
		}
		change(c.windows)
		for range 120 {
			plan := c.second()
			if len(plan.Factor) > 3 { // outlier.most is 0.3
				t.Fatalf("%s: %d of 10 are cut: %v", why, len(plan.Factor), plan.Reasons)
			}
			if slices.Contains([]string{"all are slow", "all fail"}, why) && len(plan.Factor) > 0 {
				t.Fatalf("%s: cut %+v: %v", why, plan.Factor, plan.Reasons)
			}
		}
	}
}
