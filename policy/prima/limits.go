package prima

import (
	"maps"
	"math"
	"slices"

	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// rateMember estimates, for each resource, the neighbours' utilisation U_int with the interference model, and the capacity: the largest own
// utilisation whose predicted response time stays within the threshold while U_int stays the same (PRIMA, section III-B2, Eq. 2 and 3).
// Because the use of every resource grows in proportion to the requests, the resource that allows the fewest requests is the limit.
func rateMember(m *policy.Member, in *policy.Input) {
	threshold := in.Service.SLO.ThresholdMS()
	m.Capacity, m.Left = math.Inf(1), math.Inf(1)
	for i := range m.Senses {
		s := &m.Senses[i]
		if s.Out {
			continue
		}
		predictor := in.Contended[i].Of(m.Type).Predictor
		neighbours := s.Neighbours(predictor)
		if s.Supposed = neighbours; s.Taken == nil {
			s.Supposed = predictor.Supposed(s.Use, s.Severity)
		}
		s.Interfering = s.WithOwn(neighbours)
		s.Capacity = predictor.Capacity(s.Interfering, threshold) // if the group is a station, stations.capacities sets it anew
		if capacity := s.Capacity * m.Rates[i]; capacity < m.Capacity {
			m.Capacity, m.Binds = capacity, uint8(i)
		}
		m.Left = math.Min(m.Left, (1-s.Interfering)*m.Rates[i])
	}
}

// knowsMargins returns whether the models say how far response times exceed predictions. Only models that were learned in place do.
func knowsMargins(in *policy.Input) bool {
	lacks := func(c *policy.Contended) bool {
		_, known := c.Predictor.WithMargin(in.Service.SLO.ThresholdMS())
		return !known
	}
	for i := range in.Contended {
		c := &in.Contended[i]
		if lacks(c) || slices.ContainsFunc(slices.Collect(maps.Values(c.Types)), lacks) {
			return false
		}
	}
	return true
}

// within returns the response time, in milliseconds, up to which a predictor's instance may be loaded. With margins, nine of ten windows of
// the instance are then predicted to stay within the threshold. Else models that were learned in place leave a reserve beside headroom.
func (p *plan) within(of *model.Predictor) (ms float64) {
	if threshold := p.in.Service.SLO.ThresholdMS(); p.margins {
		ms, _ = of.WithMargin(threshold)
	} else {
		ms, _ = of.WithReserve(threshold)
	}
	return ms
}

// leaveRoom lowers the usable capacity so that headroom leaves room for chance in the response time, too. If the group is a station,
// response times grow steeply where it is full, and headroom alone does that.
func (p *plan) leaveRoom(m *policy.Member) {
	if p.stations != nil {
		p.stationMargin(m)
		return
	}
	threshold := p.in.Service.SLO.ThresholdMS()
	for i := range m.Senses {
		s := &m.Senses[i]
		if s.Out {
			continue
		}
		predictor := p.in.Contended[i].Of(m.Type).Predictor
		ms := p.within(predictor)
		if ms == threshold {
			continue
		}
		m.Usable = math.Min(m.Usable, predictor.Capacity(s.Interfering, ms)*m.Rates[i]/p.set.Headroom)
		if p.margins {
			m.MarginMS = math.Max(m.MarginMS, threshold-ms)
		}
	}
}

// stationMargin notes how far below the threshold predictions must stay.
func (p *plan) stationMargin(m *policy.Member) {
	if p.margins {
		m.MarginMS = p.in.Service.SLO.ThresholdMS() - p.stations.threshold
	}
}

// limitMember sets how much of the usable capacity counts. If a person set the instance's share, that share of the load counts. If it
// answers with errors, at most its present load counts, because it must not gain load. Both are divided by headroom, because capacities are
// compared before headroom. If a fast policy cuts the share, at most its factor times fresh counts, the capacity of an instance without
// neighbours: not of the present capacity, because both policies may have noticed the same neighbours.
func limitMember(m *policy.Member, load, headroom, fresh float64) {
	m.Counted, m.Limiter = m.Usable, ""
	switch {
	case m.Fixed != nil:
		m.Counted, m.Limiter = *m.Fixed*load/headroom, policy.LimitedByHand
	case m.Failing:
		if now := m.WeightNow() * load / headroom; now < m.Usable {
			m.Counted, m.Limiter = now, policy.LimitedByErrors
		}
	case m.Uncut < 1 && m.Uncut*fresh < m.Usable:
		m.Counted, m.Limiter = m.Uncut*fresh, policy.LimitedByCut
	}
}

// carriesAt returns the utilisation that an instance would carry if the threshold were thresholdMS, at most what its neighbours leave.
func (p *plan) carriesAt(m *policy.Member, thresholdMS float64) float64 {
	least := math.Inf(1)
	for i := range m.Senses {
		if s := &m.Senses[i]; !s.Out {
			least = math.Min(least, math.Min(p.carriesBy(m, i, thresholdMS), 1-s.Interfering)*m.Rates[i])
		}
	}
	return least
}

// carriesBy is carriesAt by one resource, in utilisation of it.
func (p *plan) carriesBy(m *policy.Member, i int, thresholdMS float64) float64 {
	s, predictor := &m.Senses[i], p.in.Contended[i].Of(m.Type).Predictor
	if p.stations == nil {
		return predictor.Capacity(s.Interfering, thresholdMS)
	}
	waiting, ok := predictor.Station().Patience(s.Interfering, thresholdMS)
	if !ok {
		return 0
	}
	return (1 - s.Interfering) * p.stations.limit(i, m.Type, len(p.sorted), waiting)
}

// fresh returns the usable capacity of an instance without neighbours.
func (p *plan) fresh() float64 {
	if p.stations != nil {
		return p.stations.fresh(max(len(p.group.Rated), 1), p.group.Rates)
	}
	least := capacityOfFresh(p.in, p.group.Rates)
	for i := range p.in.Contended {
		predictor := p.in.Contended[i].Predictor
		least = math.Min(least, predictor.FreshCapacity(p.within(predictor))*p.group.Rates[i]/p.set.Headroom)
	}
	return least
}

// capacityOfFresh returns the capacity of an instance without neighbours.
func capacityOfFresh(in *policy.Input, rates []float64) float64 {
	least := math.Inf(1)
	for i := range in.Contended {
		least = math.Min(least, in.Contended[i].Predictor.FreshCapacity(in.Service.SLO.ThresholdMS())*rates[i])
	}
	return least
}

// unloadedMS returns the predicted response time, in milliseconds, of an instance without neighbours and without load.
func unloadedMS(in *policy.Input) float64 {
	longest := 0.0
	for i := range in.Contended {
		predictor := in.Contended[i].Predictor
		if station := predictor.Station(); in.Stationed() {
			longest = math.Max(longest, station.ResponseMS(in.Queue(i, "", 1), model.Even(1, 0), 0))
		} else {
			longest = math.Max(longest, predictor.ResponseTime(0, 0))
		}
	}
	return longest
}
