package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/divide"
	"github.com/quellhq/quell/policy/prima"
	"github.com/quellhq/quell/policy/table"
)

// shareRow compares PRIMA's two divisions of the load in a scenario: the differences between tail and proportional, seed by seed.
type shareRow struct {
	Scenario      string           `json:"scenario"`
	Scheduling    quell.Scheduling `json:"scheduling"`
	Violation     estimate         `json:"violation"` // with proportional shares
	Over          estimate         `json:"over"`
	MoreViolation estimate         `json:"more_violation"` // what tail shares add
	MoreOver      estimate         `json:"more_over"`
	MoreCost      estimate         `json:"more_cost"` // as a fraction

	violations, overs, costs  []float64
	moreViolations, moreOvers []float64
}

// notDivided are scenarios that are left out: the first has 200 machines, the second one is ICE's, and says nothing of what PRIMA probes.
var notDivided = []string{"prequal-antagonists", "ice-hour"}

// divide plays every example scenario with both divisions of the load.
func (f *dialFigures) divide(ctx context.Context) error {
	f.Shares = nil
	return eachDivided(ctx, func(sc *scenario.Scenario, models *model.Models) error {
		rows := []shareRow{{Scenario: sc.Name, Scheduling: quell.RoundRobin}, {Scenario: sc.Name, Scheduling: quell.LeastConn}}
		for seed := range uint64(shareSeeds) {
			for i := range rows {
				if err := rows[i].play(ctx, sc, models, seed+1); err != nil {
					return err
				}
			}
		}
		for i := range rows {
			rows[i].sum()
			f.Shares = append(f.Shares, rows[i])
		}
		return nil
	})
}

// eachDivided calls play with every example scenario, except notDivided, and the models of one training for it.
func eachDivided(ctx context.Context, play func(*scenario.Scenario, *model.Models) error) error {
	files, err := filepath.Glob(filepath.Join("examples", "scenarios", "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		name := filepath.Base(file[:len(file)-len(".yaml")])
		if slices.Contains(notDivided, name) {
			continue
		}
		sc, err := exampleScenario(name)
		if err != nil {
			return err
		}
		models, err := simulatedModels(ctx, sc, 1)
		if err == nil {
			err = play(sc, models)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (s *shareRow) play(ctx context.Context, sc *scenario.Scenario, models *model.Models, seed uint64) error {
	var results []scenario.Result
	for _, share := range []divide.Rule{divide.Proportional, divide.Tail} {
		p := table.All.Whole(sc.PolicyOf(scenario.Run{Policy: quell.Policy{Name: table.All.Default()}}))
		settings := p.Settings.(prima.Settings)
		settings.Share = share
		p.Settings = settings
		r, err := sim.Run(ctx, sim.Options{Scenario: sc, Models: models, Seed: seed, Run: scenario.Run{Policy: p, Scheduling: s.Scheduling}})
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	over := func(r scenario.Result) float64 { return float64(r.SLO.RequestsOver) / float64(r.Requests) }
	base, tail := results[0], results[1]
	s.violations, s.overs = append(s.violations, base.SLO.ViolationShare), append(s.overs, over(base))
	s.moreViolations = append(s.moreViolations, tail.SLO.ViolationShare-base.SLO.ViolationShare)
	s.moreOvers = append(s.moreOvers, over(tail)-over(base))
	s.costs = append(s.costs, tail.InstanceSeconds/base.InstanceSeconds-1)
	return nil
}

func (s *shareRow) sum() {
	s.Violation, s.Over = estimateOf(s.violations), estimateOf(s.overs)
	s.MoreViolation, s.MoreOver, s.MoreCost = estimateOf(s.moreViolations), estimateOf(s.moreOvers), estimateOf(s.costs)
}
