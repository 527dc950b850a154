package policy

import (
	"math"

	"github.com/quellhq/quell/policy/ownwork"
)

// The limiters are the names of what limits an instance's capacity. The name of a resource means that the models' effective capacity in
// that resource is the limit. The names below mean that only a part of the effective capacity counts.
const (
	LimitedByHand   = "override"       // a person set the share
	LimitedByErrors = "errors"         // it answers with errors and must not gain load
	LimitedByCut    = "cut"            // a fast policy cuts its share
	ownWork         = "own_work"       // work of its own uses the resource, which is not for requests
	otherServices   = "other_services" // requests of other services use the resource
)

// limitedBy names what limits an instance's capacity. It returns "" if that is the policy's only resource.
func (m *Member) limitedBy(in *Input) string {
	switch {
	case m.Limiter != "":
		return m.Limiter
	case m.ByCredits:
		return LimitedByCredits
	case m.Bound().Own-m.Bound().Others > TracesOfUse:
		return ownWork
	case m.Bound().Others >= ownwork.Least:
		return otherServices
	case !in.Several():
		return ""
	}
	return string(in.Contended[m.Binds].Resource)
}

// used returns the part of its capacity that an instance carries now, by the resource that limits it.
func (m *Member) used() float64 {
	load := math.Max(m.Use, m.Bound().Use*m.Rates[m.Binds])
	return math.Min(load/math.Max(m.Capacity, TracesOfUse), mostUsed)
}

// responseAt predicts the response time in milliseconds at another load, if the neighbours' utilisation U_int stays the same. It is the
// longest of the response times that the models of the single resources predict. all is the group then, if it is a station.
func (m *Member) responseAt(in *Input, all *Crowds, load float64) float64 {
	longest := 0.0
	for i := range m.Senses {
		if !m.Senses[i].Out {
			longest = math.Max(longest, m.responseBy(in, i, all, load))
		}
	}
	return longest
}

// Predict returns the response time in milliseconds that the models predict for an instance now, and the resource that determines it.
func (m *Member) Predict(in *Input) (longest float64, by int) {
	longest = -1
	for i := range m.Senses {
		s := &m.Senses[i]
		if s.Out {
			continue
		}
		if ms := m.predictBy(in, i); ms > longest {
			longest, by = ms, i
		}
	}
	return longest, by
}

// predictBy is predict for one resource.
func (m *Member) predictBy(in *Input, i int) float64 {
	s, predictor := &m.Senses[i], in.Contended[i].Of(m.Type).Predictor
	station := predictor.Station()
	if station == nil || m.Now == nil {
		return predictor.ResponseTime(s.Use, s.Severity)
	}
	s.Interfering = s.WithOwn(s.Neighbours(predictor))
	return station.ResponseMS(in.Queue(i, m.Type, m.Now[i].Size), m.Sees(i, m.Now, s.Use*m.Rates[i]), s.Interfering)
}

const (
	// TracesOfUse is below any use that can be measured.
	TracesOfUse = 1e-9
	// mostUsed bounds how many times its capacity an instance is said to carry.
	mostUsed = 10
)
