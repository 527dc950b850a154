package prima

import (
	"math"
	"time"

	"github.com/quellhq/quell/policy"
)

// stations is what PRIMA knows of the group as a station: how large a use each group of its instances carries.
type stations struct {
	in        *policy.Input
	threshold float64
	most      [policy.MaxContended]float64    // largest use that is assumed; 0: any
	known     [policy.MaxContended][2]limited // the newest limits
	visits    visits                          // how often neighbours come
	late      time.Duration                   // how long a new instance takes from the first sign that it is needed
	asks      bool                            // a reserve for neighbours counts before one has come
}

func newStations(in *policy.Input, thresholdMS float64) *stations {
	return &stations{in: in, threshold: thresholdMS}
}

// careful returns the stations that assumes no use beyond what was seen to hold, where something was.
func (p *stations) careful() *stations {
	next := *p
	next.known = [policy.MaxContended][2]limited{}
	for i := range p.in.Contended {
		if held := p.in.Contended[i].Predictor.Station().Held(); held > 0 {
			next.most[i] = beyondHeld * held
		}
	}
	return &next
}

// beyondHeld is how far the use of a group may exceed the largest one at which the objective was seen to hold.
const beyondHeld = 1.15

// limit returns the largest use that a waiting factor allows in a group of a size.
func (p *stations) limit(i int, kind string, size int, waiting float64) float64 {
	known := &p.known[i]
	for k := range known {
		if l := &known[k]; l.size == size && l.waiting == waiting && l.kind == kind {
			return l.use
		}
	}
	use := p.in.Queue(i, kind, float64(size)).UseAt(waiting)
	if p.most[i] > 0 {
		use = math.Min(use, p.most[i])
	}
	known[1] = known[0]
	known[0] = limited{kind, size, waiting, use}
	return use
}

// limited is a result of stations.limit. Most instances ask for the same two: what all may use, and what those without neighbours may.
type limited struct {
	kind         string
	size         int
	waiting, use float64
}

// patient sets how long requests may wait on an instance so that it stays within the threshold, by each resource.
func (p *stations) patient(m *policy.Member) {
	m.Able = true
	for i := range m.Senses {
		s := &m.Senses[i]
		if s.Out {
			continue
		}
		var ok bool
		if s.Waits, ok = p.in.Contended[i].Of(m.Type).Predictor.Station().Patience(s.Interfering, p.threshold); !ok {
			m.Able = false
		}
	}
}

// capacities sets the capacity of each member of a group that has extra further instances without neighbours, and returns their sum. As far
// as the group is one station, its use is limited by the instance that can wait least; as far as it is not, each instance by itself.
// Members that miss the threshold without load carry nothing.
func (p *stations) capacities(members []*policy.Member, extra int) (sum float64) {
	size, least := extra, [policy.MaxContended]float64{}
	for i := range p.in.Contended {
		least[i] = math.Inf(1)
	}
	for _, m := range members {
		if m.Able {
			size++
			for i := range m.Senses {
				if s := &m.Senses[i]; !s.Out {
					least[i] = math.Min(least[i], s.Waits)
				}
			}
		}
	}
	for _, m := range members {
		if m.Able {
			p.set(m, size, &least)
		} else {
			carryNothing(m)
		}
		sum += m.Capacity
	}
	return sum
}

func carryNothing(m *policy.Member) {
	m.Capacity = 0
	for i := range m.Senses {
		m.Senses[i].Capacity = 0
	}
}

func (p *stations) set(m *policy.Member, size int, least *[policy.MaxContended]float64) {
	m.Capacity = math.Inf(1)
	for i := range m.Senses {
		s := &m.Senses[i]
		if s.Out {
			continue
		}
		pooling := p.in.Contended[i].Of(m.Type).Predictor.Station().Pooling()
		use := pooling*p.limit(i, m.Type, size, least[i]) + (1-pooling)*p.limit(i, m.Type, size, s.Waits)
		s.Capacity = use * (1 - s.Interfering)
		if capacity := s.Capacity * m.Rates[i]; capacity < m.Capacity {
			m.Capacity, m.Binds = capacity, uint8(i)
		}
	}
}

// fresh returns the capacity of an instance without neighbours in a group of a size.
func (p *stations) fresh(size int, rates []float64) float64 {
	least := math.Inf(1)
	for i := range p.in.Contended {
		least = math.Min(least, p.freshBy(i, size)*rates[i])
	}
	return least
}

// freshBy is fresh by one resource, in utilisation of it.
func (p *stations) freshBy(i, size int) float64 {
	waiting, ok := p.in.Contended[i].Predictor.Station().Patience(0, p.threshold)
	if !ok {
		return 0
	}
	return p.limit(i, "", max(size, 1), waiting)
}
