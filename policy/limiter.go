package policy

import "math"

// The limiters, which bound the capacity of an instance. Each resource of the policy is one, under its own name, by the models'
// effective capacity. The others below bound how much of that counts.
const (
	limitedByHand   = "override" // a person set the share
	limitedByErrors = "errors"   // it answers with errors and gains nothing
	limitedByCut    = "cut"      // a fast policy cuts its share
)

// rate estimates U_int for each resource with the interference model, and the largest own utilisation whose predicted response time stays
// within the threshold while U_int stays the same (PRIMA, section III-B2, Eq. 2 and 3). Use of every resource grows in proportion to the
// requests, so each capacity corresponds to a number of requests; the lowest one limits.
func (m *member) rate(in *Input, rates []float64) {
	threshold := in.Service.SLO.ThresholdMS()
	m.capacity, m.left = math.Inf(1), math.Inf(1)
	for i := range m.senses {
		s := &m.senses[i]
		if s.out {
			continue
		}
		predictor := in.contended[i].predictor
		s.interfering = predictor.Interfering(s.use, s.severity)
		s.capacity = predictor.Capacity(s.interfering, threshold)
		if capacity := s.capacity * rates[i]; capacity < m.capacity {
			m.capacity, m.binds = capacity, uint8(i)
		}
		m.left = math.Min(m.left, (1-s.interfering)*rates[i])
	}
}

// limit says how much of the capacity counts. An instance whose share a person set carries that share, whatever its capacity. An instance
// with errors may not gain load, so its present load is the limit. Both are before headroom, like capacities. If a fast policy cuts the
// share, the capacity is reduced by the same factor.
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

// limitedBy names what limits an instance's capacity, "" if that is the only resource.
func (m *member) limitedBy(in *Input) string {
	if m.limiter != "" || !in.several() {
		return m.limiter
	}
	return string(in.contended[m.binds].resource)
}

// carriesAt is what an instance would carry at another threshold, at most what its neighbours leave.
func (m *member) carriesAt(in *Input, rates []float64, thresholdMS float64) float64 {
	least := math.Inf(1)
	for i := range m.senses {
		if s := &m.senses[i]; !s.out {
			least = math.Min(least, math.Min(in.contended[i].predictor.Capacity(s.interfering, thresholdMS), 1-s.interfering)*rates[i])
		}
	}
	return least
}

// responseAt predicts the response time in milliseconds at another load while U_int stays the same: the longest that any single resource
// gives.
func (m *member) responseAt(in *Input, rates []float64, load float64) float64 {
	longest := 0.0
	for i := range m.senses {
		s := &m.senses[i]
		if s.out {
			continue
		}
		predictor := in.contended[i].predictor
		use := math.Min(load/rates[i], predictor.MaxUtilization())
		longest = math.Max(longest, predictor.ResponseTime(use, predictor.SeverityAt(use, s.interfering)))
	}
	return longest
}

// freshCapacity is the capacity of an instance without neighbours.
func (in *Input) freshCapacity(rates []float64) float64 {
	least := math.Inf(1)
	for i := range in.contended {
		least = math.Min(least, in.contended[i].predictor.FreshCapacity(in.Service.SLO.ThresholdMS())*rates[i])
	}
	return least
}

// unloadedMS is the predicted response time of an instance without neighbours and without load.
func (in *Input) unloadedMS() float64 {
	longest := 0.0
	for i := range in.contended {
		longest = math.Max(longest, in.contended[i].predictor.ResponseTime(0, 0))
	}
	return longest
}
