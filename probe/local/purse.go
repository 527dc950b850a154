package local

import (
	"math"
	"time"
)

// purse holds what a resource's probes may take, in seconds of a processor or in operations of a disk, so that their rate adapts to
// what they cost.
type purse struct {
	perSecond float64 // what comes in
	most      float64 // probes per second
	cost      float64 // of one probe: a moving mean, which begins with a guess

	saved float64
	due   float64 // probes
}

// draw returns how many probes a window may have. What is left over is kept for one probe, so that nothing is made up for in a burst.
func (p *purse) draw(window time.Duration) int {
	p.saved = math.Min(p.saved, p.cost) + p.perSecond*window.Seconds()
	p.due = math.Min(p.due, 1) + p.most*window.Seconds()
	n := math.Max(0, math.Floor(math.Min(p.due, p.saved/p.cost)))
	p.due -= n
	return int(n)
}

// pay takes what one probe has cost.
func (p *purse) pay(cost float64) {
	const weight = 0.1
	p.saved -= cost
	p.cost += weight * (cost - p.cost)
}
