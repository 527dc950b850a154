package measure

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell/internal/tick"
)

// Pace is how often readings are made: once per sampling period, or more often if there is a fast policy. It may be changed while it is
// used.
type Pace struct{ now atomic.Pointer[paces] }

type paces struct{ period, fast time.Duration }

// Set changes the pace from the next window on. fast is the fast policy's period, which must divide period; 0: there is no fast policy.
func (p *Pace) Set(period, fast time.Duration) { p.now.Store(&paces{period, fast}) }

// Shortest returns the length of a window.
func (p *Pace) Shortest() time.Duration {
	now := p.now.Load()
	return cmp.Or(now.fast, now.period)
}

// Fast returns whether there is a fast policy, so that windows are shorter than the sampling period.
func (p *Pace) Fast() bool { return p.now.Load().fast > 0 }

// Ends returns whether the window that ends about now also ends a sampling period.
func (p *Pace) Ends(now time.Time) bool {
	paces := p.now.Load()
	return tick.Ends(now, paces.fast, paces.period)
}
