package route

import "time"

// timesKept is the number of answers over which LeastTime averages.
const timesKept = 100

// times are the durations of a candidate's newest answers, in seconds.
type times struct {
	ring   [timesKept]float64
	count  int
	oldest int // position in ring that the next answer replaces
	mean   float64
}

func (t *times) add(seconds float64) {
	t.ring[t.oldest] = seconds
	t.oldest = (t.oldest + 1) % timesKept
	t.count = min(t.count+1, timesKept)
	sum := 0.0
	for _, s := range t.ring[:t.count] {
		sum += s
	}
	t.mean = sum / float64(t.count)
}

// LeastTime picks the candidate with the smallest mean time of its newest answers * (inflight + 1) / weight, like the least time of
// Traefik and of nginx Plus. Equal candidates are picked in turns. A candidate without answers gets one request, and no further ones until
// that request is answered.
type LeastTime struct{ lowest }

// newLeastTime returns weighted least time.
func newLeastTime() *LeastTime { return &LeastTime{newLowest(timeCost)} }

func timeCost(c *Candidate) float64 { return c.meanSeconds() * c.load() }

// meanSeconds is the mean time of the newest answers. Without answers it is nearly nothing, or endless while the first request is open.
func (c *Candidate) meanSeconds() float64 {
	switch {
	case c.times != nil:
		return c.times.mean
	case c.InFlight > 0:
		return unknownSeconds
	}
	return 0
}

func learnTime(c *Candidate, a Answer) {
	if c.times == nil {
		c.times = &times{}
	}
	c.times.add(a.counted(func() float64 { return c.times.mean }))
}

// Advance implements Learner. The mean does not depend on the time.
func (*LeastTime) Advance(time.Duration) {}

// Done implements Learner.
func (*LeastTime) Done(c *Candidate, a Answer) { learnTime(c, a) }

// indexedLeastTime is LeastTime on a tree that keeps the lowest cost of every subtree.
type indexedLeastTime struct {
	indexedLowest
	places map[*Candidate]int
}

func newIndexedLeastTime() *indexedLeastTime {
	return &indexedLeastTime{indexedLowest: indexedLowest{lowest: newLowest(timeCost)}}
}

func (l *indexedLeastTime) Reset(candidates []*Candidate) {
	l.indexedLowest.Reset(candidates)
	l.places = make(map[*Candidate]int, len(candidates))
	for i, c := range candidates {
		l.places[c] = i
	}
}

// Advance implements Learner.
func (*indexedLeastTime) Advance(time.Duration) {}

// Done implements Learner.
func (l *indexedLeastTime) Done(c *Candidate, a Answer) {
	learnTime(c, a)
	if i, ok := l.places[c]; ok {
		l.Changed(i)
	}
}
