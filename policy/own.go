package policy

import (
	"maps"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/ownwork"
)

// learnedCost returns the use per request that an engine's models know for a type of instance.
func (e *Engine) learnedCost(known *model.Learner) func(quell.Resource, string) float64 {
	contended := e.contended
	if e.learning != nil {
		now, _ := e.inForce(known)
		contended = now.contended
	}
	return func(r quell.Resource, instanceType string) float64 {
		for i := range contended {
			if c := &contended[i]; c.Resource == r && c.Predictor != nil {
				if per, ok := c.Of(instanceType).Predictor.PerRequest(); ok {
					return per
				}
			}
		}
		return 0
	}
}

// noteOwnWork reports what instances do beside their requests.
func noteOwnWork(g *Group, plan *quell.Plan) {
	for i := range g.Members {
		m := &g.Members[i]
		if !m.Fresh || len(m.Observation.OwnWork) == 0 {
			continue
		}
		for _, r := range slices.Sorted(maps.Keys(m.Observation.OwnWork)) {
			use, _ := m.Observation.ForRequests(r)
			others := m.Observation.Others[r]
			if others >= ownwork.Least {
				AddReason(plan, otherServices, m.ID, "requests of other services use %.3f of its %s, and its own %.3f: these can use less of it",
					others, r, use)
			}
			work := quell.OwnWork{Resource: r, Use: m.Observation.OwnWork[r] - others}
			if work.Use < TracesOfUse {
				continue
			}
			by := ""
			if top, told := m.Observation.Top[r]; told {
				work.By, by = top.Name, "; most of it is used by "+top.Name
			}
			if plan.OwnWork[m.ID].Use < work.Use {
				quell.Put(&plan.OwnWork, m.ID, work)
			}
			AddReason(plan, ownWork, m.ID, "it uses %.3f of its %s for work of its own, and %.3f for requests: they can use less of it%s",
				work.Use, r, use, by)
		}
	}
}
