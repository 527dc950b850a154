package report

import (
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// releases follows what a request costs. If the cost of the median instance rises for good, a release, or another mix of requests, is
// the likely reason for longer response times.
type releases struct {
	usual  float64 // utilisation of a request per second, the mean of the last periods
	n      int
	above  int
	events []time.Time
	until  time.Time // until then requests count as dearer than before
	costs  []float64
}

const (
	usualOver     = 60               // periods of the mean
	dearer        = 1.2              // a release is noticed if costs rise by this factor
	dearFor       = 3                // for this many periods
	afterRelease  = 30 * time.Minute // for how long a release explains misses
	leastRequests = 30               // in a period, to judge an instance
)

// follow notes the costs of a period, and marks its rows.
func (x *releases) follow(c *Collector, p *period, s *quell.Snapshot) {
	x.costs = x.costs[:0]
	for i := p.from; i < p.to; i++ {
		if r := &c.rows[i]; r.n >= leastRequests && r.use > 0.01 {
			x.costs = append(x.costs, float64(r.use)*p.seconds/float64(r.n))
		}
	}
	if len(x.costs) == 0 {
		return
	}
	slices.Sort(x.costs)
	cost := x.costs[len(x.costs)/2]
	switch {
	case x.n < usualOver/4:
		x.usual += (cost - x.usual) / float64(x.n+1)
		x.n++
	case cost > dearer*x.usual:
		if x.above++; x.above == dearFor {
			x.events, x.until = append(x.events, s.At), s.At.Add(afterRelease)
		}
	default:
		x.above = 0
		x.usual += (cost - x.usual) / usualOver
	}
	if !s.At.Before(x.until) && x.above >= dearFor { // what was dear is usual by now
		x.usual, x.above = cost, 0
	}
	if s.At.Before(x.until) {
		for i := p.from; i < p.to; i++ {
			c.rows[i].flags |= released
		}
	}
}
