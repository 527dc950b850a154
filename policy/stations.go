package policy

import (
	"math"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Crowds are a group by resource, as all its instances see it: its size and use.
type Crowds [MaxContended]model.Crowd

// Stationed returns whether the models of every resource, also those of each type of instance, describe the group as a station
// (model.Station). Only laws that were learned in place do.
func (in *Input) Stationed() bool {
	if !in.pooled {
		return false
	}
	for i := range in.Contended {
		c := &in.Contended[i]
		if c.single() {
			return false
		}
		for _, own := range c.Types {
			if own.single() {
				return false
			}
		}
	}
	return len(in.Contended) > 0
}

// single returns whether the models do not describe the group as a station.
func (c *Contended) single() bool { return c.Predictor == nil || c.Predictor.Station() == nil }

// crowd returns the size and the use of a group of members at a load.
func (in *Input) crowd(members []*Member, load float64) (all Crowds) {
	for i := range in.Contended {
		room := 0.0
		for _, m := range members {
			room += m.Room(i)
		}
		all[i] = model.Even(float64(len(members)), load/math.Max(room, quell.SumTolerance))
	}
	return all
}

// Room is the load at which an instance uses all of a resource that its neighbours leave.
func (m *Member) Room(i int) float64 { return (1 - m.Senses[i].Interfering) * m.Rates[i] }

// gauge sets what neighbours use of every rated instance, and the present size and use of the group: of those that get requests.
func (g *Group) gauge(in *Input) {
	if !in.byCapacity || !in.Stationed() {
		return
	}
	load, size := 0.0, float64(len(g.Ready))
	var serving []*Member
	for _, m := range g.Rated {
		for i := range m.Senses {
			if s := &m.Senses[i]; !s.Out {
				s.Interfering = s.WithOwn(s.Neighbours(in.Contended[i].Of(m.Type).Predictor))
			}
		}
		if !g.Weightless && m.Weight != nil && *m.Weight == 0 {
			size--
			continue
		}
		serving, load = append(serving, m), load+m.Use
	}
	g.Now = in.crowd(serving, load)
	for i := range g.Now {
		g.Now[i].Size = math.Max(size, 1)
	}
	for _, m := range g.Rated {
		m.Now = &g.Now
	}
}

// Sees returns a resource's group as an instance with an own load sees it.
func (m *Member) Sees(i int, all *Crowds, load float64) model.Crowd {
	c := all[i]
	c.Own = load / math.Max(m.Room(i), quell.SumTolerance)
	return c
}

// responseBy predicts the response time in milliseconds by one resource, at a load of the instance and of its group.
func (m *Member) responseBy(in *Input, i int, all *Crowds, load float64) float64 {
	s, predictor := &m.Senses[i], in.Contended[i].Of(m.Type).Predictor
	if station := predictor.Station(); station != nil && all != nil {
		return station.ResponseMS(in.Queue(i, m.Type, all[i].Size), m.Sees(i, all, load), s.Interfering)
	}
	use := math.Min(load/m.Rates[i], predictor.MaxUtilization())
	return predictor.ResponseTime(use, predictor.SeverityAt(use, s.Interfering))
}

// queues are the tables of a decision, by their numbers of servers.
type queues struct {
	all  map[float64]*model.Queue
	last [MaxContended]struct { // the newest of each resource: mostly the next one is the same
		station *model.Station
		size    float64
		queue   *model.Queue
	}
}

// Queue returns the table of a resource for a type of instance and a size of the group.
func (in *Input) Queue(i int, kind string, size float64) *model.Queue {
	station, last := in.Contended[i].Of(kind).Predictor.Station(), &in.queues.last[i]
	if last.station == station && last.size == size {
		return last.queue
	}
	servers := station.Servers(size)
	q := in.queues.all[servers]
	if q == nil {
		q = model.NewQueue(servers)
		quell.Put(&in.queues.all, servers, q)
	}
	last.station, last.size, last.queue = station, size, q
	return q
}
