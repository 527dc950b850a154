package rivals

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/setting"
)

// LSFSettings are the settings of lsf.
type LSFSettings struct {
	Resource   quell.Resource // whose severity is used
	Confidence float64        // confidence level of the one-sided test of severity in Eq. 1
	Confirm    int            // W: act on the (W+1)th consecutive snapshot
}

var LSF = policy.Spec[LSFSettings]{
	Name: "lsf", About: "on a violation, the largest share to the instance that suffers least: a baseline of PRIMA's paper",
	Scope: policy.ServiceScope, Scales: true, Needs: policy.BaselineOnly,
	Defaults: LSFSettings{Resource: policy.DefaultResource, Confidence: 0.95, Confirm: 1},
	Keys: func(s *LSFSettings) setting.Table {
		return setting.Table{policy.ResourceKey(&s.Resource), policy.ConfidenceKey(&s.Confidence), policy.ConfirmKey(&s.Confirm)}
	},
	Senses: func(s LSFSettings) policy.Senses {
		return policy.Senses{Resources: policy.ResourcesOf(s.Resource), Confidence: s.Confidence, Confirm: s.Confirm}
	},
	Memory:   policy.Empty[leastMemory],
	Instance: policy.Empty[leastInstance],
	Decide:   leastSeverity,
}

// leastSeverity is the LSF baseline (PRIMA, section V-D). If the objective is violated, the instances' parts of the summed
// severity become their shares in reverse order: the instance with the lowest severity gets the largest. A new instance gets
// its first share when its first severity is known (Figures 2 and 3). If that takes more than guard.stale_after snapshots and
// the violation continues, it gets its first share without a severity.
func leastSeverity(in *policy.Input, set LSFSettings, g *policy.Group, st *policy.State) quell.Plan {
	welcome(g, func(m *policy.Member) bool {
		leastOf(m).Waited++
		return m.Senses[0].HasSeverity || leastOf(m).Waited > max(1, in.Service.Guard.StaleAfter)
	})
	return least(in, set.Confirm, g, st, "severity", func(m *policy.Member) (float64, bool) {
		return m.Senses[0].Severity,
			m.Senses[0].HasSeverity
	})
}
