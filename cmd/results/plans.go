package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/examples"
	"github.com/quellhq/quell/internal/figure"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/train"
)

// nearThreshold are held-out points, in addition to heldOut, whose response time is near the simulated service's threshold.
var nearThreshold = []train.Cell{
	{Level: 0.15, Interference: 0.55}, {Level: 0.15, Interference: 0.58}, {Level: 0.25, Interference: 0.48}, {Level: 0.35, Interference: 0.38},
	{Level: 0.35, Interference: 0.35}, {Level: 0.45, Interference: 0.28}, {Level: 0.5, Interference: 0.25}, {Level: 0.55, Interference: 0.18},
	{Level: 0.55, Interference: 0.21}, {Level: 0.65, Interference: 0.08}, {Level: 0.65, Interference: 0.11}, {Level: 0.73},
}

// plansRun is how long a held-out point is simulated; planSeeds is the number of trainings over which each figure is the mean.
const (
	plansRun  = 30 * time.Minute
	planSeeds = 10
)

// objectives are the response-time objectives for which plans are compared. On a shared link the p95 is about three times the mean.
var objectives = []struct {
	metric      quell.Metric
	thresholdMS float64
}{{quell.Mean, 40}, {quell.P95, 120}}

// plansPage compares training plans by the models' errors and the number of runs.
func plansPage(ctx context.Context, dir string) error {
	return plansPagePart(ctx, dir, "simulated")
}

// plansPagePart simulates the trainings, or only writes the page.
func plansPagePart(ctx context.Context, dir, part string) error {
	sc, err := simulatedService()
	if err != nil {
		return err
	}
	var d plansData
	path := filepath.Join(dir, "plans.json")
	switch part {
	case "simulated":
		if d, err = simulatePlans(ctx, sc); err == nil {
			err = writeJSON(path, d)
		}
	case "page":
		_, err = readJSON(path, &d)
	default:
		err = fmt.Errorf("the plans page has no part %q", part)
	}
	if err != nil {
		return err
	}
	f := plansFigures{
		LinkBits: sc.Hosts[0].Network, FileBytes: sc.Workload.Size, Run: train.Full().Run, Seeds: planSeeds, LongRun: plansRun,
		Points: len(d.Truth), MostRuns: planBudgets[len(planBudgets)-1],
	}
	for _, o := range d.Objectives {
		plot := fmt.Sprintf("plans-%s.png", o.Metric)
		f.Objectives = append(f.Objectives, comparedPlans{o.Metric, o.ThresholdMS, plot, append(slices.Clone(o.Grids), o.Adaptive...)})
		if err := plotPlans(filepath.Join(dir, plot), o.Metric, o.Grids, o.Adaptive[:len(planBudgets)]); err != nil {
			return err
		}
	}
	return writePage(dir, "plans", f)
}

// plansData has all figures of the page, as they are in plans.json.
type plansData struct {
	Truth      []model.TrainingRow `json:"truth"` // runs at points that no training has, in the order in which they were played
	Objectives []planScores        `json:"objectives"`
}

// planScores are the scores of each plan for one objective.
type planScores struct {
	Metric      quell.Metric      `json:"metric"`
	ThresholdMS float64           `json:"threshold_ms"`
	Grids       []train.PlanScore `json:"grids"`
	Adaptive    []train.PlanScore `json:"adaptive"`
}

// simulatePlans plays the held-out points and compares plans for each objective.
func simulatePlans(ctx context.Context, sc *scenario.Scenario) (d plansData, err error) {
	machines := planMachines(sc)
	d.Truth, err = train.Run(ctx, train.Options{Plan: train.HeldOut(append(heldOut, nearThreshold...), plansRun, 10*time.Second),
		Resource: table.All.Resource(sc.Service.Policy), Machines: machines, Seed: 1_000_003})
	if err != nil {
		return d, err
	}
	for _, o := range objectives {
		scores := planScores{Metric: o.metric, ThresholdMS: o.thresholdMS}
		if scores.Grids, scores.Adaptive, err = comparePlans(ctx, machines, d.Truth, o.metric, o.thresholdMS); err != nil {
			return d, err
		}
		d.Objectives = append(d.Objectives, scores)
	}
	return d, nil
}

func planMachines(sc *scenario.Scenario) []train.Machine {
	return []train.Machine{&sim.Trainer{Scenario: sc}, &sim.Trainer{Scenario: sc}}
}

// plansFigures are how the plans were compared, and their scores.
type plansFigures struct {
	LinkBits         float64
	FileBytes        int64
	Run, LongRun     time.Duration // length of a run in a training, and at a held-out point
	Seeds            int           // number of trainings of each plan
	Points, MostRuns int           // number of held-out points, and largest number of runs of the plan that ends by itself
	Objectives       []comparedPlans
}

// comparedPlans are the plans' scores for one objective.
type comparedPlans struct {
	Metric      quell.Metric
	ThresholdMS float64
	Plot        string
	Scores      []train.PlanScore
}

// simulatedService is a service of a few machines.
func simulatedService() (*scenario.Scenario, error) {
	return scenario.Parse("noisy-neighbour.yaml", examples.NoisyNeighbour)
}

// planGrid is a plan with all combinations of levels and interferences, and the number of runs of each.
type planGrid struct {
	levels, interferences []float64
	runs                  int
}

func (g planGrid) name() string {
	return fmt.Sprintf("grid %d x %d x %d", len(g.levels), len(g.interferences), g.runs)
}

func (g planGrid) plan() train.Plan {
	plan := train.Full()
	plan.Levels, plan.Interference, plan.Repeat, plan.MaxRepeat = g.levels, g.interferences, g.runs, g.runs
	return plan
}

// grids are that of PRIMA's paper and thinner ones.
var grids = []planGrid{
	{[]float64{0.1, 0.3, 0.5, 0.7, 0.9}, []float64{0, 0.1, 0.3, 0.5}, 2},
	{paperLevels, paperInterferences, 1},
	{paperLevels, paperInterferences, 2},
	{paperLevels, paperInterferences, 3},
	{paperLevels, paperInterferences, 5},
}

var (
	paperLevels        = []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}
	paperInterferences = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5}
	planBudgets        = []int{32, 40, 60, 80, 110}
)

// planSeedsOf are the seeds of the trainings.
func planSeedsOf() (seeds []uint64) {
	for seed := range uint64(planSeeds) {
		seeds = append(seeds, seed+1)
	}
	return seeds
}

// comparePlans compares plans on the given machines, of any kind.
func comparePlans(
	ctx context.Context, machines []train.Machine, truth []model.TrainingRow, metric quell.Metric, thresholdMS float64,
) (gridScores, adaptiveScores []train.PlanScore, err error) {
	seeds := planSeedsOf()
	compare := func(scores *[]train.PlanScore, name string, plan train.Plan) {
		if err == nil {
			var s train.PlanScore
			s, err = train.Compare(ctx, name, plan, machines, truth, metric, thresholdMS, seeds)
			*scores = append(*scores, s)
			fmt.Fprintf(os.Stderr, "plans: %s of %s done\n", name, metric)
		}
	}
	for _, g := range grids {
		compare(&gridScores, g.name(), g.plan())
	}
	for _, budget := range planBudgets {
		compare(&adaptiveScores, fmt.Sprintf("adaptive, %d runs", budget), train.Learn(metric, thresholdMS, budget, 0, 4))
	}
	compare(&adaptiveScores, "adaptive, to 2%", train.Learn(metric, thresholdMS, planBudgets[len(planBudgets)-1], 0.02, 4))
	return gridScores, adaptiveScores, err
}

func plotPlans(path string, metric quell.Metric, grids, adaptive []train.PlanScore) error {
	p := figure.New(fmt.Sprintf("Error of the capacity by the number of training runs (%s; dashed: 95th percentile of the errors)", metric),
		"runs", "error, as a utilisation")
	p.X.Min, p.Y.Min = 0, 0
	var lines []figure.Series
	for i, s := range []struct {
		name   string
		scores []train.PlanScore
	}{{"grid", grids}, {"adaptive", adaptive}} {
		var mean, p95 plotter.XYs
		for _, score := range s.scores {
			mean = append(mean, plotter.XY{X: score.Runs, Y: score.Scores.Capacity.Mean})
			p95 = append(p95, plotter.XY{X: score.Runs, Y: score.Scores.Capacity.P95})
		}
		lines = append(lines, figure.Series{Name: s.name + ", mean", Points: mean, Color: figure.Nth(i), Mark: figure.Disc},
			figure.Series{Name: s.name + ", p95", Points: p95, Color: figure.Nth(i), Mark: figure.Ring, Dashed: true})
	}
	if err := figure.AddLines(p, lines...); err != nil {
		return err
	}
	return figure.WriteAbove(path, p)
}
