package policy

import (
	"math"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// crowds are a group by resource, as all its instances see it: its size and use.
type crowds [maxContended]model.Crowd

// stationed returns whether every resource's models describe the group as a station (model.Station). Only laws that
// were learned in place do.
func (in *Input) stationed() bool {
	if !in.pooled {
		return false
	}
	for i := range in.contended {
		if p := in.contended[i].Predictor; p == nil || p.Station() == nil {
			return false
		}
	}
	return len(in.contended) > 0
}

// inStorm returns whether what a policy remembers says that neighbours come too often for a small group.
func inStorm(memory any) bool {
	m, ok := memory.(interface{ Stormy() bool })
	return ok && m.Stormy()
}

// crowd returns the size and the use of a group of members at a load.
func (in *Input) crowd(members []*Member, load float64) (all crowds) {
	for i := range in.contended {
		room := 0.0
		for _, m := range members {
			room += m.room(i)
		}
		all[i] = model.Even(float64(len(members)), load/math.Max(room, quell.SumTolerance))
	}
	return all
}

// room is the load at which an instance uses all of a resource that its neighbours leave.
func (m *Member) room(i int) float64 { return (1 - m.Senses[i].interfering) * m.rates[i] }

// gauge sets what neighbours use of every rated instance, and the group's present size and use.
func (g *Group) gauge(in *Input) {
	if !in.byCapacity || !in.stationed() {
		return
	}
	load := 0.0
	for _, m := range g.rated {
		for i := range m.Senses {
			if s := &m.Senses[i]; !s.out {
				s.interfering = s.takenOf(in.contended[i].of(m.Type).Predictor)
			}
		}
		load += m.Use
	}
	g.now = in.crowd(g.rated, load)
	for i := range g.now {
		g.now[i].Size = math.Max(float64(len(g.Ready)), 1)
	}
	for _, m := range g.rated {
		m.now = &g.now
	}
}

// sees returns a resource's group as an instance with an own load sees it.
func (m *Member) sees(i int, all *crowds, load float64) model.Crowd {
	c := all[i]
	c.Own = load / math.Max(m.room(i), quell.SumTolerance)
	return c
}

// responseBy predicts the response time in milliseconds by one resource, at a load of the instance and of its group.
func (m *Member) responseBy(in *Input, i int, all *crowds, load float64) float64 {
	s, predictor := &m.Senses[i], in.contended[i].of(m.Type).Predictor
	if station := predictor.Station(); station != nil && all != nil {
		return station.ResponseMS(in.queue(i, m.Type, all[i].Size), m.sees(i, all, load), s.interfering)
	}
	use := math.Min(load/m.rates[i], predictor.MaxUtilization())
	return predictor.ResponseTime(use, predictor.SeverityAt(use, s.interfering))
}

// queues are the tables of a decision, by their numbers of servers.
type queues struct {
	all  map[float64]*model.Queue
	last [maxContended]struct { // the newest of each resource: mostly the next one is the same
		station *model.Station
		size    float64
		queue   *model.Queue
	}
}

// queue returns the table of a resource for a type of instance and a size of the group.
func (in *Input) queue(i int, kind string, size float64) *model.Queue {
	station, last := in.contended[i].of(kind).Predictor.Station(), &in.queues.last[i]
	if last.station == station && last.size == size {
		return last.queue
	}
	servers := station.Servers(size)
	q := in.queues.all[servers]
	if q == nil {
		q = model.NewQueue(servers)
		if in.queues.all == nil {
			in.queues.all = map[float64]*model.Queue{}
		}
		in.queues.all[servers] = q
	}
	last.station, last.size, last.queue = station, size, q
	return q
}

// stations is what PRIMA knows of the group as a station: how large a use each group of its instances carries.
type stations struct {
	in        *Input
	threshold float64
	most      [maxContended]float64    // largest use that is assumed; 0: any
	known     [maxContended][2]limited // the newest limits
	visits    visits                   // how often neighbours come
	late      time.Duration            // how long a new instance takes from the first sign that it is needed
}

func newStations(in *Input, thresholdMS float64) *stations {
	return &stations{in: in, threshold: thresholdMS}
}

// careful returns the stations that assumes no use beyond what was seen to hold.
func (p *stations) careful() *stations {
	next := *p
	next.known = [maxContended][2]limited{}
	for i := range p.in.contended {
		if held := p.in.contended[i].Predictor.Station().Held(); held > 0 {
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
	use := p.in.queue(i, kind, float64(size)).UseAt(waiting)
	if p.most[i] > 0 {
		use = math.Min(use, p.most[i])
	}
	known[1] = known[0]
	known[0] = limited{kind, size, waiting, use}
	return use
}

// limited is a result of stations.limit. Most instances of a group ask for the same two: what all of them may use, and what those without
// neighbours may.
type limited struct {
	kind         string
	size         int
	waiting, use float64
}

// patient sets how long requests may wait on an instance so that it stays within the threshold, by each resource.
func (p *stations) patient(m *Member) {
	m.able = true
	for i := range m.Senses {
		s := &m.Senses[i]
		if s.out {
			continue
		}
		var ok bool
		if s.waits, ok = p.in.contended[i].of(m.Type).Predictor.Station().Patience(s.interfering, p.threshold); !ok {
			m.able = false
		}
	}
}

// capacities sets the capacity of each member of a group that has extra further instances without neighbours, and returns their sum. As far
// as the group is one station, its use is limited by the instance that can wait least; as far as it is not, each
// instance by itself. Members
// that miss the threshold without load carry nothing.
func (p *stations) capacities(members []*Member, extra int) (sum float64) {
	size, least := extra, [maxContended]float64{}
	for i := range p.in.contended {
		least[i] = math.Inf(1)
	}
	for _, m := range members {
		if m.able {
			size++
			for i := range m.Senses {
				if s := &m.Senses[i]; !s.out {
					least[i] = math.Min(least[i], s.waits)
				}
			}
		}
	}
	for _, m := range members {
		if m.able {
			p.set(m, size, &least)
		} else {
			m.carryNothing()
		}
		sum += m.capacity
	}
	return sum
}

func (m *Member) carryNothing() {
	m.capacity = 0
	for i := range m.Senses {
		m.Senses[i].capacity = 0
	}
}

func (p *stations) set(m *Member, size int, least *[maxContended]float64) {
	m.capacity = math.Inf(1)
	for i := range m.Senses {
		s := &m.Senses[i]
		if s.out {
			continue
		}
		pooling := p.in.contended[i].of(m.Type).Predictor.Station().Pooling()
		use := pooling*p.limit(i, m.Type, size, least[i]) + (1-pooling)*p.limit(i, m.Type, size, s.waits)
		s.capacity = use * (1 - s.interfering)
		if capacity := s.capacity * m.rates[i]; capacity < m.capacity {
			m.capacity, m.binds = capacity, uint8(i)
		}
	}
}

// fresh returns the capacity of an instance without neighbours in a group of a size.
func (p *stations) fresh(size int, rates []float64) float64 {
	least := math.Inf(1)
	for i := range p.in.contended {
		least = math.Min(least, p.freshBy(i, size)*rates[i])
	}
	return least
}

// freshBy is fresh by one resource, in utilisation of it.
func (p *stations) freshBy(i, size int) float64 {
	waiting, ok := p.in.contended[i].Predictor.Station().Patience(0, p.threshold)
	if !ok {
		return 0
	}
	return p.limit(i, "", max(size, 1), waiting)
}
