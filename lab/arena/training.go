package arena

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
)

// training is the models of one seed. Each seed has a training of its own, so that the confidence intervals include the training's random
// errors.
type training struct {
	once   sync.Once
	models *model.Models
	err    error
}

// untrainedError is why a training made no models.
type untrainedError struct{ error }

// trained returns the scenario's models from the training with a seed. A training that an earlier call made is used again.
func (c *Contest) trained(ctx context.Context, seed uint64) (*model.Models, error) {
	t := &c.trainings[seed-c.Seeds[0]]
	t.once.Do(func() {
		if t.models, t.err = c.train(ctx, seed); t.err != nil {
			t.err = &untrainedError{fmt.Errorf("training for %s with seed %d: %w", c.Scenario.Name, seed, t.err)}
		}
	})
	return t.models, t.err
}

func (c *Contest) train(ctx context.Context, seed uint64) (*model.Models, error) {
	path := filepath.Join(c.dir, fmt.Sprintf("%s-%s-%d.models.json", c.Scenario.Name, c.digest, seed))
	if models, err := modelfile.Load(path); err == nil {
		return models, nil
	}
	rows, err := sim.Train(ctx, c.Scenario, sim.Plan(), seed)
	if err != nil {
		return nil, err
	}
	models, _, err := model.Fit(rows, model.FitOptions{Service: c.Scenario.Service.Name, InstanceType: "simulated",
		Metric: c.Scenario.Service.SLO.Metric})
	if err != nil {
		return nil, err
	}
	return models, modelfile.Save(models, path)
}
