package policy

import (
	"slices"

	"github.com/quellhq/quell"
)

// leastSeverity is the LSF baseline (PRIMA, section V-D): on a violation, the instances' shares of the summed
// severity are handed out in reverse, the largest to the instance with the lowest severity.
func leastSeverity(in Input, g *group, st *State) quell.Plan {
	return least(in, g, st, "severity", func(m *member) (float64, bool) { return m.severity, m.hasSeverity })
}

// leastResponse is the LR baseline: the same with the measured response time.
func leastResponse(in Input, g *group, st *State) quell.Plan {
	return least(in, g, st, "response time", func(m *member) (float64, bool) { return m.response(in) })
}

// response is the measured response time in the SLO's metric, in milliseconds.
func (m *member) response(in Input) (float64, bool) {
	if !m.fresh {
		return 0, false
	}
	return m.Observation.LatencyMS.Of(in.Service.SLO.Metric)
}

// least acts on a measured and confirmed violation only. One instance alone, or a group in which every instance
// violates, gets one more.
func least(in Input, g *group, st *State, what string, value func(*member) (float64, bool)) quell.Plan {
	plan := quell.Plan{Weights: g.welcome()}
	violating := 0
	for _, m := range g.ready {
		if r, ok := m.response(in); ok && r > in.Service.SLO.ThresholdMS() {
			violating++
			addReason(&plan, "violation", m.ID, "%s measured %.1f ms, above %.1f ms", m.ID, r, in.Service.SLO.ThresholdMS())
		}
	}
	st.Violation = next(st.Violation, violating > 0)
	if st.Violation <= in.Service.Policy.Confirm {
		if violating > 0 {
			addReason(&plan, "confirming", "", "waiting for confirmation %d of %d", st.Violation, in.Service.Policy.Confirm+1)
		}
		return plan
	}
	if violating == len(g.ready) {
		if g.starting == 0 && len(g.ready) < in.Service.Group.Max {
			plan.Group = &quell.GroupChange{Add: 1}
			addReason(&plan, "all_violate", "", "every instance violates: adding 1")
		}
		return plan
	}
	if weights := reversed(g.ready, value); weights != nil {
		plan.Weights = weights
		addReason(&plan, "shift", "", "shares in reverse order of %s", what)
	}
	return plan
}

// welcome is the present weights, with an equal share for instances that have none.
func (g *group) welcome() map[string]float64 {
	weights := g.present()
	if len(weights) == 0 {
		return weights
	}
	equal := 1 / float64(len(weights))
	var sum float64
	for _, m := range g.ready {
		if weights[m.ID] == 0 {
			weights[m.ID] = equal
		}
		sum += weights[m.ID]
	}
	if quell.AtMost(sum, 1) {
		return weights
	}
	for id := range weights {
		weights[id] /= sum
	}
	return weights
}

// reversed sorts the instances by value and gives the one with the lowest value the largest share of the sum, and
// so on. Tied values share their shares equally; all zero means equal. Instances without a value get nothing; nil
// if none has one.
func reversed(ready []*member, value func(*member) (float64, bool)) map[string]float64 {
	type entry struct {
		id    string
		value float64
	}
	var entries []entry
	var sum float64
	for _, m := range ready {
		if v, ok := value(m); ok {
			entries = append(entries, entry{m.ID, v})
			sum += v
		}
	}
	if len(entries) == 0 {
		return nil
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		switch {
		case a.value < b.value:
			return -1
		case a.value > b.value:
			return 1
		}
		return 0
	})
	n := len(entries)
	weights := make(map[string]float64, len(ready))
	for _, m := range ready {
		weights[m.ID] = 0
	}
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
			weights[e.id] = shares / float64(j-i)
		}
		i = j
	}
	return weights
}
