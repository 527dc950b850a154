package main

import (
	"context"
	"path/filepath"

	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
)

func exampleScenario(name string) (*scenario.Scenario, error) {
	path := filepath.Join("examples", "scenarios", name+".yaml")
	return scenario.Load(path)
}

func simulatedModels(ctx context.Context, sc *scenario.Scenario, seed uint64) (*model.Models, error) {
	rows, err := sim.Train(ctx, sc, sim.Plan(), seed)
	if err != nil {
		return nil, err
	}
	models, _, err := model.Fit(rows, model.FitOptions{Service: sc.Name, Metric: sc.Service.SLO.Metric})
	return models, err
}
