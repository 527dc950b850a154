package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// explain records the models' results for each instance: its capacity, and the response time at the load that the
// plan gives it after the guard.
func explain(in *Input, g *Group, plan *quell.Plan) {
	n := len(g.Rated)
	plan.Capacity = make(map[string]float64, n)
	plan.Used = make(map[string]float64, n)
	plan.PredictedMS = make(map[string]float64, n)
	plan.PredictedAtCapacityMS = make(map[string]float64, n)
	planned, dial := planned(in, g), in.Dial()
	for _, m := range g.Rated {
		plan.Capacity[m.ID], plan.Used[m.ID] = m.Capacity, m.used()
		plan.PredictedAtCapacityMS[m.ID] = m.responseAt(in, full(planned, m), m.Capacity)
		if m.stays {
			plan.PredictedMS[m.ID] = m.responseAt(in, planned, in.following.Expected(m)*g.Load)
		}
		if m.MarginMS > 0 {
			quell.Put(&plan.MarginMS, m.ID, m.MarginMS)
		}
		if name := m.limitedBy(in); name != "" {
			quell.Put(&plan.Limiter, m.ID, name)
		}
		if m.Bound().Measured > 0 {
			m.blame(in, plan)
		}
		m.blameByClassifier(dial, plan)
	}
}

// planned returns the group's size and use under the plan; nil if the models do not describe it as a station.
func planned(in *Input, g *Group) *Crowds {
	if !in.Stationed() {
		return nil
	}
	stay := slices.DeleteFunc(slices.Clone(g.Rated), func(m *Member) bool { return !m.stays || in.following.Expected(m) == 0 })
	return new(in.crowd(stay, g.Load))
}

// full returns the group in which every instance carries as large a part of its capacity as a member does.
func full(planned *Crowds, m *Member) *Crowds {
	if planned == nil {
		return nil
	}
	all := *planned
	for i := range m.Senses {
		all[i].Use = m.Capacity / math.Max(m.Room(i), quell.SumTolerance)
	}
	return &all
}

// noteProbing reports instances whose probes differ in kind from the probes that the models were fitted to. These probes are not used,
// because durations of different kinds of probes cannot be compared.
func noteProbing(in *Input, g *Group, plan *quell.Plan) {
	for i, c := range in.Contended {
		var ids []string
		var found quell.Probing
		for k := range g.Members {
			if m := &g.Members[k]; m.Senses[i].otherwise {
				ids, found = append(ids, m.ID), *m.Observation.Probe[c.Resource].By
			}
		}
		if len(ids) > 0 {
			AddReason(plan, "probed_otherwise", "",
				"the models%s were made with probes of %s, and %s: %s tell no severity by them. %s, or train again",
				in.Of(i), c.Baseline.By().Size(), Named(ids), found.Size(), probeAs(c))
		}
	}
}

// probeAs says how to probe a resource in the way in which it was probed for the models.
func probeAs(c Contended) string {
	by := c.Baseline.By()
	switch c.Resource {
	case quell.Network:
		return fmt.Sprintf("Set probe.size to %d", by.Bytes)
	case quell.CPU:
		return fmt.Sprintf("Set agent.probing.run to %gms", by.RunMS)
	case quell.Memory:
		return fmt.Sprintf("Set agent.probing.buffer to %d", by.Bytes)
	}
	return fmt.Sprintf("Set agent.probing.writes to %t", by.Write)
}

// noteUntold reports instances that are judged without some resource, because its readings have been missing for too
// long.
func noteUntold(in *Input, g *Group, plan *quell.Plan) {
	if !in.Several() {
		return
	}
	for i, c := range in.Contended {
		var ids []string
		for _, m := range g.Rated {
			if m.Senses[i].Out {
				ids = append(ids, m.ID)
			}
		}
		if len(ids) > 0 {
			AddReason(plan, "untold", "", "no severity or no utilisation of the %s for more than %d period(s): %s judged without it",
				c.Resource, in.patience(), Named(ids))
		}
	}
}

// noteSeverity records the instances' severity, for every policy that uses it.
func noteSeverity(g *Group, plan *quell.Plan) {
	plan.Severity = make(map[string]float64, len(g.Rated))
	for _, m := range g.Rated {
		plan.Severity[m.ID] = m.Bound().Severity
	}
}

// blame reports how neighbours slow an instance, with the measured values that show it.
func (m *Member) blame(in *Input, plan *quell.Plan) {
	s, resource := m.Bound(), in.Contended[m.Binds].Resource
	if s.Own > 0 && s.Supposed-s.Own < model.SignificantUse {
		return // its own work is told apart
	}
	if s.Suspected() {
		AddReason(plan, "suspected", m.ID, "severity %.2f at own use %.3f: neighbours would take about %.3f of the %s. That is too little, or "+
			"was seen too briefly, to tell it from chance; meanwhile it counts", s.Severity, s.Use, s.Supposed, resource)
		return
	}
	quell.Put(&plan.Cause, m.ID, resource)
	severity := "severity"
	switch {
	case s.held:
		severity = "severity, held from before,"
	case s.Taken != nil:
		severity = "severity, by its own waiting,"
	}
	amount := ""
	if m.Binds > 0 {
		amount = fmt.Sprintf(" of it, %.3f%s,", m.Capacity, in.Of(0))
	}
	AddReason(plan, "interference", m.ID,
		"%s %.2f at own use %.3f: neighbours take about %.3f of the %s, so it can carry %.3f%s within %.0f ms%s",
		severity, s.Severity, s.Use, s.Supposed, resource, s.Capacity, amount, in.Service.SLO.ThresholdMS(), m.alsoSlowed(in))
}

// alsoSlowed names the other resources in which neighbours slow the instance.
func (m *Member) alsoSlowed(in *Input) string {
	var felt []string
	for i := range m.Senses {
		if s := &m.Senses[i]; i != int(m.Binds) && !s.Out && s.Measured > 0 {
			felt = append(felt, fmt.Sprintf("about %.3f of the %s", s.Supposed, in.Contended[i].Resource))
		}
	}
	if len(felt) == 0 {
		return ""
	}
	return "; they take " + strings.Join(felt, " and ") + ", too"
}
