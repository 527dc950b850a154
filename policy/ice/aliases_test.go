package ice

import (
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/policytest"
	"github.com/quellhq/quell/policy/rivals"
)

var (
	all = policy.NewTable(rivals.Static.Row(), Spec.Row())
	kit = policytest.Kit{Table: all}

	engine, guarding, reread = kit.Engine, kit.Guarding, kit.Reread
	start, hasReason, weighs = policytest.Start, policytest.HasReason, policytest.Weighs
)
