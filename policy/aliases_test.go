package policy_test

import (
	"github.com/quellhq/quell/policy/policytest"
	"github.com/quellhq/quell/policy/table"
)

const period = policytest.Period

type step = policytest.Step

var (
	all = table.All
	kit = policytest.Kit{Table: all}

	engine, golden, guarding, tell, reread, restore = kit.Engine, kit.Golden, kit.Guarding, kit.Tell, kit.Reread, kit.Read

	start, snap, brief, at, play, follow, hasReason = policytest.Start, policytest.Snap, policytest.Brief, policytest.At, policytest.Play,
		policytest.Follow, policytest.HasReason
	goldenModels, sharingModels, lawfulDial, learningService = policytest.GoldenModels, policytest.SharingModels, policytest.LawfulDial,
		policytest.LearningService
	wantWeights, weighs, text, reasonOf = policytest.WantWeights, policytest.Weighs, policytest.Text, policytest.ReasonOf
	shares                              = policytest.Shares

	groupMax, protect, orNothing, twins, together, pooledModels, lawModels, bothTypes, feel, withPerRequest = policytest.GroupMax,
		policytest.Protect, policytest.OrNothing, policytest.Twins, policytest.Together, policytest.PooledModels, policytest.LawModels,
		policytest.BothTypes, policytest.Feel, policytest.WithPerRequest
	confirm, margin, headroom, both, pooledEngine = kit.Confirm, kit.Margin, kit.Headroom, kit.Both, kit.PooledEngine
)
