package ice

import (
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// room tells how much of a resource neighbours leave free up to a level. What they use changes with each cut, and each cut asks again. So
// it is kept in Fenwick trees, in which a question and a change take log n steps.
type room struct {
	work   float64   // own use of all instances
	hidden []float64 // by position in the snapshot: use by neighbours
	values []float64 // those that hidden has, or may get in this decision, in increasing order

	count, sum []float64 // of instances by value; as a Fenwick tree's, indices begin with 1
}

// roomOf returns the room of a resource. It follows the changes of this decision.
func (p *plan) roomOf(r quell.Resource) *room {
	if x := p.rooms[r]; x != nil {
		return x
	}
	x := &room{hidden: make([]float64, len(p.group.Members)), values: []float64{0}}
	for _, m := range p.group.Ready {
		x.work += p.ownUse(m, r)
		if mem := memoryOf(m); mem.Cause == r {
			x.values = append(x.values, mem.Hidden, mem.Seen.Hidden)
		}
	}
	slices.Sort(x.values)
	x.values = slices.Compact(x.values)
	x.count, x.sum = make([]float64, len(x.values)+1), make([]float64, len(x.values)+1)
	for _, m := range p.group.Ready {
		x.hidden[m.Position] = memoryOf(m).othersUse(r)
		x.add(x.hidden[m.Position], 1)
	}
	quell.Put(&p.rooms, r, x)
	return x
}

// othersUse returns the neighbours' use of a resource, as far as it is known.
func (mem *instance) othersUse(r quell.Resource) float64 {
	switch {
	case mem.Cause != r:
		return 0
	case mem.Seen.N > 0:
		return mem.Seen.Hidden
	}
	return mem.Hidden
}

// changed updates all rooms after an instance's share may have changed.
func (p *plan) changed(m *policy.Member) {
	for r, x := range p.rooms {
		if now, before := memoryOf(m).othersUse(r), x.hidden[m.Position]; now != before {
			x.add(before, -1)
			x.add(now, 1)
			x.hidden[m.Position] = now
		}
	}
}

func (x *room) add(value, n float64) {
	i, _ := slices.BinarySearch(x.values, value)
	for i++; i < len(x.count); i += i & -i {
		x.count[i] += n
		x.sum[i] += n * value
	}
}

// free returns how much is free up to a level, which is a part of the resource of each instance.
func (x *room) free(level float64) float64 {
	count, sum := 0.0, 0.0
	below, _ := slices.BinarySearch(x.values, level)
	for i := below; i > 0; i -= i & -i {
		count += x.count[i]
		sum += x.sum[i]
	}
	return count*level - sum
}
