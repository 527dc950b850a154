package prima

import (
	"math"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// A balancer that sends a request to any idle instance makes all shares above 0 alike: an instance beside a neighbour gets what it finds
// time for, and how long that takes does not depend on its share. So if it was measured to miss the objective there, it carries nothing
// while that neighbour stays, whatever the models say of a smaller share.

// easedTo is the part of what neighbours took to which they must go back before the instance is tried again.
const easedTo = 0.5

// avoid marks the instances that were measured to miss the objective beside neighbours, where shares do not act.
func avoid(p *plan) {
	if !p.in.Service.IdleFirst {
		return
	}
	for _, m := range p.group.Rated {
		own, taken := instanceOf(m), strongestNeighbour(m)
		switch {
		case own.Avoided > 0 && taken < easedTo*own.Avoided:
			own.Avoided = 0
		case own.Avoided == 0 && taken >= model.SignificantUse && m.Fixed == nil:
			if ms, missed := measuredMiss(m, p.in.Service.SLO); missed {
				own.Avoided = taken
				p.reason("shift", m.ID, "%s takes %.1f ms beside neighbours, longer than the objective allows, and with this balancer a smaller share "+
					"does not change that: it carries nothing until they take half as much", m.ID, ms)
			}
		}
		if own.Avoided > 0 {
			m.Able = false
			carryNothing(m)
		}
	}
}

// measuredMiss returns the response time of an instance's last period, in milliseconds, and whether it is above the threshold.
func measuredMiss(m *policy.Member, slo quell.SLO) (ms float64, missed bool) {
	if !m.Fresh || m.Observation.LatencyMS == nil || m.Observation.LatencyMS.N < policy.MinSample {
		return 0, false
	}
	ms, ok := m.Observation.LatencyMS.Of(slo.Metric)
	return ms, ok && ms > slo.ThresholdMS()
}

// strongestNeighbour is the largest part of a resource that neighbours take.
func strongestNeighbour(m *policy.Member) (most float64) {
	for i := range m.Senses {
		if s := &m.Senses[i]; !s.Out {
			most = math.Max(most, s.Interfering)
		}
	}
	return most
}
