package acs

import (
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/policytest"
)

var (
	all = policy.NewTable(Spec.Row())
	kit = policytest.Kit{Table: all}

	reread, text             = kit.Reread, policytest.Text
	onHost, waiter, drawHost = policytest.OnHost, policytest.Waiter, policytest.DrawHost
)
