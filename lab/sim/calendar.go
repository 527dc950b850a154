package sim

import "math"

// calendar finds the station (a resource of a host) whose next event is the earliest. It is a tournament tree over all stations, so a
// change costs the logarithm of their number. If times are equal, the station with the lower number goes first.
type calendar struct {
	times []float64
	tree  []int32 // tree[1] is the winner; the leaves begin at len(tree)/2
}

func newCalendar(n int) *calendar {
	leaves := 1
	for leaves < n {
		leaves *= 2
	}
	c := &calendar{times: make([]float64, leaves), tree: make([]int32, 2*leaves)}
	for i := range c.times {
		c.times[i] = math.Inf(1)
		c.tree[leaves+i] = int32(i)
	}
	for i := leaves - 1; i > 0; i-- {
		c.tree[i] = c.tree[2*i]
	}
	return c
}

func (c *calendar) first() (station int32, at float64) {
	station = c.tree[1]
	return station, c.times[station]
}

func (c *calendar) set(station int32, at float64) {
	c.times[station] = at
	for i := (len(c.times) + int(station)) / 2; i > 0; i /= 2 {
		left, right := c.tree[2*i], c.tree[2*i+1]
		winner := left
		if c.times[right] < c.times[left] {
			winner = right
		}
		if c.tree[i] == winner && winner != station {
			return // the nodes above do not change
		}
		c.tree[i] = winner
	}
}

// entry is a function that is to be called at a known time.
type entry struct {
	at     float64
	number uint64 // counts entries in the order in which they were made, which decides between equal times
	do     func()
}

// agenda keeps entries in order of time. It is for rare events: sampling, probes, starts and ends of instances.
type agenda struct {
	heap []entry
	made uint64
}

func (a *agenda) next() float64 {
	if len(a.heap) == 0 {
		return math.Inf(1)
	}
	return a.heap[0].at
}

func (a *agenda) add(at float64, do func()) {
	a.made++
	a.heap = append(a.heap, entry{at, a.made, do})
	h := a.heap
	for i := len(h) - 1; i > 0 && h[i].before(h[(i-1)/2]); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

func (a *agenda) pop() entry {
	h := a.heap
	top, last := h[0], len(h)-1
	h[0], h[last] = h[last], entry{}
	h = h[:last]
	a.heap = h
	for i := 0; ; {
		least := 2*i + 1
		if least >= last {
			return top
		}
		if least+1 < last && h[least+1].before(h[least]) {
			least++
		}
		if !h[least].before(h[i]) {
			return top
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

func (e entry) before(f entry) bool { return e.at < f.at || e.at == f.at && e.number < f.number }
