package policy

import (
	"math"
	"slices"

	"github.com/quellhq/quell"
)

const (
	// longestUsual is how many readings a usual capacity goes back at most, so that it follows slow changes.
	longestUsual = 60
	// leastUsual is how many readings tell how far single ones stray.
	leastUsual = 2
	// knownUsual is how many readings tell more than the newest one.
	knownUsual = 5
	// far is how many standard deviations away a reading is a change or an outlier.
	far = 3
)

// Usual is what an instance's capacity has been since it last changed. Single readings vary with severity, and near 0 they
// vary by all there is: weights that followed each of them would never rest.
type Usual struct {
	N        int     `json:"n"`             // readings, up to longestUsual
	Mean     float64 `json:"mean"`          // of the readings
	Variance float64 `json:"variance"`      // of the same
	Off      int     `json:"off,omitempty"` // readings in a row that are far above the mean; negative: far below
}

// with returns the usual capacity with one more reading. Each counts alike until there are longestUsual of them, then older
// ones fade. One that is far off waits: either more than confirm in a row are, and the capacity has changed, or it is passed over.
func (u *Usual) with(capacity, tolerance float64, confirm int) *Usual {
	if u == nil {
		return &Usual{N: 1, Mean: capacity}
	}
	next, d := *u, capacity-u.Mean
	if u.N >= leastUsual && math.Abs(d) > math.Max(far*math.Sqrt(u.Variance), tolerance*u.Mean)+quell.SumTolerance {
		if next.Off += sign(d); next.Off*sign(d) <= 0 {
			next.Off = sign(d)
		}
		if next.Off*sign(d) > confirm {
			return &Usual{N: 1, Mean: capacity, Variance: u.Variance}
		}
		return &next
	}
	next.Off = 0
	next.N = min(u.N+1, longestUsual)
	gain := 1 / float64(next.N)
	next.Mean += gain * d
	next.Variance = (1 - gain) * (u.Variance + gain*d*d)
	return &next
}

func sign(d float64) int {
	if d < 0 {
		return -1
	}
	return 1
}

// doubt is what chance may explain of a mean's distance from the truth: twice its standard error.
func (u *Usual) doubt() float64 { return 2 * math.Sqrt(u.Variance/float64(u.N)) }

// forgetUsual leaves behind what an instance could carry before it went out of service.
func (p *primaPlan) forgetUsual() {
	for i := range p.group.members {
		if m := &p.group.members[i]; !m.inService() {
			m.prima().Usual = nil
		}
	}
}

// remember adds what the instances carry now to what they usually do.
func (p *primaPlan) remember() {
	unit := p.unit()
	for _, m := range p.sorted {
		if m.fresh || m.prima().Usual == nil {
			m.prima().Usual = m.prima().Usual.with(m.carry/unit, p.set.Tolerance, p.set.Confirm)
		}
	}
}

// unit is what usual capacities are measured by: 1 where the first resource is the one that fills first on an instance without neighbours.
// As the use of another one changes beside it, the capacities of all move together; that is no change of an instance.
func (p *primaPlan) unit() float64 {
	fresh, first := p.fresh(), p.in.contended[0].predictor.FreshCapacity(p.in.Service.SLO.ThresholdMS())
	if fresh == 0 || first == 0 {
		return 1
	}
	return fresh / first
}

// settle gives the instances weights in proportion to their usual capacities. Where no weight would move by more than the tolerance,
// and than chance explains, all stay. It goes part of the way while one of the capacities is known from a single reading.
func (p *primaPlan) settle(part float64) {
	tolerance, moves, sum := p.set.Tolerance, false, 0.0
	for _, m := range p.sorted {
		sum += m.prima().Usual.Mean
	}
	if sum == 0 {
		p.share(p.sorted, tolerance)
		return
	}
	whole := p.rest() / sum
	for _, m := range p.sorted {
		u := m.prima().Usual
		moves = moves || math.Abs(whole*u.Mean-m.share) > math.Max(tolerance*m.share, whole*u.doubt())+quell.SumTolerance
	}
	if !moves {
		return
	}
	if !slices.ContainsFunc(p.sorted, func(m *member) bool { return m.prima().Usual.N == 1 }) {
		part = 1
	}
	for _, m := range p.sorted {
		m.share += part * (whole*m.prima().Usual.Mean - m.share)
	}
}

// halfway is how far a single reading moves weights in an overload. Capacities near 0 lie within the noise of severity there: their
// proportion would throw the load from one instance to another.
const halfway = 0.5
