package route

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Prequal picks by probes of requests in flight and latency (Wydrowski et al., "Load is not what you should balance:
// Introducing Prequal", NSDI 2024). With every request, three probes are sent to random candidates, for later requests. A
// probe returns the candidate's requests in flight and the expected latency at that number. Of the probes in the pool, those
// with more requests in flight than the 0.84 quantile of recent probes are hot; the others are cold. The cold probe with the
// lowest latency is picked or, if all are hot, the probe with the fewest requests in flight.
//
// Weights do not apply, except that a candidate with weight 0 is never picked. A probe costs nothing: the balancer
// answers it at once from its own counts, which are complete as long as it is the only balancer of the service.
type Prequal struct {
	rng     *rand.Rand
	now     time.Duration
	pool    []probe // in any order, at most one of each candidate
	asked   uint64  // number of probes so far
	seen    inFlightWindow
	removed int // number of probes removed; the oldest and the worst are removed in turns
}

// The parameters of the paper's evaluation.
const (
	poolSize        = 16
	probesPerPick   = 3
	removedPerPick  = 1
	hotQuantile     = 0.84
	probeAge        = time.Second
	leastProbes     = 2 // if fewer probes are in the pool, a candidate is drawn at random
	poolGrowth      = 1 // delta: how many more probes enter the pool than are used up
	inFlightsKept   = 128
	answersKept     = 32
	answersRelevant = 10 * time.Second
)

// newPrequal returns Prequal over the given source.
func newPrequal(rng *rand.Rand) *Prequal { return &Prequal{rng: rng} }

// probe is an entry of the pool.
type probe struct {
	candidate *Candidate
	number    uint64 // sequence number of the probe; lower is older
	at        time.Duration
	inFlight  int64
	seconds   float64 // expected latency; 0: unknown
	index     int32   // its index among the candidates when last seen
	uses      int32   // remaining uses; negative: unlimited
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

// drop removes a probe from the pool.
func (p *Prequal) drop(i int) {
	last := len(p.pool) - 1
	p.pool[i] = p.pool[last]
	p.pool = p.pool[:last]
}

// fromPool picks by the probes of candidates that may be picked now, and uses one up.
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
	used.inFlight++ // the request being sent
	if used.uses--; used.uses == 0 {
		p.drop(best)
	}
	return index, true
}

// find returns whether the probe's candidate may be picked. It also updates the candidate's index.
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

// compare is the paper's hot-cold order: negative if e is better than f.
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

// goesBefore returns whether e is better than f, or equal and older.
func (e *probe) goesBefore(f *probe, hot int64) bool {
	order := e.compare(f, hot)
	return order < 0 || order == 0 && e.number < f.number
}

// worseThan returns whether e is worse than f, or equal and older.
func (e *probe) worseThan(f *probe, hot int64) bool {
	order := e.compare(f, hot)
	return order > 0 || order == 0 && e.number < f.number
}

// anyone draws a candidate: a random position, and from there the first that may be picked.
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

// remove removes the oldest and the worst probe in turns, so that neither old nor bad probes fill the pool.
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

// probe sends probes for the next requests.
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
			inFlight++ // the present request will be in flight there when the probe arrives
		}
		p.take(candidates, i, inFlight)
	}
}

// take puts a probe's answer into the pool. It replaces an older answer of the same candidate or, if the pool is full, the oldest one.
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

// uses is how often a probe may be used in a group of n (the paper's b_reuse), rounded at random so that the mean is
// exact. In small groups most probes only renew others, so uses are unlimited: -1.
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

// indexedPrequal is Prequal itself, because no part of it examines all candidates.
type indexedPrequal struct {
	Prequal
	candidates []*Candidate
}

func (x *indexedPrequal) Reset(candidates []*Candidate) { x.candidates = candidates }
func (*indexedPrequal) Changed(int)                     {}
func (x *indexedPrequal) Pick() (int, bool)             { return x.Prequal.Pick(x.candidates) }
