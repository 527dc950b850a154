package policy

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// LRSettings are the settings of lr.
type LRSettings struct {
	Confirm int // W: act on the (W+1)th consecutive snapshot
}

var LR = Spec[LRSettings]{
	Name: "lr", About: "on a violation, the largest share to the instance that answers fastest: a baseline of PRIMA's paper",
	Scope: ServiceScope, Scales: true,
	Defaults: LRSettings{Confirm: 1},
	Keys:     func(s *LRSettings) setting.Table { return setting.Table{ConfirmKey(&s.Confirm)} },
	Memory:   Empty[leastMemory],
	Instance: Empty[leastInstance],
	Decide:   leastResponse,
}

// leastResponse is the LR baseline: it is like lsf, but uses the measured response time instead of severity.
func leastResponse(in *Input, set LRSettings, g *Group, st *State) quell.Plan {
	g.welcome(func(*Member) bool { return true })
	return least(in, set.Confirm, g, st, "response time", func(m *Member) (float64, bool) { return m.response(in) })
}
