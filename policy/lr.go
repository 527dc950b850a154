package policy

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// LRSettings are the settings of lr.
type LRSettings struct {
	Confirm int // W: act on the (W+1)th consecutive snapshot
}

var leastResponseSpec = spec[LRSettings]{
	name: "lr", about: "on a violation, the largest share to the instance that answers fastest: a baseline of PRIMA's paper",
	scope: ServiceScope, scales: true,
	defaults: LRSettings{Confirm: 1},
	keys:     func(s *LRSettings) setting.Table { return setting.Table{confirmKey(&s.Confirm)} },
	memory:   empty[leastMemory],
	instance: empty[leastInstance],
	decide:   leastResponse,
}

// leastResponse is the LR baseline: it is like lsf, but uses the measured response time instead of severity.
func leastResponse(in *Input, set LRSettings, g *group, st *State) quell.Plan {
	g.welcome(func(*member) bool { return true })
	return least(in, set.Confirm, g, st, "response time", func(m *member) (float64, bool) { return m.response(in) })
}
