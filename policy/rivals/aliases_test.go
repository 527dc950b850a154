package rivals

import (
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/policytest"
)

const period = policytest.Period

type step = policytest.Step

var (
	all = policy.NewTable(LSF.Row(), LR.Row(), Static.Row(), HPA.Row(), Knapsack.Row(), PID.Row(), CSWRR.Row())
	kit = policytest.Kit{Table: all}

	engine, tell    = kit.Engine, kit.Tell
	start, snap, at = policytest.Start, policytest.Snap, policytest.At
	play, follow    = policytest.Play, policytest.Follow
)
