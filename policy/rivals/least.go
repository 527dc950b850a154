package rivals

import (
	"cmp"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// leastMemory is what lsf and lr remember.
type leastMemory struct {
	Violation int `json:"violation,omitempty"` // consecutive snapshots with a measured violation
}

// leastInstance is what lsf and lr remember of an instance.
type leastInstance struct {
	Placed bool `json:"placed,omitempty"` // it has had its first share
	Waited int  `json:"waited,omitempty"` // lsf: snapshots in which it got no first share only because its severity was missing
}

func leastOf(m *policy.Member) *leastInstance { return policy.MemoryOf[leastInstance](m) }

// response is the measured response time in the SLO's metric, in milliseconds.
func response(m *policy.Member, in *policy.Input) (float64, bool) {
	if !m.Fresh {
		return 0, false
	}
	return m.Observation.LatencyMS.Of(in.Service.SLO.Metric)
}

// least acts only on a measured and confirmed violation. It adds an instance if there is only one, or if all instances
// that may take more load violate the objective.
func least(in *policy.Input, confirm int, g *policy.Group, st *policy.State, what string,
	value func(*policy.Member) (float64, bool)) quell.Plan {
	var plan quell.Plan
	violating, relief := 0, 0
	for _, m := range g.Ready {
		if r, ok := response(m, in); ok && r > in.Service.SLO.ThresholdMS() {
			violating++
			policy.AddReason(&plan, "violation", m.ID, "%s measured %.1f ms, above %.1f ms", m.ID, r, in.Service.SLO.ThresholdMS())
		} else if m.MayGain() {
			relief++
		}
	}
	mem := policy.Remembered[leastMemory](st)
	mem.Violation = policy.Consecutive(mem.Violation, violating > 0)
	switch {
	case violating == 0:
	case mem.Violation <= confirm:
		policy.AddReason(&plan, "confirming", "", "waiting for confirmation %d of %d", mem.Violation, confirm+1)
	case relief == 0:
		g.AddOne(in, &plan, "all_violate", "every instance violates")
	case reverse(g, value):
		policy.AddReason(&plan, "shift", "", "shares in reverse order of %s", what)
	}
	return plan
}

// welcome gives an equal share to each instance that never had a share, if may returns true for it. The others give up parts
// in proportion to their shares. An instance that was given a share of 0 keeps it.
func welcome(g *policy.Group, may func(*policy.Member) bool) {
	policy.RememberedOf[leastInstance](g)
	for i := range g.Members {
		if m := &g.Members[i]; !m.InService() {
			leastOf(m).Placed = false
		}
	}
	equal := 1 / float64(len(g.Ready))
	var settled float64 // the sum of the others' shares
	rest := 1.0
	for _, m := range g.Ready {
		if m.WeightNow() > 0 {
			leastOf(m).Placed = true
		}
		switch {
		case leastOf(m).Placed:
			leastOf(m).Waited = 0
			settled += m.Planned
		case g.Weightless || may(m):
			m.Planned = equal
			rest -= equal
		}
	}
	for _, m := range g.Ready {
		if leastOf(m).Placed && settled > 0 {
			m.Planned = m.Planned / settled * rest
		}
	}
}

// reverse assigns the instances' parts of the summed values in reverse order: the instance with the lowest value gets the
// largest part, and so on. Instances with equal values get equal shares; if all values are 0, all shares are equal. Instances
// without a value, such as new ones without an answer, keep their share. reverse returns whether any instance has a value.
func reverse(g *policy.Group, value func(*policy.Member) (float64, bool)) bool {
	type entry struct {
		*policy.Member
		value float64
	}
	var entries []entry
	var sum, rest float64
	for _, m := range g.Ready {
		if v, ok := value(m); ok {
			entries = append(entries, entry{m, v})
			sum += v
			rest += m.Planned
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.value, b.value) })
	n := len(entries)
	for i := 0; i < n; {
		j := i
		var shares float64
		for ; j < n && entries[j].value == entries[i].value; j++ {
			if sum > 0 {
				shares += entries[n-1-j].value / sum
			} else {
				shares += 1 / float64(n)
			}
		}
		for _, e := range entries[i:j] {
			e.Planned = rest * shares / float64(j-i)
			leastOf(e.Member).Placed = true // even if its share is 0
		}
		i = j
	}
	return n > 0
}
