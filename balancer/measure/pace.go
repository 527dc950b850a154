package measure

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell/internal/tick"
)

// Pace is how often readings are made: once per sampling period, or more often for a fast policy. It may be changed while it is in
// use.
type Pace struct{ now atomic.Pointer[paces] }

type paces struct{ period, fast time.Duration }

// Set changes the pace from the next window on. Fast is the fast policy's period, which divides the other; 0: there is no fast policy.
func (p *Pace) Set(period, fast time.Duration) { p.now.Store(&paces{period, fast}) }

// Shortest returns the length of a window.
func (p *Pace) Shortest() time.Duration {
	now := p.now.Load()
	return cmp.Or(now.fast, now.period)
}

// Fast returns whether windows are a fast policy's, shorter than the sampling period.
func (p *Pace) Fast() bool { return p.now.Load().fast > 0 }

// Ends returns whether a sampling period ends with the fast window that ends about now.
func (p *Pace) Ends(now time.Time) bool {
	paces := p.now.Load()
	return tick.Ends(now, paces.fast, paces.period)
}
