package policy

// The base weight of an instance is what people know of its size: its weight at the balancer before Quell. An even share is a share by base
// weight. Policies that know nothing of sizes decide on shares relative to even ones; policies that compute capacities count a use on an
// instance in proportion to its base weight, until models of its type tell how much it carries.

// based returns whether any ready instance has a base weight of its own.
func (g *group) based() bool {
	for _, m := range g.ready {
		if m.Base != nil {
			return true
		}
	}
	return false
}

// even returns the share by base weight that an instance has among these.
func (m *member) even(among []*member) float64 {
	var sum float64
	for _, other := range among {
		sum += other.BaseWeight()
	}
	if sum == 0 {
		return 1 / float64(len(among))
	}
	return m.BaseWeight() / sum
}

// evenly gives the members of a list shares by base weight that sum to 1.
func evenly(list []*member) {
	var sum float64
	for _, m := range list {
		sum += m.BaseWeight()
	}
	for _, m := range list {
		if m.share = 1 / float64(len(list)); sum > 0 {
			m.share = m.BaseWeight() / sum
		}
	}
}

// relative turns shares into multiples of even ones, scaled so that they sum to 1; absolute does the reverse.
func (g *group) relative() { g.scale(func(m *member) float64 { return 1 / m.BaseWeight() }) }
func (g *group) absolute() { g.scale(func(m *member) float64 { return m.BaseWeight() }) }

// scale multiplies shares by factors, and keeps their sum.
func (g *group) scale(factor func(*member) float64) {
	var before, after float64
	for _, m := range g.ready {
		before += m.share
		after += m.share * factor(m)
	}
	if after == 0 {
		return
	}
	for _, m := range g.ready {
		m.share *= factor(m) * before / after
	}
}

// bySize changes the rates of instances whose type has no models of its own by their base weights. An instance of mean base weight has the
// size 1.
func (g *group) bySize(in *Input) {
	var sum float64
	var sized []*member
	for i := range g.members {
		if m := &g.members[i]; !in.measured(m.Type) {
			sized = append(sized, m)
			sum += m.BaseWeight()
		}
	}
	for _, m := range sized {
		if size := m.BaseWeight() * float64(len(sized)) / sum; size != 1 {
			own := make([]float64, len(m.rates))
			for j, rate := range m.rates {
				own[j] = rate * size
			}
			m.rates = own
		}
	}
}

// measured returns whether models of this type of instance tell what a request uses.
func (in *Input) measured(instanceType string) bool {
	for i := range in.contended {
		if c := &in.contended[i]; c.of(instanceType) != c {
			return true
		}
	}
	return false
}
