package dial

import (
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/policytest"
	"github.com/quellhq/quell/policy/rivals"
)

const (
	period   = policytest.Period
	peakRate = policytest.PeakRate
)

var (
	all = policy.NewTable(rivals.Static.Row(), Spec.Row())
	kit = policytest.Kit{Table: all}

	engine, guarding        = kit.Engine, kit.Guarding
	start, brief, hasReason = policytest.Start, policytest.Brief, policytest.HasReason
	lawfulDial, show        = policytest.LawfulDial, policytest.Show
)
