package policy

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/keys"
)

// LSFSettings are the settings of lsf.
type LSFSettings struct {
	Resource   quell.Resource // whose severity is used
	Confidence float64        // of the one-sided test in Eq. 1
	Confirm    int            // W: act on the (W+1)th consecutive snapshot
}

var leastSeveritySpec = spec[LSFSettings]{
	name: "lsf", about: "on a violation, the largest share to the instance that suffers least: a baseline of PRIMA's paper",
	scope: ServiceScope, scales: true, needs: baselineOnly,
	defaults: LSFSettings{Resource: defaultResource, Confidence: 0.95, Confirm: 1},
	keys: func(s *LSFSettings) keys.Table {
		return keys.Table{resourceKey(&s.Resource), confidenceKey(&s.Confidence), confirmKey(&s.Confirm)}
	},
	senses: func(s LSFSettings) Senses {
		return Senses{Resources: ResourcesOf(s.Resource), Confidence: s.Confidence, Confirm: s.Confirm}
	},
	memory:   empty[leastMemory],
	instance: empty[leastInstance],
	decide:   leastSeverity,
}

// leastSeverity is the LSF baseline (PRIMA, section V-D). On a violation, the instances' parts of the summed severity are
// assigned in reverse: the instance with the lowest severity gets the largest share. A new instance waits for its first
// severity (Figures 2 and 3), for at most guard.stale_after snapshots; if the violation continues then, it gets its first
// share.
func leastSeverity(in *Input, set LSFSettings, g *group, st *State) quell.Plan {
	g.welcome(func(m *member) bool {
		m.least().Waited++
		return m.senses[0].hasSeverity || m.least().Waited > max(1, in.Service.Guard.StaleAfter)
	})
	return least(in, set.Confirm, g, st, "severity", func(m *member) (float64, bool) { return m.senses[0].severity, m.senses[0].hasSeverity })
}
