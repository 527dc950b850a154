package prima

import (
	"math"
	"slices"

	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

const (
	// besideNeighbours is how many times a request counts that misses the objective beside a neighbour. Neighbours come again, and what
	// misses is a whole instance; the missed part of all requests hardly shows it.
	besideNeighbours = 2
	// minHeadroom is the smallest part of the capacity that may be used.
	minHeadroom = 0.5
)

// followBudget counts the newest period, and lowers headroom by what must stay free (budget.Slack).
func (p *plan) followBudget() {
	if p.stations == nil || p.set.finds {
		return
	}
	if missed, known := missedPart(p.group, p.in); known {
		p.mem.Budget = p.mem.Budget.Follow(missed, p.in.Service.Sampling.Seconds())
	}
	p.mem.Budget.Held = math.Min(p.mem.Budget.Held, math.Max(0, p.set.Headroom-minHeadroom))
	p.set.Headroom -= p.mem.Budget.Held
}

// missedPart returns the part of the requests that go to instances which miss the objective, where those beside neighbours count more;
// false if too few response times are known.
func missedPart(g *policy.Group, in *policy.Input) (part float64, known bool) {
	metric, threshold := in.Service.SLO.Metric, in.Service.SLO.ThresholdMS()
	var all, over float64
	for _, m := range g.Ready {
		ms, requests, measured := m.Measured(metric)
		if !measured {
			continue
		}
		n := float64(requests)
		all += n
		if ms > threshold && disturbed(m) {
			over += besideNeighbours * n
		} else if ms > threshold {
			over += n
		}
	}
	return over / math.Max(all, 1), all > 0
}

// disturbed returns whether neighbours were felt beside an instance: not only a correction by its response times, nor work of its own.
func disturbed(m *policy.Member) bool {
	return slices.ContainsFunc(m.Senses, func(s policy.Sense) bool {
		return !s.Out && s.Measured > 0 && s.Own-s.Others <= policy.TracesOfUse && s.Interfering >= model.SignificantUse
	})
}
