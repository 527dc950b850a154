package experiment

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/table"
)

// Learning returns the runs of a scenario for which nothing is trained: every policy that can learn its models does so. A run that is
// already in the list as learning is left out.
func Learning(runs []scenario.Run) (list []scenario.Run) {
	for _, r := range runs {
		trained := r
		if table.All.Learns(r.Policy.Name) {
			r.Models = scenario.Learn
		}
		if r == trained || !slices.Contains(runs, r) {
			list = append(list, r)
		}
	}
	return list
}

// Learned returns the models that the run's readings give, as its controller learned them. The group must have been stopped. If too little
// was measured, the error wraps quell.ErrNoData.
func (g *group) Learned(ctx context.Context, instanceType string, at time.Time) (*model.Models, error) {
	var learner *model.Learner
	slo := g.sc.Service.SLO
	err := g.Snapshots(ctx, time.Time{}, func(s quell.Snapshot) { learner = learner.Learn(&s, slo) })
	if err != nil {
		return nil, fmt.Errorf("reading what %s recorded: %w", Title(g.sc, g.run), err)
	}
	return learner.Export(model.FitOptions{Service: g.sc.Service.Name, InstanceType: instanceType, Metric: slo.Metric, At: at})
}
