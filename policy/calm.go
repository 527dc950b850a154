package policy

import (
	"math"

	"github.com/quellhq/quell"
)

const (
	// calmFor is after how many consecutive snapshots without interference shares begin to return.
	calmFor = 3
	// stillAway is the part of the way from the shares in force that is left after one more calm snapshot.
	stillAway = 0.75
)

// calm returns whether nothing is known to use an instance but requests: no neighbour, no work of its own, and no doubt about either.
func (p *primaPlan) calm() bool {
	g := p.group
	if len(g.unrated) > 0 || g.outstanding > 0 || g.weightless || g.handingOver || p.pooled {
		return false
	}
	for _, m := range p.sorted {
		if m.failing || m.uncut < 1 || m.counted < m.usable {
			return false
		}
		for i := range m.senses {
			if s := &m.senses[i]; s.out || s.held || s.interfering >= leastPart {
				return false
			}
		}
	}
	return len(p.sorted) > 0
}

// comeBack moves the shares, which neighbours who have left had changed, gradually back to the base shares. Nothing else would, because
// no instance is above its capacity. The part of the way grows with each calm snapshot. So in advise mode and during a pause, too, in which
// the shares in force stay, the wanted shares arrive.
func (p *primaPlan) comeBack() {
	if !p.calm() {
		p.mem.Calm = 0
		return
	}
	p.mem.Calm++
	base := p.baseShares()
	away := 0.0
	for i, m := range p.sorted {
		if m.fixed == nil && !quell.AtMost(p.group.load*base[i], m.capacity) {
			return // the base shares would overload an instance
		}
		away = math.Max(away, math.Abs(base[i]-m.share)/base[i])
	}
	if p.mem.Calm <= calmFor || away <= quell.SumTolerance {
		return
	}
	part := 1 - math.Pow(stillAway, float64(p.mem.Calm-calmFor))
	for i, m := range p.sorted {
		if from := m.weight(); math.Abs(base[i]-from) > p.set.Tolerance*base[i] {
			m.share = from + part*(base[i]-from)
		} else {
			m.share = base[i]
		}
	}
	if away > p.set.Tolerance {
		p.reason("calm", "", "no neighbours for %d period(s): shares return to the base shares, %.0f%% of the way", p.mem.Calm, 100*part)
	}
}

// baseShares returns the shares without interference: by the weights that people gave the servers, or else by what an instance of the type
// carries without neighbours. Shares that a person set stay.
func (p *primaPlan) baseShares() []float64 {
	sizes, sum, rest := make([]float64, len(p.sorted)), 0.0, p.rest()
	byHand := false
	for _, m := range p.sorted {
		byHand = byHand || m.Base != nil
	}
	for i, m := range p.sorted {
		switch {
		case m.fixed != nil:
			rest -= *m.fixed
			continue
		case byHand:
			sizes[i] = m.BaseWeight()
		default:
			sizes[i] = m.alone(p.in)
		}
		sum += sizes[i]
	}
	for i, m := range p.sorted {
		switch {
		case m.fixed != nil:
			sizes[i] = *m.fixed
		case sum > 0:
			sizes[i] *= math.Max(0, rest) / sum
		default:
			sizes[i] = math.Max(0, rest) / float64(len(p.sorted))
		}
	}
	return sizes
}

// alone returns the capacity that the instance has without neighbours, in units of the group's first resource.
func (m *member) alone(in *Input) float64 {
	least := math.Inf(1)
	for i := range m.senses {
		least = math.Min(least, in.contended[i].of(m.Type).predictor.FreshCapacity(in.Service.SLO.ThresholdMS())*m.rates[i])
	}
	return least
}
