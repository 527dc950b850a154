package policy

import (
	"maps"
	"math"
	"slices"

	"github.com/quellhq/quell/model"
)

// The limiters are the names of what limits an instance's capacity. The name of a resource means that the models' effective capacity in
// that resource is the limit. The names below mean that only a part of the effective capacity counts.
const (
	limitedByHand   = "override"       // a person set the share
	limitedByErrors = "errors"         // it answers with errors and must not gain load
	limitedByCut    = "cut"            // a fast policy cuts its share
	ownWork         = "own_work"       // work of its own uses the resource, which is not for requests
	otherServices   = "other_services" // requests of other services use the resource
)

// rate estimates, for each resource, the neighbours' utilisation U_int with the interference model, and the capacity: the largest own
// utilisation whose predicted response time stays within the threshold while U_int stays the same (PRIMA, section III-B2, Eq. 2 and 3).
// Because the use of every resource grows in proportion to the requests, the resource that allows the fewest requests is the limit.
func (m *Member) rate(in *Input) {
	threshold := in.Service.SLO.ThresholdMS()
	m.capacity, m.left = math.Inf(1), math.Inf(1)
	for i := range m.Senses {
		s := &m.Senses[i]
		if s.out {
			continue
		}
		predictor := in.contended[i].of(m.Type).Predictor
		s.interfering = s.Neighbours(predictor)
		if s.supposed = s.interfering; s.Taken == nil {
			s.supposed = predictor.Supposed(s.Use, s.Severity)
		}
		s.interfering = s.takenOf(predictor)
		s.capacity = predictor.Capacity(s.interfering, threshold) // if the group is a station, stations.capacities sets it anew
		if capacity := s.capacity * m.rates[i]; capacity < m.capacity {
			m.capacity, m.binds = capacity, uint8(i)
		}
		m.left = math.Min(m.left, (1-s.interfering)*m.rates[i])
	}
}

// takenOf returns what neighbours, or work of the machine that is no request, take of the resource.
func (s *Sense) takenOf(predictor *model.Predictor) float64 {
	return math.Max(s.Neighbours(predictor), math.Min(s.own, 1-s.Use))
}

// Neighbours returns the neighbours' utilisation U_int. If the instance's own waiting told it, a correction of severity can only raise it.
func (s *Sense) Neighbours(predictor *model.Predictor) float64 {
	switch {
	case s.Taken == nil:
		return predictor.Interfering(s.Use, s.Severity)
	case s.Severity > s.Measured:
		return math.Max(*s.Taken, predictor.Interfering(s.Use, s.Severity))
	}
	return *s.Taken
}

// knowsMargins returns whether the models say how far response times exceed predictions. Only models that were learned in place do.
func (in *Input) knowsMargins() bool {
	lacks := func(c *contended) bool {
		_, known := c.Predictor.WithMargin(in.Service.SLO.ThresholdMS())
		return !known
	}
	for i := range in.contended {
		c := &in.contended[i]
		if lacks(c) || slices.ContainsFunc(slices.Collect(maps.Values(c.types)), lacks) {
			return false
		}
	}
	return true
}

// within returns the response time, in milliseconds, up to which a predictor's instance may be loaded. With margins, nine of ten windows of
// the instance are then predicted to stay within the threshold. Else models that were learned in place leave a reserve beside headroom.
func (p *primaPlan) within(of *model.Predictor) (ms float64) {
	if threshold := p.in.Service.SLO.ThresholdMS(); p.margins {
		ms, _ = of.WithMargin(threshold)
	} else {
		ms, _ = of.WithReserve(threshold)
	}
	return ms
}

// leaveRoom lowers the usable capacity so that headroom leaves room for chance in the response time, too. If the group
// is a station, response
// times grow steeply where it is full, and headroom alone does that.
func (p *primaPlan) leaveRoom(m *Member) {
	if p.stations != nil {
		p.stationMargin(m)
		return
	}
	threshold := p.in.Service.SLO.ThresholdMS()
	for i := range m.Senses {
		s := &m.Senses[i]
		if s.out {
			continue
		}
		predictor := p.in.contended[i].of(m.Type).Predictor
		ms := p.within(predictor)
		if ms == threshold {
			continue
		}
		m.usable = math.Min(m.usable, predictor.Capacity(s.interfering, ms)*m.rates[i]/p.set.Headroom)
		if p.margins {
			m.marginMS = math.Max(m.marginMS, threshold-ms)
		}
	}
}

// stationMargin notes how far below the threshold predictions must stay.
func (p *primaPlan) stationMargin(m *Member) {
	if p.margins {
		m.marginMS = p.in.Service.SLO.ThresholdMS() - p.stations.threshold
	}
}

// limit sets how much of the usable capacity counts. If a person set the instance's share, that share of the load counts, whatever the
// capacity is. If the instance answers with errors, at most its present load counts, because it must not gain load. Both loads are divided
// by headroom, because capacities are compared before headroom. If a fast policy cuts the share, at most its factor times fresh counts, the
// capacity of an instance without neighbours. It is not a factor of the present capacity, because both policies may have noticed the same
// neighbours.
func (m *Member) limit(load, headroom, fresh float64) {
	m.counted, m.limiter = m.usable, ""
	switch {
	case m.Fixed != nil:
		m.counted, m.limiter = *m.Fixed*load/headroom, limitedByHand
	case m.Failing:
		if now := m.WeightNow() * load / headroom; now < m.usable {
			m.counted, m.limiter = now, limitedByErrors
		}
	case m.uncut < 1 && m.uncut*fresh < m.usable:
		m.counted, m.limiter = m.uncut*fresh, limitedByCut
	}
}

// limitedBy names what limits an instance's capacity. It returns "" if that is the policy's only resource.
func (m *Member) limitedBy(in *Input) string {
	switch {
	case m.limiter != "":
		return m.limiter
	case m.byCredits:
		return limitedByCredits
	case m.bound().own-m.bound().others > tracesOfUse:
		return ownWork
	case m.bound().others >= leastOwnWork:
		return otherServices
	case !in.several():
		return ""
	}
	return string(in.contended[m.binds].Resource)
}

// carriesAt returns the utilisation that an instance would carry if the threshold were thresholdMS, at most what its neighbours leave.
func (p *primaPlan) carriesAt(m *Member, thresholdMS float64) float64 {
	least := math.Inf(1)
	for i := range m.Senses {
		if s := &m.Senses[i]; !s.out {
			least = math.Min(least, math.Min(p.carriesBy(m, i, thresholdMS), 1-s.interfering)*m.rates[i])
		}
	}
	return least
}

// carriesBy is carriesAt by one resource, in utilisation of it.
func (p *primaPlan) carriesBy(m *Member, i int, thresholdMS float64) float64 {
	s, predictor := &m.Senses[i], p.in.contended[i].of(m.Type).Predictor
	if p.stations == nil {
		return predictor.Capacity(s.interfering, thresholdMS)
	}
	waiting, ok := predictor.Station().Patience(s.interfering, thresholdMS)
	if !ok {
		return 0
	}
	return (1 - s.interfering) * p.stations.limit(i, m.Type, len(p.sorted), waiting)
}

// responseAt predicts the response time in milliseconds at another load, if the neighbours' utilisation U_int stays the same. It is the
// longest of the response times that the models of the single resources predict. all is the group then, if it is a station.
func (m *Member) responseAt(in *Input, all *crowds, load float64) float64 {
	longest := 0.0
	for i := range m.Senses {
		if !m.Senses[i].out {
			longest = math.Max(longest, m.responseBy(in, i, all, load))
		}
	}
	return longest
}

// fresh returns the usable capacity of an instance without neighbours.
func (p *primaPlan) fresh() float64 {
	if p.stations != nil {
		return p.stations.fresh(max(len(p.group.rated), 1), p.group.Rates)
	}
	least := p.in.freshCapacity(p.group.Rates)
	for i := range p.in.contended {
		predictor := p.in.contended[i].Predictor
		least = math.Min(least, predictor.FreshCapacity(p.within(predictor))*p.group.Rates[i]/p.set.Headroom)
	}
	return least
}

// freshCapacity returns the capacity of an instance without neighbours.
func (in *Input) freshCapacity(rates []float64) float64 {
	least := math.Inf(1)
	for i := range in.contended {
		least = math.Min(least, in.contended[i].Predictor.FreshCapacity(in.Service.SLO.ThresholdMS())*rates[i])
	}
	return least
}

// unloadedMS returns the predicted response time, in milliseconds, of an instance without neighbours and without load.
func (in *Input) unloadedMS() float64 {
	longest := 0.0
	for i := range in.contended {
		longest = math.Max(longest, in.contended[i].Predictor.ResponseTime(0, 0))
	}
	return longest
}
