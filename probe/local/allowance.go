package local

import (
	"math"
	"time"
)

// allowance is the budget of a resource's probes, in seconds of a processor or in operations of a disk. If probes cost more, there are
// fewer.
type allowance struct {
	perSecond float64 // income, in the same unit
	most      float64 // limit of probes per second
	cost      float64 // of one probe: a moving mean that begins with a guess

	saved float64
	due   float64 // number of probes that may be made by rate
}

// draw returns how many probes a window may have. At most one probe's unused budget is kept for later, so an idle time is not followed by a
// burst.
func (p *allowance) draw(window time.Duration) int {
	p.saved = math.Min(p.saved, p.cost) + p.perSecond*window.Seconds()
	p.due = math.Min(p.due, 1) + p.most*window.Seconds()
	n := math.Max(0, math.Floor(math.Min(p.due, p.saved/p.cost)))
	p.due -= n
	return int(n)
}

// pay subtracts what one probe has cost, and adapts the mean cost.
func (p *allowance) pay(cost float64) {
	const weight = 0.1
	p.saved -= cost
	p.cost += weight * (cost - p.cost)
}
