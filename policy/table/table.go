// Package table lists all policies of Quell.
package table

import "github.com/quellhq/quell/policy"

// All is the table of all policies. The first one is the default of a service.
var All = policy.NewTable(
	policy.PRIMA.Row(),
	policy.LSF.Row(),
	policy.LR.Row(),
	policy.Static.Row(),
	policy.HPA.Row(),
	policy.Knapsack.Row(),
	policy.PID.Row(),
	policy.CSWRR.Row(),
	policy.Dial.Row(),
	policy.ICE.Row(),
	policy.Outlier.Row(),
	policy.Waits.Row(),
	policy.ACS.Row(),
	policy.MRburst.Row(),
)
