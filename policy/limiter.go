package policy

import "math"

// The limiters are the names of what limits an instance's capacity. The name of a resource means that the models' effective capacity in
// that resource is the limit. The names below mean that only a part of the effective capacity counts.
const (
	limitedByHand   = "override" // a person set the share
	limitedByErrors = "errors"   // it answers with errors and must not gain load
	limitedByCut    = "cut"      // a fast policy cuts its share
)

// rate estimates, for each resource, the neighbours' utilisation U_int with the interference model, and the capacity: the largest own
// utilisation whose predicted response time stays within the threshold while U_int stays the same (PRIMA, section III-B2, Eq. 2 and 3).
// Because the use of every resource grows in proportion to the requests, the resource that allows the fewest requests is the limit.
func (m *member) rate(in *Input, rates []float64) {
	threshold := in.Service.SLO.ThresholdMS()
	m.capacity, m.left = math.Inf(1), math.Inf(1)
	for i := range m.senses {
		s := &m.senses[i]
		if s.out {
			continue
		}
		predictor := in.contended[i].of(m.Type).predictor
		s.interfering = predictor.Interfering(s.use, s.severity)
		s.capacity = predictor.Capacity(s.interfering, threshold)
		if capacity := s.capacity * rates[i]; capacity < m.capacity {
			m.capacity, m.binds = capacity, uint8(i)
		}
		m.left = math.Min(m.left, (1-s.interfering)*rates[i])
	}
}

// limit sets how much of the capacity counts. If a person set the instance's share, that share of the load counts, whatever the capacity
// is. If the instance answers with errors, at most its present load counts, because it must not gain load. Both loads are divided by
// headroom, because capacities are compared before headroom. If a fast policy cuts the share, the capacity is multiplied by its factor.
func (m *member) limit(load, headroom float64) {
	m.counted, m.limiter = m.capacity, ""
	switch {
	case m.fixed != nil:
		m.counted, m.limiter = *m.fixed*load/headroom, limitedByHand
	case m.failing:
		if now := m.weight() * load / headroom; now < m.capacity {
			m.counted, m.limiter = now, limitedByErrors
		}
	case m.uncut < 1:
		m.counted, m.limiter = m.capacity*m.uncut, limitedByCut
	}
}

// limitedBy names what limits an instance's capacity. It returns "" if that is the policy's only resource.
func (m *member) limitedBy(in *Input) string {
	switch {
	case m.limiter != "":
		return m.limiter
	case m.byCredits:
		return limitedByCredits
	case !in.several():
		return ""
	}
	return string(in.contended[m.binds].resource)
}

// carriesAt returns the utilisation that an instance would carry if the threshold were thresholdMS, at most what its neighbours leave.
func (m *member) carriesAt(in *Input, rates []float64, thresholdMS float64) float64 {
	least := math.Inf(1)
	for i := range m.senses {
		if s := &m.senses[i]; !s.out {
			least = math.Min(least, math.Min(in.contended[i].of(m.Type).predictor.Capacity(s.interfering, thresholdMS), 1-s.interfering)*rates[i])
		}
	}
	return least
}

// responseAt predicts the response time in milliseconds at another load, if the neighbours' utilisation U_int stays the same. It is the
// longest of the response times that the models of the single resources predict.
func (m *member) responseAt(in *Input, rates []float64, load float64) float64 {
	longest := 0.0
	for i := range m.senses {
		s := &m.senses[i]
		if s.out {
			continue
		}
		predictor := in.contended[i].of(m.Type).predictor
		use := math.Min(load/rates[i], predictor.MaxUtilization())
		longest = math.Max(longest, predictor.ResponseTime(use, predictor.SeverityAt(use, s.interfering)))
	}
	return longest
}

// freshCapacity returns the capacity of an instance without neighbours.
func (in *Input) freshCapacity(rates []float64) float64 {
	least := math.Inf(1)
	for i := range in.contended {
		least = math.Min(least, in.contended[i].predictor.FreshCapacity(in.Service.SLO.ThresholdMS())*rates[i])
	}
	return least
}

// unloadedMS returns the predicted response time, in milliseconds, of an instance without neighbours and without load.
func (in *Input) unloadedMS() float64 {
	longest := 0.0
	for i := range in.contended {
		longest = math.Max(longest, in.contended[i].predictor.ResponseTime(0, 0))
	}
	return longest
}
