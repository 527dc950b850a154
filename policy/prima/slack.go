package prima

import (
	"math"

	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// slack is what PRIMA leaves free beside headroom because the objective was missed. It grows with each second that is missed, and shrinks
// slowly while the objective holds, so that in the long run about budgetMissed of the requests miss it. A disturbed service so keeps more
// in reserve than one that has peace, without anybody saying how much.
type slack struct {
	Held    float64 `json:"held,omitempty"`    // part of the capacity that is left free
	Episode float64 `json:"episode,omitempty"` // seconds of the present miss that have counted
}

const (
	// budgetMissed is the part of the requests that may miss the objective.
	budgetMissed = 0.01
	// budgetStep is how much less is left free after each second in which the objective holds.
	budgetStep = 0.0002
	// besideNeighbours is how many times a request counts that misses the objective beside a neighbour. Neighbours come again, and what
	// misses is a whole instance; the missed part of all requests hardly shows it.
	besideNeighbours = 2
	// longestEpisode is how many seconds of one miss count. While it lasts, new instances are on their way.
	longestEpisode = 5
	// minHeadroom is the smallest part of the capacity that may be used.
	minHeadroom = 0.5
)

// followBudget counts the newest period, and lowers headroom by what must stay free.
func (p *plan) followBudget() {
	if p.stations == nil || p.set.finds {
		return
	}
	b, seconds := &p.mem.Budget, p.in.Service.Sampling.Seconds()
	missed, known := missedPart(p.group, p.in)
	switch {
	case !known:
	case missed == 0:
		b.Held, b.Episode = math.Max(0, b.Held-budgetStep*seconds), 0
	case b.Episode < longestEpisode:
		counted := math.Min(missed*seconds, longestEpisode-b.Episode)
		b.Episode += counted
		b.Held += budgetStep * counted * (1 - budgetMissed) / budgetMissed
	}
	b.Held = math.Min(b.Held, math.Max(0, p.set.Headroom-minHeadroom))
	p.set.Headroom -= b.Held
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
		switch {
		case ms <= threshold:
		case disturbed(m, in):
			over += besideNeighbours * n
		default:
			over += n
		}
	}
	return over / math.Max(all, 1), all > 0
}

// disturbed returns whether neighbours were felt beside an instance.
func disturbed(m *policy.Member, in *policy.Input) bool {
	for i := range m.Senses {
		if s := &m.Senses[i]; !s.Out && s.TakenOf(in.Contended[i].Of(m.Type).Predictor) >= model.SignificantUse {
			return true
		}
	}
	return false
}
