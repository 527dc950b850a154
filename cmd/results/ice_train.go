package main

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/train"
)

// iceTraining is a training with neighbours at one resource.
type iceTraining struct {
	Machines  string               `json:"machines"` // the scenario whose machines were used
	Resource  quell.Resource       `json:"resource"`
	Runs      int                  `json:"runs"`
	Windows   int                  `json:"windows"`
	Right     float64              `json:"right"` // share of windows that a tree fitted to others classifies right
	Detector  string               `json:"detector"`
	Signal    string               `json:"signal"`
	Fits      []model.EstimatorFit `json:"fits"`
	Estimator *model.Estimator     `json:"estimator"`
}

// newIceTraining returns the figures of a section that has a detector.
func newIceTraining(ice *model.ICE, runs int) iceTraining {
	t := iceTraining{Runs: runs, Detector: ice.Classifier.String(), Signal: ice.Signal, Fits: ice.Fits, Estimator: ice.Estimator}
	n, right := ice.Validated.Total()
	t.Windows, t.Right = n, float64(right)/float64(n)
	return t
}

// alternating makes the rows of a plan on a scenario's machines.
func alternating(
	ctx context.Context, sc *scenario.Scenario, r quell.Resource, plan train.Plan, seed uint64,
) ([]model.TrainingRow, error) {
	machines := make([]train.Machine, runtime.GOMAXPROCS(0))
	for i := range machines {
		machines[i] = &sim.Trainer{Scenario: sc, Probing: sim.Probing(sc.Probing)}
	}
	return train.Run(ctx, train.Options{Plan: plan, Resource: r, Machines: machines, Seed: seed})
}

// iceTrained fits models to the paper's training on a scenario's machines, with neighbours at one resource.
func iceTrained(ctx context.Context, name string, r quell.Resource) (*model.Models, []model.TrainingRow, error) {
	sc, err := exampleScenario(name)
	if err != nil {
		return nil, nil, err
	}
	rows, err := alternating(ctx, sc, r, train.Alternating(), 1)
	if err != nil {
		return nil, nil, err
	}
	models, _, err := model.Fit(rows, model.FitOptions{Service: sc.Name, Metric: sc.Service.SLO.Metric})
	return models, rows, err
}

// trained makes the models of the machines of ice-hour, once.
func (f *iceFigures) trained(ctx context.Context) (_ *model.Models, err error) {
	if f.models == nil {
		f.models, _, err = iceTrained(ctx, "ice-hour", quell.CPU)
	}
	return f.models, err
}

// train makes the models of the processor, and for comparison those of caches, where cycles per instruction say what happens.
func (f *iceFigures) train(ctx context.Context) error {
	f.Trainings = nil
	for _, of := range []struct {
		name     string
		resource quell.Resource
	}{{"ice-hour", quell.CPU}, {"ice-periodic", quell.Memory}} {
		models, rows, err := iceTrained(ctx, of.name, of.resource)
		if err != nil {
			return err
		}
		t := newIceTraining(models.ICE(), len(rows))
		t.Machines, t.Resource = of.name, of.resource
		f.Trainings = append(f.Trainings, t)
		if of.resource == quell.CPU {
			f.models = models
		}
	}
	return nil
}

// iceAccuracy counts the windows of runs that were not used in training.
type iceAccuracy struct {
	Use     float64 `json:"use"`   // of the neighbours
	Level   float64 `json:"level"` // of the service
	Windows int     `json:"windows"`
	Right   float64 `json:"right"`   // share of all windows
	Missed  float64 `json:"missed"`  // share of windows with neighbours
	False   float64 `json:"false"`   // share of windows without neighbours
	Trained bool    `json:"trained"` // this strength was trained
}

// accuracy lets neighbours come and go in intervals of 4 minutes, of trained strength and of others, one of them weaker than any trained.
func (f *iceFigures) accuracy(ctx context.Context) error {
	sc, err := exampleScenario("ice-hour")
	if err != nil {
		return err
	}
	models, err := f.trained(ctx)
	if err != nil {
		return err
	}
	trained := train.Alternating().Interference
	plan := train.Alternating()
	plan.Levels, plan.Interference = []float64{0.15, 0.25, 0.33}, []float64{0.5, 0.45, 0.6, 0.35, 0.25}
	plan.Alternate = &train.Alternation{Away: 4 * time.Minute, There: 4 * time.Minute, Window: time.Second}
	plan.Run = 16 * time.Minute
	rows, err := alternating(ctx, sc, quell.CPU, plan, 5000)
	if err != nil {
		return err
	}
	f.Accuracies = nil
	for _, row := range rows {
		a := newIceAccuracy(models.ICE(), row.Windows)
		a.Use, a.Level, a.Trained = *row.InterferingLevel, row.Level, slices.Contains(trained, *row.InterferingLevel)
		f.Accuracies = append(f.Accuracies, a)
	}
	slices.SortFunc(f.Accuracies, func(a, b iceAccuracy) int { return cmp.Or(cmp.Compare(b.Use, a.Use), cmp.Compare(a.Level, b.Level)) })
	return nil
}

func newIceAccuracy(ice *model.ICE, windows []model.TrainingWindow) (a iceAccuracy) {
	var with, missed, wrong float64
	var signals map[string]float64
	var means *model.HiddenMeans
	for i := range windows {
		signals, means = model.ICESignals(&windows[i].Observation, means)
		found, _ := ice.Disturbed(signals)
		there := windows[i].Interfering > 0
		if there {
			with++
		}
		switch {
		case there && !found:
			missed++
		case found && !there:
			wrong++
		}
	}
	n := float64(len(windows))
	a.Windows, a.Right, a.Missed, a.False = len(windows), 1-(missed+wrong)/n, missed/with, wrong/(n-with)
	return a
}
