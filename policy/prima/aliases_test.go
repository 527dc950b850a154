package prima

import (
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/dial"
	"github.com/quellhq/quell/policy/policytest"
	"github.com/quellhq/quell/policy/rivals"
)

const period = policytest.Period

type step = policytest.Step

var (
	all = policy.NewTable(Spec.Row(), rivals.Static.Row(), rivals.LSF.Row(), rivals.HPA.Row(), dial.Spec.Row())
	kit = policytest.Kit{Table: all}

	engine, golden, guarding, tell, reread, restore = kit.Engine, kit.Golden, kit.Guarding, kit.Tell, kit.Reread, kit.Read

	start, snap, brief, at, play, follow, hasReason = policytest.Start, policytest.Snap, policytest.Brief, policytest.At, policytest.Play,
		policytest.Follow, policytest.HasReason
	goldenModels, sharingModels, learningService = policytest.GoldenModels, policytest.SharingModels, policytest.LearningService
	wantWeights, text                            = policytest.WantWeights, policytest.Text
	show                                         = policytest.Show

	groupMax, protect, orNothing, twins, together, pooledModels, lawModels, bothTypes, feel, withPerRequest = policytest.GroupMax,
		policytest.Protect, policytest.OrNothing, policytest.Twins, policytest.Together, policytest.PooledModels, policytest.LawModels,
		policytest.BothTypes, policytest.Feel, policytest.WithPerRequest
	confirm, margin, headroom, both, pooledEngine = kit.Confirm, kit.Margin, kit.Headroom, kit.Both, kit.PooledEngine
)
