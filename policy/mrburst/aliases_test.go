package mrburst

import (
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/policytest"
)

var (
	all = policy.NewTable(Spec.Row())
	kit = policytest.Kit{Table: all}

	restore, start = kit.Read, policytest.Start
)
