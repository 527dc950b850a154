package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/parallel"
	"github.com/quellhq/quell/model"
)

// explain records the models' results for each instance: its capacity, and the response time at the load that the
// plan gives it after the guard.
func explain(in *Input, g *Group, plan *quell.Plan) {
	n, planned, dial := len(g.Rated), planned(in, g), in.Dial()
	found := make([]outcome, n)
	parallel.Parts(n, func(from, to int) {
		own := in.Apart(to-from < n)
		for i, m := range g.Rated[from:to] {
			found[from+i] = m.outcome(own, planned, g.Load)
		}
	})
	parallel.Together(n,
		func() { plan.Capacity = byID(g.Rated, func(i int) float64 { return g.Rated[i].Capacity }) },
		func() { plan.Used = byID(g.Rated, func(i int) float64 { return found[i].used }) },
		func() {
			plan.PredictedAtCapacityMS = byID(g.Rated, func(i int) float64 { return found[i].atCapacityMS })
		},
		func() { plan.PredictedMS = byID(g.Rated, func(i int) float64 { return found[i].plannedMS }) },
	)
	for i, m := range g.Rated {
		if !m.stays {
			delete(plan.PredictedMS, m.ID)
		}
		if m.MarginMS > 0 {
			quell.Put(&plan.MarginMS, m.ID, m.MarginMS)
		}
		if name := m.limitedBy(in); name != "" {
			quell.Put(&plan.Limiter, m.ID, name)
		}
		if found[i].cause != "" {
			quell.Put(&plan.Cause, m.ID, found[i].cause)
		}
		if why := &found[i].blame; why.Code != "" {
			plan.Reasons = append(plan.Reasons, *why)
		}
		m.blameByClassifier(dial, plan)
	}
}

// byID returns a map of the values of a list of instances.
func byID(list []*Member, of func(i int) float64) map[string]float64 {
	values := make(map[string]float64, len(list))
	for i, m := range list {
		values[m.ID] = of(i)
	}
	return values
}

// outcome is what the models say of an instance under the plan.
type outcome struct {
	used                    float64 // part of its capacity that it carries now
	atCapacityMS, plannedMS float64
	blame                   quell.Reason   // how neighbours slow it; without a code if they do not
	cause                   quell.Resource // the resource in which they do
}

// outcome returns what the models say of an instance in a group, nil if that is no station, at the group's load.
func (m *Member) outcome(in *Input, planned *Crowds, load float64) (o outcome) {
	o.used, o.atCapacityMS = m.used(), m.responseAt(in, full(planned, m), m.Capacity)
	if m.stays {
		o.plannedMS = m.responseAt(in, planned, in.following.Expected(m)*load)
	}
	if m.Bound().Measured > 0 {
		o.blame, o.cause = m.blame(in)
	}
	return o
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
	plan.Severity = byID(g.Rated, func(i int) float64 { return g.Rated[i].Bound().Severity })
}

// blame says how neighbours slow an instance, with the measured values that show it, and in which resource. It returns no reason if they do
// not, and no resource if that may be chance.
func (m *Member) blame(in *Input) (why quell.Reason, cause quell.Resource) {
	s, resource := m.Bound(), in.Contended[m.Binds].Resource
	if s.Own > 0 && s.Supposed-s.Own < model.SignificantUse {
		return why, "" // its own work is told apart
	}
	if s.Suspected() {
		return Reason("suspected", m.ID, "severity %.2f at own use %.3f: neighbours would take about %.3f of the %s. That is too little, or "+
			"was seen too briefly, to tell it from chance; meanwhile it counts", s.Severity, s.Use, s.Supposed, resource), ""
	}
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
	return Reason("interference", m.ID,
		"%s %.2f at own use %.3f: neighbours take about %.3f of the %s, so it can carry %.3f%s within %.0f ms%s",
		severity, s.Severity, s.Use, s.Supposed, resource, s.Capacity, amount, in.Service.SLO.ThresholdMS(), m.alsoSlowed(in)), resource
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
