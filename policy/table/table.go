// Package table lists all policies of Quell.
package table

import (
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/acs"
	"github.com/quellhq/quell/policy/dial"
	"github.com/quellhq/quell/policy/ice"
	"github.com/quellhq/quell/policy/mrburst"
	"github.com/quellhq/quell/policy/outlier"
	"github.com/quellhq/quell/policy/prima"
	"github.com/quellhq/quell/policy/rivals"
	"github.com/quellhq/quell/policy/waits"
)

// All is the table of all policies. The first one is the default of a service.
var All = policy.NewTable(
	prima.Spec.Row(),
	rivals.LSF.Row(),
	rivals.LR.Row(),
	rivals.Static.Row(),
	rivals.HPA.Row(),
	rivals.Knapsack.Row(),
	rivals.PID.Row(),
	rivals.CSWRR.Row(),
	dial.Spec.Row(),
	ice.Spec.Row(),
	outlier.Spec.Row(),
	waits.Spec.Row(),
	acs.Spec.Row(),
	mrburst.Spec.Row(),
)
