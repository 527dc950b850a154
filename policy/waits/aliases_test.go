package waits

import (
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/policytest"
)

var (
	all = policy.NewTable(Spec.Row())
	kit = policytest.Kit{Table: all}

	reread, text                             = kit.Reread, policytest.Text
	onHost, waiter, pressed, blind, drawHost = policytest.OnHost, policytest.Waiter, policytest.Pressed, policytest.Blind, policytest.DrawHost
	shares                                   = policytest.Shares
)
