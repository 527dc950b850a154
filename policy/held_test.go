package policy_test

import (
	"testing"

	"github.com/quellhq/quell"
)

// An instance that a person took out has no capacity, others carry its load, and no plan removes or replaces it.
func TestHeldInstances(t *testing.T) {
	for _, tc := range []struct {
		why, policy string
		change      func(*quell.Service)
		rows        []string
		want        string
	}{
		{"its capacity is missing: one is added", "prima", nil, []string{"i1 weight=1 use=0.5 cap=0.5", "i2 held use=0.1 cap=0.5"},
			"i1=1 +1 capacity_short held"},
		{"what is left suffices", "prima", nil, []string{"i1 weight=1 use=0.4 cap=0.5", "i2 held use=0 cap=0.5"}, "i1=1 held"},
		{"an old reading of it is no load", "prima", nil, []string{"i1 weight=1 use=0.4 cap=0.5", "i2 held use=0.4 cap=0.5 seen=60"},
			"i1=1 held"},
		{"it is no surplus", "prima", nil,
			[]string{"i1 weight=0.5 use=0.1 cap=0.5", "i2 weight=0.5 use=0.1 cap=0.5", "i3 held use=0 cap=0.5"}, "i1=1 -i2 scale_in held"},
		{"it takes up room", "prima", groupMax(2), []string{"i1 weight=1 use=0.6 cap=0.5", "i2 held use=0 cap=0.5"}, "i1=1 overload held"},
		{"it does not count for the least size", "static", func(s *quell.Service) { s.Group.Min = 2 }, []string{"i1 weight=1", "i2 held"},
			"i1=1 +1 group_min held"},
		{"a fleet that stays asks for nothing", "static", func(s *quell.Service) { s.Group.Min, s.Group.Max = 2, 2 },
			[]string{"i1 weight=1", "i2 held"}, "i1=1 held"},
		{"nothing else goes to make room for it", "static", groupMax(1), []string{"i1 weight=1", "i2 held"}, "i1=1 held"},
		{"too many: not the held one goes", "static", groupMax(1), []string{"i1 weight=0.5 age=9", "i2 weight=0.5 age=5", "i3 held age=1"},
			"i1=1 -i2 group_max held"},
		{"hpa counts without it", "hpa", func(s *quell.Service) { tell(s, "Utilization", .5) }, []string{"i1 weight=1 use=0.9", "i2 held use=0"},
			"i1=1 +1 utilization held"},
		{"lr shares without it", "lr", nil, []string{"i1 weight=0.5 lat=10", "i2 weight=0.5 lat=90", "i3 held lat=90"},
			"i1=0.9 i2=0.1 violation shift held"},
		{"all of them: the least size is started", "static", nil, []string{"i1 held"}, "+1 group_min held"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			s := golden(tc.policy, 75, 0)
			s.Guard.StaleAfter = 3
			orNothing(tc.change)(&s)
			play(t, engine(t, s, goldenModels(t)), at(tc.want, tc.rows...))
		})
	}
}

func TestAHeldInstanceIsNotReplacedAsFailed(t *testing.T) {
	failed := at("i1=1 held", "i1 weight=1", "i2 failed held")
	play(t, engine(t, guarding("static", func(*quell.Service) {}), nil), failed, failed, failed,
		at("i1=1", "i1 weight=1", "i2 failed"), at("i1=1 -i2 failed", "i1 weight=1", "i2 failed"))
}
