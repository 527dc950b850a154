package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
)

// detectorFigures say how often a detector that was trained on the lab's machines is right there, in runs that it was not trained with.
type detectorFigures struct {
	iceTraining
	Accuracies []iceAccuracy
}

// detector fits a detector to the lab's training runs, and counts the windows of its test runs.
func (p labPart) detector(f *partFigures) error {
	var training []model.TrainingRow
	tests := map[experiment.Alternation][]model.TrainingRow{}
	for _, a := range experiment.Alternations() {
		path := filepath.Join(labDir, p.scenario(), "alternating", a.Name(), "training.jsonl")
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if bytes.Count(text, []byte("\n")) < len(a.Plan().Levels) { // not measured, or interrupted
			f.Missing = p.name
			return nil
		}
		rows, err := modelfile.LoadTraining(path)
		if err != nil {
			return err
		}
		for i := range rows {
			withoutProbes(rows[i].Windows)
		}
		if a.Test {
			tests[a] = rows
		} else {
			training = append(training, rows...)
		}
	}
	models, _, err := model.Fit(training, model.FitOptions{Service: p.scenario(), Metric: quell.Mean})
	if err != nil {
		return err
	}
	ice := models.ICE()
	if ice == nil || ice.Classifier == nil {
		return errors.New("no detector could be fitted to the lab's training runs")
	}
	d := &detectorFigures{iceTraining: newIceTraining(ice, len(training))}
	for _, a := range experiment.Alternations() {
		for _, row := range tests[a] {
			accuracy := newIceAccuracy(ice, row.Windows)
			accuracy.Use, accuracy.Level = a.Use, row.Level
			d.Accuracies = append(d.Accuracies, accuracy)
		}
	}
	f.Detector = d
	return nil
}

// detectorRow are the runs beside neighbours of one strength, which differ in the load of the service. Shares are in percent.
type detectorRow struct {
	Use                  float64
	Windows              int
	Right, Missed, False []float64
}

// ByStrength puts the runs beside neighbours of the same strength together.
func (d *detectorFigures) ByStrength() (rows []detectorRow) {
	for _, a := range d.Accuracies {
		if len(rows) == 0 || rows[len(rows)-1].Use != a.Use {
			rows = append(rows, detectorRow{Use: a.Use})
		}
		r := &rows[len(rows)-1]
		r.Windows += a.Windows
		r.Right, r.Missed, r.False = append(r.Right, 100*a.Right), append(r.Missed, 100*a.Missed), append(r.False, 100*a.False)
	}
	return rows
}

// withoutProbes removes probe times from windows, because agents' readings for a fast policy have none.
func withoutProbes(windows []model.TrainingWindow) {
	for i := range windows {
		windows[i].Observation.Probe = nil
	}
}
