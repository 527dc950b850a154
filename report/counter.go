package report

import "math"

// changed is the least relative change of an instance's load that is predicted. What changes less is taken as it was measured.
const changed = 0.02

// alike is the change of an instance's load, as a logarithm, at which what chance did to a period is no longer expected to happen again.
const alike = 0.7

// onset is the variance of the number of periods until a neighbour is noticed: where in a period it comes is chance. It is 1/4 in the
// record, and again in the time with which the report is compared.
const onset = 0.5

// dependent multiplies the variance of chance, because successive periods are not independent.
const dependent = 2

// compare counts what would have happened in a period if the shares had been others: those of the plan before, or, if plans were applied,
// those that people gave.
func (a *analysis) compare(p *period, k int, missed bool, over float64, bin *binSum) {
	if k == 0 {
		return
	}
	before := &a.periods[k-1]
	if !before.planned {
		return
	}
	shares, add := a.otherShares(p, before, k)
	x := &a.totals.advised
	if before.acts {
		x = &a.totals.acted
	} else {
		a.noteChange(p, before, shares)
		x.machineS += float64(before.add) * p.seconds
	}
	x.seconds, x.over = x.seconds+p.seconds, x.over+over
	if missed {
		x.missed += p.seconds
	}
	ratios, moved := a.ratios(p, shares, add, before.acts)
	var chance [3]float64
	for b := range chance {
		var otherOver, variance float64
		chance[b], otherOver, variance = a.chance(p, ratios, moved, a.variant(b, before.acts))
		x.other[b] += p.seconds * chance[b]
		x.otherOver[b] += otherOver
		if b == 1 {
			x.variance += dependent * p.seconds * p.seconds * chance[b] * (1 - chance[b])
			x.overVariance += dependent * variance
		}
	}
	x.variance += onset * p.seconds * p.seconds * float64(a.arrived(p))
	bin.other += p.seconds * chance[1]
}

// arrived returns at how many instances the objective is missed for the first time since their neighbours came.
func (a *analysis) arrived(p *period) (n int) {
	for i := p.from; i < p.to; i++ {
		r := &a.rows[i]
		e := &a.by[r.instance]
		if e.visited = e.visited && r.severity > 0; !e.visited && r.severity > 0 && a.missed(r) {
			e.visited = true
			n++
		}
	}
	return n
}

// otherShares returns the shares that are compared with those in force, by row, and how many instances there would be more.
func (a *analysis) otherShares(p, before *period, k int) (shares []float64, add int) {
	shares = resize(&a.scratch, p.to-p.from)
	if before.acts {
		for i := range shares {
			shares[i] = float64(a.rows[p.from+i].base)
		}
		return shares, 0
	}
	sum, known := 0.0, 0
	for i := range shares {
		if e := &a.by[a.rows[p.from+i].instance]; e.period == k && e.capacity >= 0 {
			sum, known = sum+float64(e.capacity), known+1
		}
	}
	step, stay := a.o.Service.Guard.Step/float64(max(len(shares), 1)), a.stay(p, before, k)
	any := false
	for i := range shares {
		r := &a.rows[p.from+i]
		e := &a.by[r.instance]
		v := &a.virtual[r.instance]
		if math.IsNaN(*v) {
			*v = float64(r.weight)
		}
		switch {
		case e.period != k: // it is new
			shares[i] = float64(r.weight)
		case !e.stays:
			shares[i] = 0
		case stay:
			shares[i] = *v
		case before.limited && known == len(shares) && sum > 0 && step > 0:
			shares[i] = *v + min(max(float64(e.capacity)/sum-*v, -step), step)
		default:
			shares[i] = float64(e.planned)
		}
		if math.IsNaN(shares[i]) {
			shares[i] = 0
		}
		*v = shares[i]
		any = any || shares[i] > 0
	}
	if !any { // a plan without shares changes none
		for i := range shares {
			shares[i] = float64(a.rows[p.from+i].weight)
		}
	}
	if before.add > 0 && a.addedFor >= a.o.Service.Group.Startup.Seconds() {
		add = before.add
	}
	return shares, add
}

// stay returns whether a controller that acts would still have the shares of earlier plans. A plan that is not carried out begins from the
// shares in force. If it leaves them as they are, it would have left those of earlier plans as they are, too, as long as the neighbours
// stay because of which an instance got less.
func (a *analysis) stay(p, before *period, k int) bool {
	less := false
	for i := p.from; i < p.to; i++ {
		r := &a.rows[i]
		e, w := &a.by[r.instance], finite(r.weight)
		if e.period != k || !e.stays || math.Abs(float64(e.planned)-w) > changed*w {
			return false
		}
		less = less || e.severity > 0 && a.virtual[r.instance] < (1-changed)*w
	}
	return less && before.add == 0
}

func resize(s *[]float64, n int) []float64 {
	if cap(*s) < n {
		*s = make([]float64, 2*n)
	}
	*s = (*s)[:n]
	return *s
}

// ratios turns shares into how much larger each instance's load would be. All requests are still answered: the part that instances lose is
// what the others, and added ones, gain. moved is false if nothing would change. If plans were applied, nobody is supposed to get more with
// the other shares than these say, or less: a balancer that looks for idle instances hardly follows weights at a low load, and what an
// instance got then is no measure of what its weight withheld.
func (a *analysis) ratios(p *period, shares []float64, add int, acted bool) (_ []float64, moved bool) {
	var requests, weights, sum, capacity, largest float64
	for i := p.from; i < p.to; i++ {
		r := &a.rows[i]
		requests += max(0, finite(r.n))
		if r.flags&inOrder != 0 {
			weights, sum = weights+finite(r.weight), sum+shares[i-p.from]
		}
		capacity, largest = capacity+finite(r.capacity), max(largest, finite(r.capacity))
	}
	if requests == 0 || sum == 0 {
		return shares, false
	}
	total := 0.0
	for i := range shares {
		r := &a.rows[p.from+i]
		measured := max(0, finite(r.n)) / requests
		share := finite(r.weight) / weights
		if !(share > 0) {
			share = measured
		}
		switch {
		case r.flags&inOrder == 0:
			shares[i] = 1
		case share > 0 && acted && measured > 0:
			toward := shares[i] / sum / measured
			shares[i] = min(max(shares[i]/sum/share, min(1, toward)), max(1, toward))
		case share > 0:
			shares[i] = shares[i] / sum / share
		default:
			shares[i] = 1
		}
		total += measured * shares[i]
	}
	left := 1.0
	if add > 0 {
		left = float64(len(shares)) / float64(len(shares)+add)
		if capacity > 0 {
			left = capacity / (capacity + float64(add)*largest)
		}
	}
	for i := range shares {
		shares[i] *= left / total
		moved = moved || math.Abs(shares[i]-1) > changed
	}
	return shares, moved
}

func finite(v float32) float64 {
	if isNaN(v) {
		return 0
	}
	return float64(v)
}

// chance returns the probability that a period is above the objective if loads are multiplied by ratios, and the expected number of
// requests at instances above it, with its variance.
func (a *analysis) chance(p *period, ratios []float64, moved bool, w law) (chance, over, variance float64) {
	within := 1.0
	for i := p.from; i < p.to; i++ {
		r := &a.rows[i]
		q, n := 0.0, max(0, finite(r.n))
		if a.missed(r) {
			q = 1
		}
		if ratio := ratios[i-p.from]; moved && math.Abs(ratio-1) > changed && a.predictable(r) {
			n *= ratio
			q = a.above(r, ratio, &w)
			if n < float64(a.least) {
				q = 0
			}
		}
		within *= 1 - q
		over += q * n
		variance += q * (1 - q) * n * n
	}
	return 1 - within, over, variance
}

// steepest is the exponent of response times that grow faster than those of processor sharing.
const steepest = 1.2

// variant returns the law for one of the three values of the bias: the favourable, the likely and the unfavourable one. Its bias is the one
// to add. Where plans were applied, instances beside neighbours were hardly ever busy, and no record shows what a larger load would have
// done there. There the variants reach from the law as it was fitted to a steep one.
func (a *analysis) variant(b int, acted bool) law {
	w := a.law
	w.bias = float64(b-1) * confidence * a.law.bias
	if acted {
		part := float64(b) / 2
		w.b, w.c = w.b+part*max(0, steepest-w.b), w.c+part*max(0, steepest-w.c)
	}
	return w
}

func (a *analysis) predictable(r *row) bool {
	known := a.fitted && !isNaN(r.use) && r.flags&inOrder != 0 && !math.IsNaN(a.law.level[r.instance])
	return known && (r.full() || r.usable() && r.flags&failing == 0 && !isNaN(r.smooth))
}

// above returns the probability that an instance is above the objective if its load is multiplied by ratio. Neighbours' use stays.
func (a *analysis) above(r *row, ratio float64, w *law) float64 {
	use, severity := float64(r.use), float64(r.severity)
	other := min(use*ratio, mostUse)
	expected := float64(r.log-r.residual) + w.b*(crowding(other)-crowding(use)) +
		w.c*(stretch(severityAt(other, float64(r.beside)))-stretch(severity))
	if r.full() { // its times are those of a queue that would not be there
		expected = w.at(r.instance, other, severityAt(other, float64(r.beside)))
	}
	again := max(0, 1-math.Abs(math.Log(max(ratio, 1e-3)))/alike)
	expected += float64(r.smooth) + again*float64(r.residual-r.smooth) + w.bias
	spread := a.law.calm
	if severity > 0 {
		spread = a.law.disturbed
	}
	spread *= math.Sqrt(1 - again*again)
	if spread < 1e-9 {
		spread = 1e-9
	}
	return 0.5 * math.Erfc((a.threshold-expected)/spread/math.Sqrt2)
}

// noteChange counts how a plan differs from what is in force.
func (a *analysis) noteChange(p, before *period, shares []float64) {
	s := &a.totals.change
	s.plans++
	s.planS += p.seconds
	s.addedS += float64(before.add) * p.seconds
	s.most = max(s.most, before.add)
	moved, differs := 0.0, before.add != 0
	for i, share := range shares {
		r := &a.rows[p.from+i]
		w := finite(r.weight)
		moved += math.Abs(share-w) / 2
		if w <= 0 || math.Abs(share/w-1) <= changed {
			continue
		}
		differs = true
		if share < w {
			l := s.lost[r.instance]
			if l == nil {
				l = &lostSum{}
				s.lost[r.instance] = l
			}
			l.n, l.share, l.planned = l.n+1, l.share+w, l.planned+share
		}
	}
	if differs {
		s.different++
		s.moved += moved
	}
}
