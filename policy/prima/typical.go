package prima

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/divide"
)

const (
	// minReadings is the smallest number of readings with a known spread.
	minReadings = 2
	// far is a number of standard deviations. A reading further from the mean is a change or an outlier.
	far = 3
)

// Typical is the mean of an instance's capacity since that capacity last changed. Single readings vary with severity, and near
// 0 they vary by their whole size, so weights that followed single readings would never settle.
type Typical struct {
	N        int     `json:"n"`             // readings, up to LongestMean; 0: none is known
	Mean     float64 `json:"mean"`          // of the readings
	Variance float64 `json:"variance"`      // of the readings
	Off      int     `json:"off,omitempty"` // consecutive readings far above the mean; negative: far below
}

// With returns the usual capacity after one more reading. All readings have the same weight until there are LongestMean of them;
// then older ones fade. A reading far from the mean is not added at first. If more than confirm such readings follow each other,
// the capacity has changed; otherwise they are dropped.
func (u Typical) With(capacity, tolerance float64, confirm int) Typical {
	if u.N == 0 {
		return Typical{N: 1, Mean: capacity}
	}
	next, d := u, capacity-u.Mean
	if u.N >= minReadings && math.Abs(d) > u.stray(tolerance) {
		side := cmp.Compare(d, 0)
		if next.Off += side; next.Off*side <= 0 {
			next.Off = side
		}
		if next.Off*side > confirm {
			return Typical{N: 1, Mean: capacity, Variance: u.Variance}
		}
		return next
	}
	next.Off = 0
	next.N = min(u.N+1, policy.LongestMean)
	gain := 1 / float64(next.N)
	next.Mean += gain * d
	next.Variance = (1 - gain) * (u.Variance + gain*d*d)
	return next
}

// stray returns how far a reading may be from the mean without counting as a change or an outlier.
func (u *Typical) stray(tolerance float64) float64 {
	return math.Max(far*math.Sqrt(u.Variance), tolerance*u.Mean) + quell.SumTolerance
}

// doubt returns how far chance may have moved the mean from the true value: twice the standard error of the mean.
func (u *Typical) doubt() float64 { return 2 * math.Sqrt(u.Variance/float64(u.N)) }

// forgetTypical drops the usual capacity of every instance that is not in service.
func (p *plan) forgetTypical() {
	for i := range p.group.Members {
		if m := &p.group.Members[i]; !m.InService() {
			instanceOf(m).Typical = Typical{}
		}
	}
}

// remember adds what each instance can carry now to its usual capacity.
func (p *plan) remember() {
	unit := p.unit()
	for _, m := range p.sorted {
		if own := instanceOf(m); m.Fresh || own.Typical.N == 0 {
			own.Typical = own.Typical.With(m.Carry/unit, p.set.Tolerance, p.set.Confirm)
		}
	}
}

// unit returns the divisor that makes capacities comparable over time. If requests begin to use more of another resource, the capacities
// of all instances change together, which is no change of any instance. unit is 1 if the first resource fills first without neighbours.
func (p *plan) unit() float64 {
	fresh, first := p.fresh(), p.in.Contended[0].Predictor.FreshCapacity(p.in.Service.SLO.ThresholdMS())
	if p.stations != nil {
		first = p.stations.freshBy(0, max(len(p.group.Rated), 1))
	}
	if fresh == 0 || first == 0 {
		return 1
	}
	return fresh / first
}

// shareByTypical gives the instances weights by their usual capacities. All weights stay if none would change by more than
// both the tolerance and what chance explains. If some capacity is known from only one reading, weights move only this part of the way.
func (p *plan) shareByTypical(part float64) {
	tolerance, moves, sum := p.set.Tolerance, false, 0.0
	for _, m := range p.sorted {
		sum += instanceOf(m).Typical.Mean
	}
	if sum == 0 {
		p.share(p.sorted, tolerance)
		return
	}
	rest := p.rest()
	wanted, whole := p.typicalShares(rest, sum), rest/sum
	p.explainGains(wanted, rest)
	for i, m := range p.sorted {
		moves = moves || math.Abs(wanted[i]-m.Planned) > math.Max(tolerance*m.Planned, whole*instanceOf(m).Typical.doubt())+quell.SumTolerance
	}
	if !moves {
		return
	}
	if !slices.ContainsFunc(p.sorted, func(m *policy.Member) bool { return instanceOf(m).Typical.N == 1 }) {
		part = 1
	}
	for i, m := range p.sorted {
		m.Planned += part * (wanted[i] - m.Planned)
	}
}

// typicalShares returns the shares by the instances' usual capacities, whose sum is given. The shares sum to rest.
func (p *plan) typicalShares(rest, sum float64) []float64 {
	shares := make([]float64, len(p.sorted))
	whole := rest / sum
	for i, m := range p.sorted {
		shares[i] = whole * instanceOf(m).Typical.Mean
	}
	if p.set.Share != divide.Tail || rest == 0 {
		return shares
	}
	floats.Scale(1/rest, shares)
	shares = p.divide(p.sorted, shares, sum*p.unit())
	floats.Scale(rest, shares)
	return shares
}

// explainGains changes the wanted shares so that an instance that now carries far less than usual gains nothing beyond its part of the
// present capacities. What it would have gained goes to instances that have room. The usual capacity follows a new neighbour late.
func (p *plan) explainGains(wanted []float64, rest float64) {
	present, sum := proportions(p.sorted)
	if sum == 0 {
		return
	}
	var cut, room float64
	rooms, unit := make([]float64, len(wanted)), p.unit()
	for i, m := range p.sorted {
		if u := &instanceOf(m).Typical; u.Mean-m.Carry/unit > u.stray(p.set.Tolerance) {
			most := math.Max(m.Planned, rest*present[i])
			cut += math.Max(0, wanted[i]-most)
			wanted[i] = math.Min(wanted[i], most)
		}
		rooms[i] = math.Max(0, rest*present[i]-wanted[i])
		room += rooms[i]
	}
	for i := range wanted {
		if room > 0 {
			wanted[i] += rooms[i] * cut / room
		}
	}
}

// halfway is the part of the way that a single reading moves weights under overload. Under overload, capacities near 0 are smaller
// than the noise of severity, and exact proportions would move the load back and forth.
const halfway = 0.5
