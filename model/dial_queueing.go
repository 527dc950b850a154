package model

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/quellhq/quell"
)

// Queueing holds the coefficients of Eq. 1 of DIAL: the p90 in milliseconds is c0 + c1 / (1 - rho) + c2 / (1 - rho)². rho is the total use
// of a resource, by the instance and its neighbours, as a fraction. c1 and c2 are at least 0 and not both 0, so the p90 never falls as rho
// grows.
type Queueing []float64

// fullest is the largest use for which a response time is predicted. A higher use counts as this one.
const fullest = 0.999

// MS returns the p90 in milliseconds if the total use of the resource is rho, from 0 to 1.
func (q Queueing) MS(rho float64) float64 {
	free := 1 - math.Min(math.Max(rho, 0), fullest)
	return q[0] + q[1]/free + q[2]/(free*free)
}

// stretched returns what is added to the p90 in milliseconds if every request needs sigma times as much of the resource. rho is the
// instance's own use of it, which contains that factor: without it, the use would be rho / sigma. Requests then both need more, and wait
// for others that need more.
func (q Queueing) stretched(rho, sigma float64) float64 {
	own := Queueing{0, q[1], q[2]} // c0 is the time that requests spend elsewhere
	return sigma*own.MS(rho) - own.MS(rho/sigma)
}

// Hidden returns the neighbours' use of the resource, from 0 to 1 - own, if an instance that uses own of it has a p90 of ms milliseconds.
// It is Eq. 1 solved for rho_bg. If the instance's own use explains the p90, Hidden returns 0.
func (q Queueing) Hidden(ms, own float64) float64 {
	above := ms - q[0]
	if above <= 0 {
		return 0
	}
	// the larger root x = 1 / (1 - rho) of c2 x² + c1 x = above, written so that c2 may be 0
	x := 2 * above / (q[1] + math.Sqrt(q[1]*q[1]+4*q[2]*above))
	return math.Max(0, math.Min(1-1/x, fullest)-own)
}

// Estimate is a value with its 95% confidence interval.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Over returns the resource over whose use Eq. 1 of a resource is: for memory the processors, if the models say how much neighbours on the
// memory lengthen processor time, and otherwise the resource itself.
func (s *Dial) Over(r quell.Resource) quell.Resource {
	if r == quell.Memory && s.Stretch > 0 {
		return quell.CPU
	}
	return r
}

// Lost returns the part of its capacity that an instance loses to neighbours that use hidden of a resource. Neighbours on the memory take
// no part of the processors: requests need 1 + Stretch*hidden times as much of them.
func (s *Dial) Lost(r quell.Resource, hidden float64) float64 {
	if s.Over(r) != r {
		return 1 - 1/(1+s.Stretch*hidden)
	}
	return hidden
}

// Predict returns the p90 in milliseconds of an instance that gets this many requests per second and uses own of the resource Over(r)
// beside neighbours that use hidden of r. It is the calm p90 at that rate, and what the neighbours add by Eq. 1. For a resource that
// requests fill first, this is Eq. 1 itself. For another one, a part of the p90 grows with the load although that resource stays as empty
// as before. The coefficients for the resource must be there.
func (s *Dial) Predict(r quell.Resource, rate, own, hidden float64) float64 {
	q := s.Queueing[r]
	if s.Over(r) != r {
		return s.CalmMS(rate) + q.stretched(own, 1+s.Stretch*hidden)
	}
	if calm := s.CalmMS(rate); calm > 0 {
		return calm + q.MS(own+hidden) - q.MS(own)
	}
	return q.MS(own + hidden)
}

// HiddenLoad estimates the neighbours' use of a resource: it solves Predict for it, for a p90 of n requests. The interval covers the
// scatter of that p90, and the mean error of the fit of Eq. 1. It returns false if the section has no coefficients for the resource.
func (s *Dial) HiddenLoad(r quell.Resource, p90 float64, n int, rate, own float64) (Estimate, bool) {
	q, ok := s.Queueing[r]
	if !ok {
		return Estimate{}, false
	}
	scatter := sampling(s.Tail, n)
	fit := s.Errors[r].MeanRelative * math.Sqrt(math.Pi/2) // mean absolute error to standard deviation
	part := distuv.UnitNormal.Quantile(0.975) * math.Hypot(scatter, fit)
	other := s.Predict(r, rate, own, 0) - q.MS(own) // the part of the p90 that does not come from the resource
	hidden := func(factor float64) float64 {
		if s.Over(r) != r {
			return s.unstretched(p90*factor, rate, own)
		}
		return q.Hidden(p90*factor-other, own)
	}
	return Estimate{hidden(1), hidden(math.Max(0, 1-part)), hidden(1 + part)}, true
}

// unstretched solves Predict for the use of the memory by neighbours, from 0 to 1. Predict grows with that use.
func (s *Dial) unstretched(ms, rate, own float64) float64 {
	const steps = 40
	low, high := 0.0, 1.0
	if s.Predict(quell.Memory, rate, own, high) <= ms {
		return high
	}
	for range steps {
		if middle := (low + high) / 2; s.Predict(quell.Memory, rate, own, middle) < ms {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}
