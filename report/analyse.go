package report

import (
	"math"
	"slices"
)

// analysis judges the periods of one stretch of records without gaps.
type analysis struct {
	*Collector
	law       law
	fitted    bool
	threshold float64   // its logarithm
	least     float32   // requests in a period, to judge an instance
	by        []entry   // what the plan before said, by instance
	virtual   []float64 // the shares that plans would have led to, by instance; NaN: none yet
	addedFor  float64   // for how long plans have asked for more instances
	scratch   []float64
}

// entry is what the last plan said of an instance.
type entry struct {
	period             int // of that plan, plus one
	planned, predicted float32
	capacity, severity float32
	stays              bool
	visited            bool // the present neighbour's coming was counted
}

// thinRequests is how many requests in a period are enough where most periods have fewer than leastRequests.
const thinRequests = 5

// cut analyses what was gathered, and begins anew.
func (c *Collector) cut() {
	if len(c.periods) == 0 {
		return
	}
	a := analysis{Collector: c, threshold: math.Log(c.o.Service.SLO.ThresholdMS()), by: make([]entry, len(c.ids)),
		virtual: slices.Repeat([]float64{math.NaN()}, len(c.ids))}
	a.law, a.fitted = fit(c.rows, len(c.ids))
	a.least = c.enough()
	for k := range c.periods {
		p := &c.periods[k]
		a.judge(p, k)
		a.remember(p, k)
	}
	c.totals.met()
	c.periods, c.rows = c.periods[:0], c.rows[:0]
}

// enough returns how many requests are needed to judge an instance in a period.
func (c *Collector) enough() float32 {
	many, some := 0, 0
	for i := range c.rows {
		if r := &c.rows[i]; r.n >= leastRequests {
			many++
		} else if r.n >= thinRequests {
			some++
		}
	}
	if some > many {
		c.totals.thin = true
		return thinRequests
	}
	return leastRequests
}

func (a *analysis) judged(r *row) bool {
	return r.flags&inOrder != 0 && !isNaN(r.log) && r.n >= a.least
}

func (a *analysis) missed(r *row) bool {
	return a.judged(r) && float64(r.log) > a.threshold || r.flags&failing != 0 && r.flags&inOrder != 0 && r.n > 0
}

// ms is the response time, 0 if none was measured, as if all requests failed.
func (r *row) ms() float64 {
	if isNaN(r.log) {
		return 0
	}
	return math.Exp(float64(r.log))
}

// judge counts a period.
func (a *analysis) judge(p *period, k int) {
	t := &a.totals
	t.recordedS += p.seconds
	var worst *row
	judged, over := false, 0.0
	for i := p.from; i < p.to; i++ {
		r := &a.rows[i]
		if r.n > 0 {
			t.requests += float64(r.n)
		}
		judged = judged || a.judged(r)
		if !a.missed(r) {
			continue
		}
		over += float64(r.n)
		if worst == nil || r.ms() > worst.ms() {
			worst = r
		}
	}
	if !judged && worst == nil {
		t.met()
		return
	}
	t.judgedS, t.over = t.judgedS+p.seconds, t.over+over
	bin := t.bin(&a.o, p.at)
	if worst == nil {
		t.met()
	} else {
		key, neighbour := a.cause(worst, p)
		t.blame(key, p, neighbour)
		t.missing(p, a.ids[worst.instance], key.kind, worst.ms())
		t.missedS += p.seconds
		bin.missed, bin.kinds[key.kind] = bin.missed+p.seconds, bin.kinds[key.kind]+p.seconds
	}
	a.compare(p, k, worst != nil, over, bin)
}

// interfering returns the use by neighbours that a severity shows at a use: with the free part f, probes take as long as 1/f (model.Law).
func interfering(use, severity float64) float64 {
	return (1 - use) * severity / (1 + severity)
}

// severityAt is its inverse.
func severityAt(use, neighbours float64) float64 {
	const most = 10
	if free := 1 - use - neighbours; free > (1-use)/(1+most) {
		return neighbours / free
	}
	return most
}

// cause returns why an instance was above the objective, and the use by neighbours if that is the cause.
func (a *analysis) cause(r *row, p *period) (causeKey, float64) {
	use, severity := float64(r.use), float64(r.severity)
	of := func(kind Kind) causeKey { return causeKey{kind, r.instance, -1} }
	alone := float64(r.log) - a.law.c*stretch(severity)
	disturbed := r.flags&felt != 0 && !isNaN(r.use)
	switch {
	case r.flags&failing != 0 && !(disturbed && r.full()):
		return of(Failure), 0
	case r.flags&works != 0 && alone <= a.threshold:
		return of(OwnWork), 0
	case disturbed && a.fitted && alone <= a.threshold:
		return causeKey{Interference, r.instance, r.resource}, interfering(use, severity)
	case r.flags&works != 0:
		return of(OwnWork), 0
	case r.flags&released != 0:
		return causeKey{Release, -1, -1}, 0
	case p.failures:
		return causeKey{Failure, -1, -1}, 0
	case !disturbed && !isNaN(r.capacity) && r.use > r.capacity, a.fitted && a.explained(r):
		return causeKey{OwnLoad, -1, -1}, 0
	case disturbed:
		return causeKey{Interference, r.instance, r.resource}, interfering(use, severity)
	}
	return of(Unknown), 0
}

// explained returns whether the own load alone is expected to miss the objective.
func (a *analysis) explained(r *row) bool {
	return r.usable() && a.law.at(r.instance, float64(r.use), 0) > a.threshold
}

// remember keeps what the plan of a period says, for the next one, and checks the predictions of the plan before.
func (a *analysis) remember(p *period, k int) {
	for i := p.from; i < p.to; i++ {
		r, e := &a.rows[i], &a.by[a.rows[i].instance]
		if e.period == k && !isNaN(e.predicted) && !isNaN(e.planned) && a.judged(r) &&
			math.Abs(float64(e.planned-r.weight)) <= inForce*float64(e.planned) {
			a.totals.ratios.add(float64(r.log - e.predicted))
		}
		*e = entry{k + 1, r.planned, r.predicted, r.capacity, r.severity, r.flags&stays != 0, e.visited}
	}
	switch {
	case !p.planned || p.add <= 0:
		a.addedFor = 0
	default:
		a.addedFor += p.seconds
	}
}

// inForce is by how much a share may differ from the planned one and still count as planned.
const inForce = 0.05
