package prima

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// visits says how often neighbours come beside instances, by resource. While a group is one station and as small as can be, a neighbour
// that comes takes what nobody has to spare until one more instance is ready. So as much stays in reserve as neighbours that may come in
// this time take: in a small group less than what one takes, in a large one what several do.
type visits map[quell.Resource]visitors

// visitors sums what was seen of neighbours of one resource.
type visitors struct {
	CalmS float64 `json:"calm_s,omitempty"` // time that instances were without neighbours, in seconds
	Came  float64 `json:"came,omitempty"`   // neighbours that came beside one
	Taken float64 `json:"taken,omitempty"`  // sum of the parts of the resource that they took
}

const (
	// Before one neighbour has come, one is expected beside an instance in firstVisit, and to take firstTaken of the resource.
	firstVisit = 600 * time.Second
	firstTaken = 0.5
	// likely is how many standard deviations more neighbours than expected may come.
	likely = 3
	// tellingUse is the own use above which probes wait for requests, so that neighbours that seem to come are not counted.
	tellingUse = 0.8
	// fadesAfter is the time without neighbours at which all that was seen is halved, so that it fades.
	fadesAfter = 100 * time.Hour
)

// untilReady returns how long a new instance takes from the first sign that it is needed.
func untilReady(in *policy.Input) time.Duration {
	return in.Service.Group.Startup + time.Duration(in.Confirm+1)*in.Service.Sampling
}

// followVisits counts the neighbours that came since the last snapshot.
func (p *plan) followVisits() {
	if !p.set.Pooling.On() {
		return
	}
	seen := maps.Clone(p.mem.Visits)
	if seen == nil {
		seen = visits{}
	}
	for i, c := range p.in.Contended {
		v := seen[c.Resource]
		for _, m := range p.group.Rated {
			if !m.Fresh {
				continue // what nobody measured is no peace
			}
			countVisit(m, i, uint8(1)<<slices.Index(quell.Resources, c.Resource), p.in.Service.Sampling, &v)
		}
		if v.CalmS > fadesAfter.Seconds() {
			v = visitors{v.CalmS / 2, v.Came / 2, v.Taken / 2}
		}
		seen[c.Resource] = v
	}
	p.mem.Visits = seen
	if p.stations != nil {
		p.stations.visits = seen
	}
}

// countVisit adds what a member senses of the i-th resource. bit is that of the resource in what is remembered of the member.
func countVisit(m *policy.Member, i int, bit uint8, period time.Duration, v *visitors) {
	own, s := instanceOf(m), &m.Senses[i]
	switch {
	case s.Out || s.Own-s.Others > policy.TracesOfUse:
	case s.Interfering-s.Others < model.SignificantUse:
		own.Beside &^= bit
		v.CalmS += period.Seconds()
	case own.Beside&bit == 0 && !s.Suspected():
		own.Beside |= bit
		if s.Use <= tellingUse {
			v.Came, v.Taken = v.Came+1, v.Taken+s.Interfering-s.Others
		}
	}
}

// Coming returns beside how many of a number of instances without neighbours one may come in a time: at most beside one until one has.
func (v visitors) Coming(calm int, in time.Duration) float64 {
	n, part := float64(calm), v.part(in)
	most := n
	if v.Came == 0 {
		most = math.Min(n, 1)
	}
	return math.Min(most, n*part+likely*math.Sqrt(n*part*(1-part)))
}

// part returns beside which part of the instances without neighbours one comes in a time.
func (v visitors) part(in time.Duration) float64 {
	return -math.Expm1(-(v.Came + 1) / (v.CalmS + firstVisit.Seconds()) * in.Seconds())
}

// Taking returns which part of the resource a neighbour takes.
func (v visitors) Taking() float64 { return (v.Taken + firstTaken) / (v.Came + 1) }

// reserve returns how much less the members of a group carry if neighbours come beside as many of them as may happen before one more
// instance is ready. It is that of the resource that then limits the group.
func (p *stations) reserve(members []*policy.Member, rates []float64) (most float64) {
	for i, c := range p.in.Contended {
		g := gathered{unit: rates[i], least: math.Inf(1)}
		for _, m := range members {
			g.add(m, i)
		}
		v := p.visits[c.Resource]
		if v.Came == 0 && !p.asks {
			continue // what nobody saw yet keeps instances, and starts none
		}
		lost := p.lost(i, &g, v.Coming(g.calm, p.late), v.Taking())
		most = math.Max(most, lost*rates[i]-(g.byThis-g.carried))
	}
	return most
}

// gathered is a group as the reserve of one resource needs it. A member of another type counts as what it is worth in units of the base
// type: loads are counted in these, and what a neighbour takes beside it must not depend on which type that is.
type gathered struct {
	unit       float64 // the rate of the base type
	size, calm int     // members, and those without neighbours
	worth      float64 // of those without neighbours, summed
	least      float64 // how long requests may wait on the member that is the least patient
	room       float64 // what neighbours leave of the resource, summed
	carried    float64 // what the group carries
	byThis     float64 // and what it would carry if only this resource were limited
}

func (g *gathered) add(m *policy.Member, i int) {
	s := &m.Senses[i]
	g.size++
	g.carried += m.Capacity
	if !m.Able || s.Out {
		return
	}
	g.byThis += s.Capacity * m.Rates[i]
	g.least = math.Min(g.least, s.Waits)
	worth := m.Rates[i] / g.unit
	g.room += worth * (1 - s.Interfering)
	if s.Interfering < model.SignificantUse {
		g.calm, g.worth = g.calm+1, g.worth+worth
	}
}

// lost returns how much less of a resource a group carries after neighbours came that each take a part. It either keeps the instances
// beside them, and then all of its station waits no longer than these may, or does without them, whichever costs less.
func (p *stations) lost(i int, g *gathered, came, taken float64) float64 {
	if came == 0 {
		return 0
	}
	station := p.in.Contended[i].Predictor.Station()
	limit := func(waiting float64) float64 { return p.limit(i, "", g.size, waiting) }
	pooling := station.Pooling()
	calm, _ := station.Patience(0, p.threshold)
	alone := (1 - pooling) * limit(calm)
	beside := came * (g.worth / math.Max(float64(g.calm), 1))
	without := beside * (pooling*limit(g.least) + alone)
	waits, ok := station.Patience(taken, p.threshold)
	if !ok {
		return without
	}
	shared := pooling * limit(math.Min(g.least, waits))
	left := (1 - taken) * (shared + (1-pooling)*limit(waits))
	with := math.Min(came, 1)*g.room*(pooling*limit(g.least)-shared) + beside*(shared+alone-left)
	return math.Min(with, without)
}
