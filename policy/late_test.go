package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// An instance that has been starting for two hours is no reason to wait: others are started, it is given up, and the plan says so.
func TestStartingForEver(t *testing.T) {
	for name, change := range map[string]func(*quell.Service){
		"hpa":    orNothing(nil),
		"static": func(s *quell.Service) { tell(s, "Utilization", 0.3) },
		"prima":  func(s *quell.Service) { tell(s, "ScaleOut", quell.One) },
	} {
		s := golden(name, 75, 0)
		s.Group.Max = 4
		change(&s)
		e := engine(t, s, goldenModels(t))
		var st policy.State
		added, given := 0, ""
		for k := range 50 {
			var plan quell.Plan
			plan, st = e.Decide(snap(t, k, "i1 weight=1 use=0.9 cap=0.3", "i2 starting age=7200"), st)
			if plan.Group != nil {
				added += plan.Group.Add
			}
			if plan.Group != nil && slices.Contains(plan.Group.Remove, "i2") {
				given = lateText(plan)
			}
		}
		if want := "i2 has been starting for 2h"; added == 0 || !strings.HasPrefix(given, want) || !strings.HasSuffix(given, "giving it up") {
			t.Errorf("%s: added %d, given up because %q", name, added, given)
		}
	}
}

func lateText(p quell.Plan) string {
	for _, r := range p.Reasons {
		if r.Code == "start_overdue" {
			return r.Text
		}
	}
	return ""
}

// Up to group.startup an instance counts as coming. Up to twice that it may still come, and does not count.
func TestALateStart(t *testing.T) {
	s := golden("prima", 75, 0)
	s.Group.Max, s.Group.Startup = 4, 30e9
	tell(&s, "ScaleOut", quell.One)
	for age, want := range map[string]bool{"29": false, "31": true, "59": true} {
		plan, _ := engine(t, s, goldenModels(t)).Decide(snap(t, 0, "i1 weight=1 use=0.9 cap=0.3", "i2 starting age="+age), policy.State{})
		if adds := plan.Group != nil && plan.Group.Add > 0; adds != want || plan.Group != nil && len(plan.Group.Remove) > 0 {
			t.Errorf("at the age of %s s: %+v %v", age, plan.Group, plan.Reasons)
		}
	}
}

// A late instance blocks neither scaling in nor group.min, and is not what a smaller group removes.
func TestALateStartIsNotInTheWay(t *testing.T) {
	late := "i4 starting age=40"
	idle := []string{
		"i1 weight=0.34 use=0.05 cap=0.3 age=900", "i2 weight=0.33 use=0.05 cap=0.3 age=800", "i3 weight=0.33 use=0.05 cap=0.3 age=700",
	}
	for why, c := range map[string]struct {
		policy   string
		min, max int
		rows     []string
		want     string
	}{
		"prima scales in":          {"prima", 1, 4, append(idle, late), "i1=1 -i2 -i3 scale_in start_overdue"},
		"group.min is filled":      {"static", 2, 4, []string{"i1 weight=1 use=0.05 cap=0.3", late}, "i1=1 +1 group_min start_overdue"},
		"group.max is kept":        {"prima", 1, 2, []string{"i1 weight=1 use=0.9 cap=0.3", late}, "i1=1 overload start_overdue"},
		"a smaller group.max":      {"static", 1, 2, append(idle, late), "i1=0.5 i2=0.5 -i3 group_max start_overdue"},
		"the new one of a replace": {"prima", 1, 4, []string{"i1 weight=1 use=0.2 cap=0.3", "i2 starting age=900 for=i1"}, "i1=1"},
		"one that a person holds":  {"static", 1, 4, []string{"i1 weight=1 use=0.2 cap=0.3", "i2 starting age=900 held"}, "i1=1 held"},
	} {
		s := golden(c.policy, 75, 0)
		s.Group.Min, s.Group.Max, s.Group.Startup = c.min, c.max, 30e9
		plan, _ := engine(t, s, goldenModels(t)).Decide(snap(t, 0, c.rows...), policy.State{})
		if got := brief(plan); got != c.want {
			t.Errorf("%s: %s, want %s; %v", why, got, c.want, plan.Reasons)
		}
	}
}

// The age of an instance that comes back after a person held it says nothing about its start. A protected one is never given up.
func TestAStartBeginsAnew(t *testing.T) {
	for row, want := range map[string]bool{"i2 starting age=7200": true, "i2 starting": true} {
		s := golden("static", 75, 0)
		s.Group.Startup = period * 3e9
		e := engine(t, s, nil)
		_, st := e.Decide(snap(t, 0, "i1 weight=1 use=0.2", "i2 held age=7190"), policy.State{})
		var given []int
		for k := range 12 {
			var plan quell.Plan
			plan, st = e.Decide(snap(t, k+1, "i1 weight=1 use=0.2", row), st)
			if plan.Group != nil && slices.Contains(plan.Group.Remove, "i2") {
				given = append(given, k)
			}
		}
		if gone := len(given) > 0; gone != want || gone && given[0] != 2*3+2 {
			t.Errorf("%s: given up in %v", row, given)
		}
	}
	s := golden("static", 75, 0)
	s.Group.Protected = []string{"i2"}
	e := engine(t, s, nil)
	var st policy.State
	for k := range 5 {
		var plan quell.Plan
		plan, st = e.Decide(snap(t, k, "i1 weight=1 use=0.2", "i2 starting age=7200"), st)
		if plan.Group != nil || !strings.HasSuffix(lateText(plan), "it does not count as coming") {
			t.Errorf("a protected one: %+v %v", plan.Group, plan.Reasons)
		}
	}
}

// Ordered instances that are no longer waited for may still come: the group's bound holds with them.
func TestInstancesThatMayCome(t *testing.T) {
	for _, c := range []struct {
		policy   string
		max, may int
		rows     []string
		want     string
	}{
		{"prima", 4, 3, []string{"i1 weight=1 use=0.9 cap=0.3"}, "i1=1 overload"},
		{"prima", 4, 2, []string{"i1 weight=1 use=0.9 cap=0.3"}, "i1=1 +1 capacity_short"},
		{"hpa", 4, 3, []string{"i1 weight=1 use=0.9 cap=0.3"}, "i1=1 overload"},
		{"static", 4, 3, []string{"i1 weight=1 use=0.9 cap=0.3"}, "i1=1 overload"},
		{"static", 4, 4, nil, ""}, // group.min is 2
		{"static", 4, 3, nil, "+1 group_min"},
	} {
		s := golden(c.policy, 75, 0)
		s.Group.Min, s.Group.Max = 1, c.max
		if len(c.rows) == 0 {
			s.Group.Min = 2
		}
		tell(&s, "Utilization", 0.3)
		in := snap(t, 0, c.rows...)
		in.MayCome = c.may
		if plan, _ := engine(t, s, goldenModels(t)).Decide(in, policy.State{}); brief(plan) != c.want {
			t.Errorf("%s with %d that may come: %s, want %s; %v", c.policy, c.may, brief(plan), c.want, plan.Reasons)
		}
	}
}
