package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/emulated"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/train"
)

// The emulated machine whose models are trained, as in the demo.
const (
	linkBits  = 40e6
	fileBytes = 50_000
	hosts     = 8
)

var fileWorkload = scenario.Workload{Kind: scenario.File, Arrivals: scenario.Poisson, Size: fileBytes}

// heldOut are the points that the training plan does not contain, with total utilisation up to 0.7.
var heldOut = []train.Cell{
	{Level: 0.15, Interference: 0.15}, {Level: 0.25, Interference: 0.08}, {Level: 0.15, Interference: 0.35}, {Level: 0.35, Interference: 0.15},
	{Level: 0.25, Interference: 0.25}, {Level: 0.15, Interference: 0.50}, {Level: 0.45, Interference: 0.13}, {Level: 0.35, Interference: 0.33},
	{Level: 0.55, Interference: 0.08}, {Level: 0.25, Interference: 0.43}, {Level: 0.45, Interference: 0.25}, {Level: 0.55, Interference: 0.15},
}

// longRun is how long a held-out point is measured.
const longRun = 150 * time.Second

// point is one held-out point: what was measured and what the models say.
type point struct {
	Utilization     float64 `json:"utilization"`
	Interfering     float64 `json:"interfering"`
	Severity        float64 `json:"severity"`
	SeverityJoint   float64 `json:"severity_joint"`
	SeverityTotal   float64 `json:"severity_total"`
	ResponseMS      float64 `json:"response_ms"`
	ResponseModelMS float64 `json:"response_model_ms"`
}

// trainingThresholdMS is the threshold of the demo.
const trainingThresholdMS = 40

// metricScore has the models' errors in one metric.
type metricScore struct {
	Metric quell.Metric
	train.Scores
}

// trainingPage trains with the full plan, fits, and scores both models against long runs at points they never saw.
func trainingPage(ctx context.Context, dir string) error {
	began := time.Now()
	rows, err := collect(ctx, train.Full(), nil, 1)
	if err != nil {
		return err
	}
	took := time.Since(began)
	models, report, err := model.Fit(rows, model.FitOptions{Service: "emulated", InstanceType: "emulated 40 Mbit/s", Metric: quell.Mean,
		At: time.Now().UTC()})
	if err != nil {
		return err
	}
	plan := train.Plan{Levels: []float64{0.5}, Interference: []float64{0}, Run: longRun, WarmUp: 2 * time.Second, Repeat: 1, MaxRepeat: 1,
		Interval: 0.05, Confidence: 0.95}
	truth, err := collect(ctx, plan, heldOut, 1_000_003)
	if err != nil {
		return err
	}
	points, err := score(models, truth)
	if err != nil {
		return err
	}
	var metrics []metricScore
	for _, metric := range []quell.Metric{quell.Mean, quell.P90, quell.P95} {
		s, err := train.Score(rows, truth, metric, trainingThresholdMS)
		if err != nil {
			return err
		}
		metrics = append(metrics, metricScore{metric, s})
	}
	if err := writeJSON(filepath.Join(dir, "training.json"), points); err != nil {
		return err
	}
	figures := newTrainingFigures(here(), points, metrics)
	figures.Runs, figures.Took = len(rows), took.Round(time.Second)
	var text strings.Builder
	if err := report.Write(&text); err != nil {
		return err
	}
	figures.Report = text.String()
	return writePage(dir, "training", figures)
}

// collect runs a plan on emulated hosts. If cells are given, it measures these cells instead of the plan's.
func collect(ctx context.Context, plan train.Plan, cells []train.Cell, seed uint64) ([]model.TrainingRow, error) {
	plan.Only = cells
	machines := experiment.Training{Hosts: hosts, Bandwidth: linkBits, Budget: 0.02, Seed: seed, Workload: fileWorkload}
	return machines.Run(ctx, train.Options{
		Plan: plan, Resource: emulated.Shared,
		Progress: func(p train.Progress) {
			fmt.Fprintf(os.Stderr, "training: %d of %d cells, about %s left\n", p.CellsDone, p.Cells, p.Left.Round(time.Second))
		},
	})
}

func score(models *model.Models, truth []model.TrainingRow) ([]point, error) {
	spec := model.Spec{Resource: truth[0].Resource, Metric: quell.Mean, InterferenceModel: quell.Joint, Confidence: 0.95}
	joint, err := model.Compile(models, spec)
	if err != nil {
		return nil, err
	}
	spec.InterferenceModel = quell.Total
	total, err := model.Compile(models, spec)
	if err != nil {
		return nil, err
	}
	var points []point
	for _, row := range truth {
		alone, _, _ := joint.Isolation(row.Utilization)
		sf := math.Max(0, row.ProbeMS.Mean/alone-1)
		response, _ := row.LatencyMS.Of(quell.Mean)
		points = append(points, point{
			Utilization: row.Utilization, Interfering: row.Interfering, Severity: sf,
			SeverityJoint: joint.SeverityAt(row.Utilization, row.Interfering), SeverityTotal: total.SeverityAt(row.Utilization, row.Interfering),
			ResponseMS: response, ResponseModelMS: joint.ResponseTime(row.Utilization, sf),
		})
	}
	return points, nil
}

// off returns the relative error of a prediction.
func off(predicted, measured float64) float64 { return math.Abs(predicted-measured) / measured }

// trainingFigures are the models' errors, point by point and over all points.
type trainingFigures struct {
	place
	Hosts, Runs                           int
	LinkBits                              float64
	Took, LongRun                         time.Duration // time of the training, and of a held-out point
	Points                                []point
	Response, Joint, Total, JointSeverity errorSum
	Metrics                               []metricScore
	Report                                string
}

// newTrainingFigures computes the figures of the models' errors, without those of the training itself.
func newTrainingFigures(at place, points []point, metrics []metricScore) trainingFigures {
	f := trainingFigures{place: at, Hosts: hosts, LinkBits: linkBits, LongRun: longRun, Points: points, Metrics: metrics}
	var response, joint, total, jointSeverity []float64
	for _, p := range points {
		response = append(response, p.ResponseOff())
		joint = append(joint, off(1+p.SeverityJoint, 1+p.Severity))
		total = append(total, off(1+p.SeverityTotal, 1+p.Severity))
		if p.Severity > 0 {
			jointSeverity = append(jointSeverity, off(p.SeverityJoint, p.Severity))
		}
	}
	f.Response, f.Joint, f.Total, f.JointSeverity = sumUp(response), sumUp(joint), sumUp(total), sumUp(jointSeverity)
	return f
}

// ResponseOff is the relative error of the predicted response time.
func (p point) ResponseOff() float64 { return off(p.ResponseModelMS, p.ResponseMS) }

// errorSum sums up relative errors.
type errorSum struct{ Mean, Most float64 }

func sumUp(values []float64) (sum errorSum) {
	for _, v := range values {
		sum.Mean += v / float64(len(values))
		sum.Most = math.Max(sum.Most, v)
	}
	return sum
}

// readJSON reads what writeJSON wrote; found is false if there is no such file.
func readJSON(path string, into any) (found bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", path, err)
	}
	return true, nil
}

// writeJSON writes a file whole or not at all, so that an interrupt leaves none that cannot be read.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(data, '\n'), 0o644)
}
