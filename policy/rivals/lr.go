package rivals

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/setting"
)

// LRSettings are the settings of lr.
type LRSettings struct {
	Confirm int // W: act on the (W+1)th consecutive snapshot
}

var LR = policy.Spec[LRSettings]{
	Name: "lr", About: "on a violation, the largest share to the instance that answers fastest: a baseline of PRIMA's paper",
	Scope: policy.ServiceScope, Scales: true,
	Defaults: LRSettings{Confirm: 1},
	Keys:     func(s *LRSettings) setting.Table { return setting.Table{policy.ConfirmKey(&s.Confirm)} },
	Memory:   policy.Empty[leastMemory],
	Instance: policy.Empty[leastInstance],
	Decide:   leastResponse,
}

// leastResponse is the LR baseline: it is like lsf, but uses the measured response time instead of severity.
func leastResponse(in *policy.Input, set LRSettings, g *policy.Group, st *policy.State) quell.Plan {
	welcome(g, func(*policy.Member) bool { return true })
	return least(in, set.Confirm, g, st, "response time", func(m *policy.Member) (float64, bool) { return response(m, in) })
}
