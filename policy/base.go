package policy

import "slices"

// The base weight of an instance is what people know of its size: its weight at the balancer before Quell. An even share is a share by base
// weight. Policies that know nothing of sizes decide on shares relative to even ones; policies that compute capacities count a use on an
// instance in proportion to its base weight, until models of its type tell how much it carries.

// based returns whether any ready instance has a base weight of its own.
func (g *Group) based() bool {
	return slices.ContainsFunc(g.Ready, func(m *Member) bool { return m.Base != nil })
}

// Even returns the share by base weight that each instance of a list has among these.
func Even(among []*Member) func(*Member) float64 {
	var sum float64
	for _, m := range among {
		sum += m.BaseWeight()
	}
	return func(m *Member) float64 {
		if sum == 0 {
			return 1 / float64(len(among))
		}
		return m.BaseWeight() / sum
	}
}

// evenly gives the members of a list shares by base weight that sum to 1.
func evenly(list []*Member) {
	even := Even(list)
	for _, m := range list {
		m.Planned = even(m)
	}
}

// scale multiplies shares by factors, and keeps their sum.
func (g *Group) scale(factor func(*Member) float64) {
	var before, after float64
	for _, m := range g.Ready {
		before += m.Planned
		after += m.Planned * factor(m)
	}
	if after == 0 {
		return
	}
	for _, m := range g.Ready {
		m.Planned *= factor(m) * before / after
	}
}

// bySize changes the rates of instances whose type has no models of its own by their base weights. An instance of mean base weight has the
// size 1.
func (g *Group) bySize(in *Input) {
	var sum float64
	sized := make([]*Member, 0, len(g.Members))
	for i := range g.Members {
		if m := &g.Members[i]; !in.measured(m.Type) {
			sized = append(sized, m)
			sum += m.BaseWeight()
		}
	}
	for _, m := range sized {
		if size := m.BaseWeight() * float64(len(sized)) / sum; size != 1 {
			own := make([]float64, len(m.Rates))
			for j, rate := range m.Rates {
				own[j] = rate * size
			}
			m.Rates = own
		}
	}
}

// measured returns whether models of this type of instance tell what a request uses.
func (in *Input) measured(instanceType string) bool {
	for i := range in.Contended {
		if c := &in.Contended[i]; c.Of(instanceType) != c {
			return true
		}
	}
	return false
}
