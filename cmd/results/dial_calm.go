package main

import (
	"context"
	"maps"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
)

// varying is a scenario without neighbours, in which the number of users varies threefold.
func varying() (*scenario.Scenario, error) {
	sc, err := exampleScenario("dial-single")
	if err != nil {
		return nil, err
	}
	sc.Timeline, sc.Duration = nil, 3*time.Minute
	for i := range 9 {
		users := []int{1000, 1500, 750, 500, 1200}[i%5]
		sc.Timeline = append(sc.Timeline, scenario.Event{At: time.Duration(i+1) * 18 * time.Second, Users: &users})
	}
	return sc, nil
}

// calm plays a load that varies threefold without neighbours, and counts in how many periods weights move.
func (f *dialFigures) calm(ctx context.Context) error {
	models, err := f.seeded(ctx)
	if err != nil {
		return err
	}
	sc, err := varying()
	if err != nil {
		return err
	}
	plans, moved, above := 0, 0, 0
	for trial := range calmTrials {
		var last map[string]float64
		_, err := sim.Run(ctx, sim.Options{Scenario: sc, Models: models[trial%len(models)], Seed: uint64(trial) + 201,
			Run: scenario.Run{Policy: quell.Policy{Name: "dial"}, Scheduling: quell.RoundRobin},
			Plans: func(p *quell.Plan) {
				if plans++; last != nil && !maps.Equal(last, p.Weights) {
					moved++
				}
				last = p.Weights
				for _, r := range p.Reasons {
					if r.Code == "confirming" && r.Instance != "" {
						above++
					}
				}
			}})
		if err != nil {
			return err
		}
	}
	f.CalmPlans, f.CalmMoves, f.CalmAbove = plans, float64(moved)/float64(plans), float64(above)/float64(3*plans)
	return nil
}
