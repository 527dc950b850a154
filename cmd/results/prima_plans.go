package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
	"github.com/quellhq/quell/train"
)

// recorded is a machine that makes no runs: it returns, at random, one of the runs of the same cell that were recorded on real
// machines.
type recorded struct {
	cells map[train.Cell][]model.TrainingRow
}

func newRecorded(rows []model.TrainingRow) recorded {
	m := recorded{map[train.Cell][]model.TrainingRow{}}
	for _, row := range rows {
		cell := train.Cell{Level: row.Level, Interference: *row.InterferingLevel}
		m.cells[cell] = append(m.cells[cell], row)
	}
	return m
}

// Measure implements train.Machine.
func (m recorded) Measure(_ context.Context, r train.RunRequest) (model.TrainingRow, error) {
	rows := m.cells[r.Cell]
	if len(rows) == 0 {
		return model.TrainingRow{}, fmt.Errorf("no run was recorded of a load of %g beside %g", r.Level, r.Interference)
	}
	row := rows[rand.New(rand.NewPCG(r.Seed, 0)).IntN(len(rows))]
	row.Seed = r.Seed
	return row, nil
}

// replaySeeds is the number of trainings; each figure is the mean over them.
const replaySeeds = 20

// replayBudgets are numbers of runs of the adaptive plan.
var replayBudgets = []int{32, 40, 60, 80}

// replayed compares training plans, using the recorded runs of the lab's training and its held-out points.
func replayed(f *partFigures, plots string) error {
	trainings, err := filepath.Glob(filepath.Join(labDir, "models", "*", "training.jsonl"))
	if err != nil {
		return err
	}
	held := filepath.Join(labDir, "table-ii", "training.jsonl")
	if _, err := os.Stat(held); err != nil || len(trainings) == 0 {
		f.Missing = "table-ii"
		return nil
	}
	truth, err := modelfile.LoadTraining(held)
	if err != nil {
		return err
	}
	rows, err := trainedLike(trainings, held)
	if err != nil {
		return err
	}
	for _, o := range []struct {
		metric      quell.Metric
		thresholdMS float64
	}{{quell.Mean, 18}, {quell.P95, 45}} {
		grids, adaptive, err := replayPlans(rows, truth, o.metric, o.thresholdMS)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("plans-%s.png", o.metric)
		if err := plotPlans(filepath.Join(plots, name), o.metric, grids, adaptive); err != nil {
			return err
		}
		plot := filepath.Base(plots) + "/" + name
		f.Replayed = append(f.Replayed, comparedPlans{o.metric, o.thresholdMS, plot, append(grids, adaptive...)})
	}
	return nil
}

// trainedLike returns the rows of the training that has the same workload as the held-out points.
func trainedLike(trainings []string, truth string) ([]model.TrainingRow, error) {
	want, err := workloadOf(truth)
	if err != nil {
		return nil, err
	}
	for _, path := range trainings {
		workload, err := workloadOf(path)
		if err != nil {
			return nil, err
		}
		if workload == want {
			return modelfile.LoadTraining(path)
		}
	}
	return nil, errors.New("no training of the held-out points' workload is there")
}

// workloadOf reads from a training's settings which workload it had.
func workloadOf(path string) (string, error) {
	data, err := os.ReadFile(path + ".settings")
	if err != nil {
		return "", err
	}
	var settings train.Settings
	err = json.Unmarshal(data, &settings)
	return settings["workload"], err
}

func replayPlans(rows, truth []model.TrainingRow, metric quell.Metric, thresholdMS float64) (grids, adaptive []train.PlanScore, err error) {
	machines := []train.Machine{newRecorded(rows)}
	var seeds []uint64
	for seed := range uint64(replaySeeds) {
		seeds = append(seeds, 1000*(seed+1))
	}
	plan := train.Full()
	plan.Levels, plan.Interference = []float64{0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}, []float64{0, 0.1, 0.2, 0.3, 0.45, 0.6}
	for n := 1; n <= 3; n++ {
		plan.Repeat, plan.MaxRepeat = n, n
		score, err := train.Compare(context.Background(), fmt.Sprintf("grid %d x %d x %d", len(plan.Levels), len(plan.Interference), n), plan,
			machines, truth, metric, thresholdMS, seeds)
		if err != nil {
			return nil, nil, err
		}
		grids = append(grids, score)
	}
	plan.Repeat, plan.MaxRepeat = 1, 1
	for _, budget := range replayBudgets {
		plan.Adaptive = &train.Adaptive{Metric: metric, ThresholdMS: thresholdMS, Budget: budget, AtOnce: 4}
		score, err := train.Compare(context.Background(), fmt.Sprintf("adaptive, %d runs", budget), plan, machines, truth, metric, thresholdMS,
			seeds)
		if err != nil {
			return nil, nil, err
		}
		adaptive = append(adaptive, score)
	}
	return grids, adaptive, nil
}
