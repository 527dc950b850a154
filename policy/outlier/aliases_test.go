package outlier

import (
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/policytest"
	"github.com/quellhq/quell/policy/rivals"
)

var (
	all = policy.NewTable(rivals.Static.Row(), Spec.Row())
	kit = policytest.Kit{Table: all}

	guarding, reread = kit.Guarding, kit.Reread
	start, hasReason = policytest.Start, policytest.HasReason
)
