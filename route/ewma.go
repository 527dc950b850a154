package route

import (
	"math"
	"math/rand/v2"
	"time"
)

// EWMA draws two different candidates, each with a probability proportional to its weight, and picks the one with the
// lower expected waiting time: peak latency * (inflight + 1) / weight. The peak latency rises at once after a slow answer
// and decays over ewmaDecay, as in the balancers of Finagle and Linkerd. So a candidate that became slow is avoided after one
// answer. A candidate without answers gets one request, and no further ones until that request is answered.
type EWMA struct {
	rng *rand.Rand
	now time.Duration
}

// newEWMA returns weighted peak-EWMA over the given source.
func newEWMA(rng *rand.Rand) *EWMA { return &EWMA{rng: rng} }

// ewmaDecay is the time without answers after which a peak has decayed to 1/e (Finagle's default).
const ewmaDecay = 10 * time.Second

// unknownSeconds is the expected response time of a candidate that has not yet answered its first request.
const unknownSeconds = 1e6

// peak is a moving average that rises at once and decays slowly. The zero value has no data.
type peak struct {
	seconds float64
	at      time.Duration
}

func (p *peak) remains(now time.Duration) float64 {
	return math.Exp(-float64(now-p.at) / float64(ewmaDecay))
}

// value returns the present average. It is 0 if there are no data, or none recent enough.
func (p *peak) value(now time.Duration) float64 {
	if p.seconds == 0 {
		return 0
	}
	return p.seconds * p.remains(now)
}

func (p *peak) add(now time.Duration, seconds float64) {
	remains := p.remains(now)
	p.seconds = max(seconds, p.seconds*remains+seconds*(1-remains))
	p.at = now
}

// Advance implements Learner.
func (e *EWMA) Advance(now time.Duration) { e.now = max(e.now, now) }

// Done implements Learner.
func (e *EWMA) Done(c *Candidate, a Answer) {
	c.peak.add(e.now, a.counted(func() float64 { return c.peak.value(e.now) }))
}

// Pick implements Picker.
func (e *EWMA) Pick(candidates []*Candidate) (int, bool) {
	total := totalWeight(candidates)
	if total == 0 {
		return 0, false
	}
	first := draw(e.rng, candidates, total, -1)
	second := draw(e.rng, candidates, total-candidates[first].Weight, first)
	return e.better(candidates, first, second), true
}

// better returns first, or second if there is a second candidate and it costs less.
func (e *EWMA) better(candidates []*Candidate, first, second int) int {
	if second >= 0 && e.cost(candidates[second]) < e.cost(candidates[first]) {
		return second
	}
	return first
}

func (e *EWMA) cost(c *Candidate) float64 {
	expected := c.peak.value(e.now)
	if expected == 0 && c.InFlight > 0 {
		expected = unknownSeconds
	}
	return expected * c.load()
}

// indexedEWMA is EWMA that draws from cumulative sums of the weights.
type indexedEWMA struct {
	indexedRandom2
	EWMA
}

func newIndexedEWMA(rng *rand.Rand) *indexedEWMA {
	return &indexedEWMA{indexedRandom2{rng: rng}, EWMA{rng: rng}}
}

func (x *indexedEWMA) Pick() (int, bool) {
	if !x.any() {
		return 0, false
	}
	first := x.draw()
	return x.better(x.candidates, first, x.drawBeside(first)), true
}
