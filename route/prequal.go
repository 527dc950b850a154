package route

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Prequal picks by probes of requests in flight and latency (Wydrowski et al., "Load is not what you should balance:
// Introducing Prequal", NSDI 2024). Every request sends three probes to candidates drawn at random, for the requests
// after it. A probe tells the candidate's requests in flight and the latency to expect at that number. Of the probes in
// the pool, those above the 0.84 quantile of recent requests in flight are hot; the cold one of least latency is picked,
// or if all are hot the one with the fewest requests in flight.
//
// Weights do not apply, except that 0 is never picked. A probe costs nothing and is answered at once from what this
// balancer knows by itself: its own requests in flight are all there are, as long as it is the only one in front of the
// service.
type Prequal struct {
	rng     *rand.Rand
	now     time.Duration
	pool    []probe // in any order, at most one of each candidate
	asked   uint64  // probes ever
	seen    inFlightWindow
	removed int // probes taken out, oldest and worst by turns
}

// The parameters of the paper's evaluation.
const (
	poolSize        = 16
	probesPerPick   = 3
	removedPerPick  = 1
	hotQuantile     = 0.84
	probeAge        = time.Second
	leastProbes     = 2 // with fewer in the pool, a candidate is drawn at random
	poolGrowth      = 1 // delta: by how much more probes come into the pool than go out of use
	inFlightsKept   = 128
	answersKept     = 32
	answersRelevant = 10 * time.Second
)

// newPrequal returns Prequal over the given source.
func newPrequal(rng *rand.Rand) *Prequal { return &Prequal{rng: rng} }

// probe is an entry of the pool.
type probe struct {
	candidate *Candidate
	number    uint64 // of the probes ever sent; the lower the older
	at        time.Duration
	inFlight  int64
	seconds   float64 // expected; 0: nothing is known
	index     int32   // where it was among the candidates
	uses      int32   // left; below 0: as many as come
}

// Advance implements Learner.
func (p *Prequal) Advance(now time.Duration) { p.now = max(p.now, now) }

// Done implements Learner.
func (p *Prequal) Done(c *Candidate, a Answer) {
	if c.answers == nil {
		c.answers = &answers{}
	}
	c.answers.add(p.now, a.InFlight, a.counted(func() float64 { return c.answers.expected(p.now, a.InFlight) }))
}

// Pick implements Picker.
func (p *Prequal) Pick(candidates []*Candidate) (int, bool) {
	p.expire()
	picked, ok := p.fromPool(candidates)
	if !ok {
		if picked, ok = p.anyone(candidates); !ok {
			return 0, false
		}
	}
	for range removedPerPick {
		p.remove()
	}
	p.probe(candidates, picked)
	return picked, true
}

func (p *Prequal) expire() {
	for i := 0; i < len(p.pool); {
		if p.now-p.pool[i].at > probeAge {
			p.drop(i)
		} else {
			i++
		}
	}
}

// drop takes a probe out of the pool.
func (p *Prequal) drop(i int) {
	last := len(p.pool) - 1
	p.pool[i] = p.pool[last]
	p.pool = p.pool[:last]
}

// fromPool picks by the probes of those candidates that may be picked now, and uses one up.
func (p *Prequal) fromPool(candidates []*Candidate) (index int, ok bool) {
	hot, best, known := p.seen.quantile(), -1, 0
	for i := range p.pool {
		if !p.pool[i].find(candidates) {
			continue
		}
		known++
		if best < 0 || p.pool[i].goesBefore(&p.pool[best], hot) {
			best = i
		}
	}
	if known < min(leastProbes, len(candidates)) || known == 0 {
		return 0, false
	}
	used := &p.pool[best]
	index = int(used.index)
	used.inFlight++ // by the request on its way
	if used.uses--; used.uses == 0 {
		p.drop(best)
	}
	return index, true
}

// find says whether the probe's candidate may be picked, and where it is now.
func (e *probe) find(candidates []*Candidate) bool {
	if int(e.index) >= len(candidates) || candidates[e.index] != e.candidate {
		i := slices.Index(candidates, e.candidate)
		if i < 0 {
			return false
		}
		e.index = int32(i)
	}
	return e.candidate.pickable()
}

// compare is the paper's hot-cold order: below 0 if e is better than f.
func (e *probe) compare(f *probe, hot int64) int {
	switch {
	case e.inFlight > hot && f.inFlight > hot:
		return cmp.Compare(e.inFlight, f.inFlight)
	case e.inFlight > hot:
		return 1
	case f.inFlight > hot:
		return -1
	case e.seconds < f.seconds:
		return -1
	case e.seconds > f.seconds:
		return 1
	}
	return cmp.Compare(e.inFlight, f.inFlight)
}

// goesBefore says whether e is better than f, or as good and older.
func (e *probe) goesBefore(f *probe, hot int64) bool {
	order := e.compare(f, hot)
	return order < 0 || order == 0 && e.number < f.number
}

// worseThan says whether e is worse than f, or as bad and older.
func (e *probe) worseThan(f *probe, hot int64) bool {
	order := e.compare(f, hot)
	return order > 0 || order == 0 && e.number < f.number
}

// anyone draws a candidate: any place, and from there on the first that may be picked.
func (p *Prequal) anyone(candidates []*Candidate) (int, bool) {
	if len(candidates) == 0 {
		return 0, false
	}
	from := p.rng.IntN(len(candidates))
	for k := range candidates {
		if i := (from + k) % len(candidates); candidates[i].pickable() {
			return i, true
		}
	}
	return 0, false
}

// remove takes the oldest and the worst probe out of the pool by turns, so that neither age nor what nobody picks fills
// it up.
func (p *Prequal) remove() {
	if len(p.pool) == 0 {
		return
	}
	p.removed++
	if p.removed%2 == 0 {
		p.drop(p.worst())
	} else {
		p.drop(p.oldest())
	}
}

func (p *Prequal) oldest() (oldest int) {
	for i := range p.pool {
		if p.pool[i].number < p.pool[oldest].number {
			oldest = i
		}
	}
	return oldest
}

func (p *Prequal) worst() (worst int) {
	hot := p.seen.quantile()
	for i := range p.pool {
		if p.pool[i].worseThan(&p.pool[worst], hot) {
			worst = i
		}
	}
	return worst
}

// probe asks some candidates for what the next requests are to go by.
func (p *Prequal) probe(candidates []*Candidate, picked int) {
	n := len(candidates)
	var asked [probesPerPick]int
	for k := range min(probesPerPick, n) {
		i := p.rng.IntN(n)
		for slices.Contains(asked[:k], i) {
			i = (i + 1) % n
		}
		asked[k] = i
		if !candidates[i].pickable() {
			continue
		}
		inFlight := candidates[i].InFlight
		if i == picked {
			inFlight++ // the request on its way is there when the probe is
		}
		p.take(candidates, i, inFlight)
	}
}

// take puts a probe's answer into the pool, in place of an older one of the same candidate, or of the oldest.
func (p *Prequal) take(candidates []*Candidate, i int, inFlight int64) {
	c := candidates[i]
	p.seen.add(inFlight)
	at := 0
	for at < len(p.pool) && p.pool[at].candidate != c {
		at++
	}
	if at == poolSize {
		at = p.oldest()
	} else if at == len(p.pool) {
		p.pool = append(p.pool, probe{})
	}
	p.asked++
	p.pool[at] = probe{
		candidate: c, number: p.asked, index: int32(i), at: p.now, inFlight: inFlight,
		seconds: c.answers.expected(p.now, inFlight), uses: p.uses(len(candidates)),
	}
}

// uses is how often a probe may be used in a group of n (the paper's b_reuse), rounded at random to be right on average.
// In small groups most probes only renew others, and what there is may be used as long as it lasts: -1.
func (p *Prequal) uses(n int) int32 {
	if n*(probesPerPick-removedPerPick) <= poolSize*probesPerPick {
		return -1
	}
	uses := max(1, (1+poolGrowth)/((1-float64(poolSize)/float64(n))*probesPerPick-removedPerPick))
	whole := int32(uses)
	if p.rng.Float64() < uses-float64(whole) {
		whole++
	}
	return whole
}

// indexedPrequal is Prequal as it is: no part of it looks at everybody.
type indexedPrequal struct {
	Prequal
	candidates []*Candidate
}

func (x *indexedPrequal) Reset(candidates []*Candidate) { x.candidates = candidates }
func (*indexedPrequal) Changed(int)                     {}
func (x *indexedPrequal) Pick() (int, bool)             { return x.Prequal.Pick(x.candidates) }
