package policy_test

import (
	"fmt"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// A group whose metrics are gone, all or those of half of it, is not made smaller, although nothing shows any load.
// (kedacore/keda#1850, kubernetes/kubernetes#99394 and #105187)
func TestMissingMetricsAreNoCalm(t *testing.T) {
	busy := func(n int) string { return fmt.Sprintf("i%d weight=0.25 use=0.25 cap=0.3 age=%d", n, 1000-n) }
	for _, name := range []string{"prima", "hpa", "static", "pid", "ice"} {
		for i := range 8 {
			silent, from := 1+i/2, 5*(i%2) // from the beginning, or later
			s := golden(name, 75, 0)
			s.Group.Min, s.Group.Max, s.Guard.StaleAfter = 1, 8, 3
			tell(&s, "Utilization", 0.25)
			e := engine(t, s, goldenModels(t))
			var st policy.State
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
					t.Fatalf("%s with %d of 4 silent from %d on, snapshot %d: %s; %v", name, silent, from, k, brief(plan), plan.Reasons)
				}
			}
		}
	}
}

// Decisions that come faster than drains end never empty the pool: what drains is not counted as left. (hashicorp/nomad-autoscaler#376)
func TestScalingInFasterThanDrains(t *testing.T) {
	for _, name := range []string{"prima", "hpa"} {
		s := golden(name, 75, 0)
		s.Group.Min, s.Group.Max = 2, 8
		tell(&s, "Utilization", 0.5)
		e := engine(t, s, goldenModels(t))
		var st policy.State
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
			t.Errorf("%s: %d of 6 are left, and group.min is 2", name, left)
		}
	}
}
