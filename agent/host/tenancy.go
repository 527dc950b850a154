package host

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/quellhq/quell"
)

// Tenancy is what the status tells a controller, at most quell.MostTenants of the groups: those that are slowed down most. It is nil before
// the first decision, and if no policy runs.
func (s Status) Tenancy() *quell.Tenancy {
	if s.Plan == nil {
		return nil
	}
	t := &quell.Tenancy{Policy: s.Policy, Why: short(s.ReasonOf(""))}
	if m := s.Machine; m != nil {
		if m.Sched != nil && m.WindowS > 0 {
			cores, used := m.Sched.Cores, m.Sched.RunS/m.WindowS
			t.Cores, t.Used = &cores, &used
		}
		if m.CPU != nil {
			t.Steal = &m.CPU.Steal
		}
	}
	for i := range s.Groups {
		t.Tenants = append(t.Tenants, s.tenant(&s.Groups[i]))
	}
	favour(t.Tenants)
	slices.SortStableFunc(t.Tenants, func(a, b quell.TenantState) int {
		return cmp.Or(-cmp.Compare(orNone(a.Slowdown), orNone(b.Slowdown)), -cmp.Compare(orNone(a.Processors), orNone(b.Processors)))
	})
	if more := len(t.Tenants) - quell.MostTenants; more > 0 {
		t.Tenants, t.More = t.Tenants[:quell.MostTenants], more
	}
	for _, list := range []map[string]string{s.Unread, s.Problems} {
		for _, what := range slices.Sorted(maps.Keys(list)) {
			if len(t.Problems) < quell.MostTenantProblems {
				t.Problems = append(t.Problems, short(what+": "+list[what]))
			}
		}
	}
	if err := t.Validate(); err != nil { // a figure that cannot be must not cost the whole reading
		return &quell.Tenancy{Policy: s.Policy, Problems: []string{short(err.Error())}}
	}
	return t
}

// short keeps the beginning of a text that is too long to be told.
func short(text string) string {
	text = strings.ToValidUTF8(text, "?")
	return strings.ToValidUTF8(text[:min(len(text), quell.MostTenantText)], "")
}

// shortName keeps the end of a name that is too long: of a path it is what tells groups apart.
func shortName(name string) string {
	if over := len(name) - quell.MostTenantName; over > 0 {
		return strings.ToValidUTF8(name[over:], "")
	}
	return name
}

func orNone(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// tenant is what the status says of a group.
func (s Status) tenant(in *quell.Instance) quell.TenantState {
	told := s.Plan.Tenants[in.ID]
	one := quell.TenantState{Name: shortName(in.ID), Wanted: told.Wanted, Slowdown: told.Slowdown, Importance: in.Share, Idle: told.Idle,
		Waits: s.Plan.Waits[in.ID].Share, Why: short(s.ReasonOf(in.ID))}
	if o := in.Observation; o != nil && o.Sched != nil && o.WindowS > 0 {
		one.Processors = new(o.Sched.RunS / o.WindowS)
		if one.Waits == nil {
			one.Waits = waited(o.Sched)
		}
	}
	for _, l := range s.Plan.Limits {
		switch {
		case l.Instance != in.ID || l.Resource != quell.CPU:
		case l.Unit == quell.WeightUnit:
			one.Weight = &l.Value
		default:
			one.Cap = &l.Value
		}
	}
	if why, failed := s.NotLimited[in.ID]; failed {
		one.Why = short("its limit is not in force: " + why)
	}
	return one
}

// waited is the part of the time in which a group's tasks wanted to run and waited instead; nil if the kernel does not report it.
func waited(s *quell.Sched) *float64 {
	if s.WaitS == nil || s.TaskRunS == nil || *s.WaitS+*s.TaskRunS <= 0 {
		return nil
	}
	return new(*s.WaitS / (*s.WaitS + *s.TaskRunS))
}

// favour says which groups get more, and which less, than their importance alone would give them: by their weights, relative to the mean,
// or because a cap is below what they want.
func favour(tenants []quell.TenantState) {
	const same = 0.05
	sum, weighted := 0.0, 0
	deserved := func(t *quell.TenantState) float64 { return *t.Weight / max(orNone(t.Importance), 1e-9) }
	held := false
	for i := range tenants {
		t := &tenants[i]
		if t.Importance == nil {
			t.Importance = new(1.0)
		}
		if t.Weight != nil && !t.Idle {
			sum, weighted = sum+deserved(t), weighted+1
		}
		held = held || bound(t)
	}
	for i := range tenants {
		switch t := &tenants[i]; {
		case t.Idle:
		case bound(t):
			t.Favour = quell.HeldBack
		case t.Weight != nil && deserved(t) > sum/float64(weighted)*(1+same), t.Weight == nil && held && orNone(t.Wanted) > 0:
			t.Favour = quell.Favoured
		case t.Weight != nil && deserved(t) < sum/float64(weighted)*(1-same):
			t.Favour = quell.HeldBack
		}
	}
}

// bound returns whether a group wants more than its cap.
func bound(t *quell.TenantState) bool { return t.Cap != nil && orNone(t.Wanted) > *t.Cap }
