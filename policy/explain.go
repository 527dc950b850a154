package policy

import (
	"math"
	"strings"

	"github.com/quellhq/quell"
)

// explain records what the models say of each instance: its capacity, and the response time at the load that the
// plan, as the guard left it, gives the instance.
func explain(in Input, g *group, plan *quell.Plan) {
	n := len(g.rated)
	plan.Capacity = make(map[string]float64, n)
	plan.PredictedMS = make(map[string]float64, n)
	plan.PredictedAtCapacityMS = make(map[string]float64, n)
	for _, m := range g.rated {
		plan.Capacity[m.ID] = m.capacity
		plan.PredictedAtCapacityMS[m.ID] = m.responseAt(in, m.capacity)
		if m.stays {
			plan.PredictedMS[m.ID] = m.responseAt(in, math.Min(m.share*g.load, in.Predictor.MaxUtilization()))
		}
		if *m.mem.Severity > 0 {
			m.blame(in, plan)
		}
	}
}

// noteProbing says that instances are probed in another way than the models were made by. Their probes are not used: what one kind
// of probe takes alone says nothing of another kind.
func noteProbing(in Input, g *group, plan *quell.Plan) {
	var ids []string
	bytes := int64(0)
	for i := range g.members {
		if m := &g.members[i]; m.otherwise {
			ids, bytes = append(ids, m.ID), m.Observation.Probe[in.senses.Resource].By.Bytes
		}
	}
	if len(ids) > 0 {
		addReason(plan, "probed_otherwise", "", "the models were made with probes of %d bytes, and %s: %d bytes tell no severity by them. Set probe.size to %d, or train again",
			in.Baseline.By().Bytes, strings.Join(ids, ", "), bytes, in.Baseline.By().Bytes)
	}
}

// noteSeverity records what the instances feel, of any policy that goes by it.
func noteSeverity(g *group, plan *quell.Plan) {
	plan.Severity = make(map[string]float64, len(g.rated))
	for _, m := range g.rated {
		plan.Severity[m.ID] = m.severity
	}
}

// responseAt predicts the response time, in milliseconds, at another utilisation while U_int holds.
func (m *member) responseAt(in Input, use float64) float64 {
	return in.Predictor.ResponseTime(use, in.Predictor.SeverityAt(use, m.interfering))
}

// blame names the neighbours' part in an instance's state, with the evidence.
func (m *member) blame(in Input, plan *quell.Plan) {
	resource := in.senses.Resource
	if plan.Cause == nil {
		plan.Cause = map[string]quell.Resource{}
	}
	plan.Cause[m.ID] = resource
	severity := "severity"
	if m.mem.Held > 0 {
		severity = "severity, held from before,"
	}
	addReason(plan, "interference", m.ID, "%s %.2f at own use %.3f: neighbours take about %.3f of the %s, so it can carry %.3f within %.0f ms",
		severity, m.severity, m.use, m.interfering, resource, m.capacity, in.Service.SLO.ThresholdMS())
}
