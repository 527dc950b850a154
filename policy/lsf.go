package policy

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// LSFSettings are the settings of lsf.
type LSFSettings struct {
	Resource   quell.Resource // whose severity is used
	Confidence float64        // confidence level of the one-sided test of severity in Eq. 1
	Confirm    int            // W: act on the (W+1)th consecutive snapshot
}

var leastSeveritySpec = spec[LSFSettings]{
	name: "lsf", about: "on a violation, the largest share to the instance that suffers least: a baseline of PRIMA's paper",
	scope: ServiceScope, scales: true, needs: baselineOnly,
	defaults: LSFSettings{Resource: defaultResource, Confidence: 0.95, Confirm: 1},
	keys: func(s *LSFSettings) setting.Table {
		return setting.Table{resourceKey(&s.Resource), confidenceKey(&s.Confidence), confirmKey(&s.Confirm)}
	},
	senses: func(s LSFSettings) Senses {
		return Senses{Resources: ResourcesOf(s.Resource), Confidence: s.Confidence, Confirm: s.Confirm}
	},
	memory:   empty[leastMemory],
	instance: empty[leastInstance],
	decide:   leastSeverity,
}

// leastSeverity is the LSF baseline (PRIMA, section V-D). If the objective is violated, the instances' parts of the summed
// severity become their shares in reverse order: the instance with the lowest severity gets the largest. A new instance gets
// its first share when its first severity is known (Figures 2 and 3). If that takes more than guard.stale_after snapshots and
// the violation continues, it gets its first share without a severity.
func leastSeverity(in *Input, set LSFSettings, g *group, st *State) quell.Plan {
	g.welcome(func(m *member) bool {
		m.least().Waited++
		return m.senses[0].hasSeverity || m.least().Waited > max(1, in.Service.Guard.StaleAfter)
	})
	return least(in, set.Confirm, g, st, "severity", func(m *member) (float64, bool) { return m.senses[0].severity, m.senses[0].hasSeverity })
}
