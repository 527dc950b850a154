package credit

import (
	"cmp"
	"math"
	"slices"
)

// Holder is an instance that shares a load with others. All amounts are in the same unit of load.
type Holder struct {
	Baseline float64 // load that needs no credits
	Balance  float64 // load beyond the baseline that the credits allow, times seconds
	Most     float64 // largest load that the instance may get
}

// longest is the time over which full instances give what they have, if the baselines alone carry the load: what they earn beyond the cap
// is lost, while empty instances recover.
const longest = 24 * 3600

// Divide divides a load so that the credits of all holders last equally long: each gets min(most, baseline + balance / T), with T chosen so
// that the sum is the load. No division lasts longer: T is the pooled bound, the sum of credits over what is used beyond what is earned. If
// the baselines suffice, lasts is false, and the load is divided as if it had to last a day. ok is false if the load exceeds what all may
// get.
func Divide(holders []Holder, load float64) (loads []float64, seconds float64, lasts, ok bool) {
	rate, ok := drainRate(holders, load)
	if !ok {
		return nil, 0, false, false
	}
	lasts = rate >= 1.0/longest
	rate = math.Max(rate, 1.0/longest)
	sum := 0.0
	loads = make([]float64, len(holders))
	for i, h := range holders {
		loads[i] = h.at(rate)
		sum += loads[i]
	}
	if sum > 0 {
		for i := range loads {
			loads[i] *= load / sum
		}
	}
	return loads, 1 / rate, lasts, true
}

// at returns what a holder carries if its balance is spent at this rate, the inverse of a time in seconds.
func (h Holder) at(rate float64) float64 { return math.Min(h.Most, h.Baseline+h.Balance*rate) }

// drainRate returns the lowest rate at which the holders carry the load together; 0 if they do without credits. What they carry grows with
// the rate, piecewise linear, and bends where a holder reaches its most.
func drainRate(holders []Holder, load float64) (rate float64, ok bool) {
	type bend struct{ rate, slope float64 }
	var bends []bend
	carried, slope := 0.0, 0.0
	for _, h := range holders {
		carried += h.at(0)
		if h.Balance > 0 && h.Most > h.Baseline {
			bends = append(bends, bend{(h.Most - h.Baseline) / h.Balance, h.Balance})
			slope += h.Balance
		}
	}
	slices.SortFunc(bends, func(a, b bend) int { return cmp.Compare(a.rate, b.rate) })
	for _, b := range bends {
		next := carried + slope*(b.rate-rate)
		if next >= load {
			break
		}
		carried, rate, slope = next, b.rate, slope-b.slope
	}
	missing := load - carried
	switch {
	case missing <= tiny*load:
		return rate, true
	case slope <= tiny*load: // every holder with credits carries its most
		return 0, false
	}
	return rate + missing/slope, true
}

// tiny is a relative difference of sums that is only rounding.
const tiny = 1e-9
