package policy_test

import (
	"testing"

	"github.com/quellhq/quell/policy"
)

// An instance that the provider refuses to end still runs: the group's bound holds with it, and no instance that serves is removed for it.
func TestInstancesThatCannotBeStopped(t *testing.T) {
	stuck, busy := "i8 draining stuck", "i1 weight=1 use=0.9 cap=0.3"
	idle := []string{"i1 weight=0.5 use=0.02 cap=0.3 age=900", "i2 weight=0.5 use=0.02 cap=0.3 age=800"}
	for _, c := range []struct {
		policy   string
		min, max int
		rows     []string
		want     string
	}{
		{"prima", 1, 2, []string{busy, stuck}, "i1=1 overload"},
		{"prima", 1, 3, []string{busy, stuck}, "i1=1 +1 capacity_short"},
		{"prima", 1, 2, []string{busy, "i8 draining"}, "i1=1 +1 capacity_short"}, // it is about to end
		{"hpa", 1, 2, []string{busy, stuck}, "i1=1 overload"},
		{"static", 1, 2, []string{busy, stuck}, "i1=1 overload"},
		{"static", 2, 2, []string{"i1 weight=1 use=0.02 cap=0.3", stuck}, "i1=1"},
		{"static", 2, 2, append(idle, stuck), "i1=0.5 i2=0.5"},                     // started before it was refused
		{"prima", 2, 3, append(idle, stuck, "i9 draining stuck"), "i1=0.5 i2=0.5"}, // not below group.min either
	} {
		s := golden(c.policy, 75, 0)
		s.Group.Min, s.Group.Max = c.min, c.max
		tell(&s, "Utilization", 0.3)
		if plan, _ := engine(t, s, goldenModels(t)).Decide(snap(t, 0, c.rows...), policy.State{}); brief(plan) != c.want {
			t.Errorf("%s, %d to %d, %q: %s, want %s; %v", c.policy, c.min, c.max, c.rows, brief(plan), c.want, plan.Reasons)
		}
	}
}
