package prima

import (
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

const (
	// calmFor is after how many snapshots without interference shares begin to return.
	calmFor = 3
	// stillAway is the part of the way from the shares in force that is left after one more calm snapshot.
	stillAway = 0.75
	// maxCalm is the most calm snapshots that are counted, and disturbance how many of them one disturbed snapshot takes away: single
	// readings look like a neighbour by chance, and a neighbour who stays ends the calm within six snapshots.
	maxCalm, disturbance = 30, 5
)

// comeBack moves the shares, which neighbours who have left had changed, gradually back to the base shares. Nothing else would, because
// no instance is above its capacity. The part of the way grows with each calm snapshot. So the wanted shares arrive also in advise mode and
// during a pause, in which the shares in force stay.
func (p *plan) comeBack() {
	if p.unsettled() {
		p.mem.Calm = 0
		return
	}
	p.mem.Calm = min(max(0, p.mem.Calm+p.calmer()), maxCalm)
	base, present, away := p.baseShares(), p.presentShares(), 0.0
	for i, m := range p.sorted {
		if m.Fixed != nil {
			continue
		}
		if !quell.AtMost(p.group.Load*base[i], m.Capacity) {
			return // the base shares would overload an instance
		}
		if d := math.Abs(base[i] - present[i]); d > 0 {
			away = math.Max(away, d/base[i])
		}
	}
	if p.mem.Calm <= calmFor || away <= quell.SumTolerance {
		return
	}
	part := 1 - math.Pow(stillAway, float64(p.mem.Calm-calmFor))
	for i, m := range p.sorted {
		if from := present[i]; math.Abs(base[i]-from) > p.set.Tolerance*base[i] {
			m.Planned = from + part*(base[i]-from)
		} else {
			m.Planned = base[i]
		}
	}
	if away > p.set.Tolerance {
		p.reason("calm", "", "no neighbours for %d period(s): shares return to the base shares, %.0f%% of the way", p.mem.Calm, 100*part)
	}
}

// unsettled returns whether something other than requests and neighbours decides on the shares.
func (p *plan) unsettled() bool {
	g := p.group
	return len(p.sorted) == 0 || len(g.Unrated) > 0 || g.Outstanding > 0 || g.Weightless || g.HandingOver || p.pooled ||
		slices.ContainsFunc(p.sorted, func(m *policy.Member) bool { return m.Failing || m.Limiter != "" && m.Limiter != policy.LimitedByHand })
}

// calmer returns by how much this snapshot changes the count of calm ones: not at all if signs of a neighbour are not confirmed yet.
func (p *plan) calmer() int {
	by := 1
	for _, m := range p.sorted {
		for i := range m.Senses {
			switch s := &m.Senses[i]; {
			case s.Out || s.Interfering < model.SignificantUse:
			case !s.Suspected():
				return -disturbance
			default:
				by = 0
			}
		}
	}
	return by
}

// baseShares returns the shares without interference: by what each instance carries alone, which follows the weights that people gave the
// servers until capacity is measured for a type. Shares that a person set stay.
func (p *plan) baseShares() []float64 {
	sum, rest := 0.0, 1.0
	var free []*policy.Member
	for _, m := range p.sorted {
		if m.Fixed != nil {
			rest -= *m.Fixed
			continue
		}
		free, sum = append(free, m), sum+capacityAlone(m, p.in)
	}
	rest = math.Max(0, rest)
	shares, even := make([]float64, len(p.sorted)), policy.Even(free)
	for i, m := range p.sorted {
		switch {
		case m.Fixed != nil:
			shares[i] = *m.Fixed
		case sum > 0:
			shares[i] = rest * capacityAlone(m, p.in) / sum
		default:
			shares[i] = rest * even(m)
		}
	}
	return shares
}

// presentShares returns the present shares, scaled so that those that no person set leave room for the others.
func (p *plan) presentShares() []float64 {
	sum, rest := 0.0, 1.0
	for _, m := range p.sorted {
		if m.Fixed == nil {
			sum += m.Planned
		} else {
			rest -= *m.Fixed
		}
	}
	shares := make([]float64, len(p.sorted))
	for i, m := range p.sorted {
		switch {
		case m.Fixed != nil:
			shares[i] = *m.Fixed
		case sum > 0:
			shares[i] = m.Planned * math.Max(0, rest) / sum
		}
	}
	return shares
}

// capacityAlone returns the capacity that the instance has without neighbours, in units of the group's first resource.
func capacityAlone(m *policy.Member, in *policy.Input) float64 {
	least := math.Inf(1)
	for i := range m.Senses {
		least = math.Min(least, in.Contended[i].Of(m.Type).Predictor.FreshCapacity(in.Service.SLO.ThresholdMS())*m.Rates[i])
	}
	return least
}
