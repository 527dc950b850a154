package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/train"
)

func cores() int { return runtime.NumCPU() }

// The emulated machine that the models are about, as in the demo.
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

// trainingThresholdMS is the demo's.
const trainingThresholdMS = 40

// metricScore is how far models are off in one metric.
type metricScore struct {
	metric quell.Metric
	train.Scores
}

// trainingPage trains with the full plan, fits, and scores both models against long runs at points they never saw.
func trainingPage(ctx context.Context, dir string) error {
	var rows []model.TrainingRow
	began := time.Now()
	if err := collect(ctx, train.Full(), nil, 1, &rows); err != nil {
		return err
	}
	took := time.Since(began)
	models, report, err := model.Fit(rows, model.FitOptions{Service: "emulated", InstanceType: "emulated 40 Mbit/s", Metric: quell.Mean, At: time.Now().UTC()})
	if err != nil {
		return err
	}
	plan := train.Plan{Levels: []float64{0.5}, Interference: []float64{0}, Run: longRun, WarmUp: 2 * time.Second, Repeat: 1, MaxRepeat: 1, Interval: 0.05, Confidence: 0.95}
	var truth []model.TrainingRow
	if err := collect(ctx, plan, heldOut, 1_000_003, &truth); err != nil {
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
	return os.WriteFile(filepath.Join(dir, "training.md"), trainingText(points, metrics, report, len(rows), took), 0o644)
}

// collect runs a plan, or instead of its cells the given ones, on emulated hosts.
func collect(ctx context.Context, plan train.Plan, cells []train.Cell, seed uint64, rows *[]model.TrainingRow) error {
	plan.Only = cells
	return experiment.Training{
		Plan: plan, Hosts: hosts, Bandwidth: linkBits, Budget: 0.02, Seed: seed,
		Workload: fileWorkload,
		Save:     func(row model.TrainingRow) error { *rows = append(*rows, row); return nil },
		Progress: func(p train.Progress) {
			fmt.Fprintf(os.Stderr, "training: %d of %d cells, about %s left\n", p.CellsDone, p.Cells, p.Left.Round(time.Second))
		},
	}.Run(ctx)
}

func score(models *model.Models, truth []model.TrainingRow) ([]point, error) {
	spec := model.Spec{Resource: quell.Network, Metric: quell.Mean, InterferenceModel: quell.Joint, Confidence: 0.95}
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

// off is the relative error of a prediction.
func off(predicted, measured float64) float64 { return math.Abs(predicted-measured) / measured }

func trainingText(points []point, metrics []metricScore, report *model.Report, rows int, took time.Duration) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# How well the models predict\n\nWritten by `go run ./cmd/results training` on %s.\n\n", machine())
	fmt.Fprintf(&b, "`quell train` with the full plan on %d emulated hosts of %.0f Mbit/s made %d runs in %s. Each held-out point, a load and an interference that no training run had, was then measured for %s.\n", hosts, linkBits/1e6, rows, took.Round(time.Second), longRun)
	fmt.Fprintf(&b, "Severity is judged on the probe time it stands for, 1 + SF in units of the time alone; the error of SF itself, relative to SF, is given beside it.\n\n")
	fmt.Fprintf(&b, "| U | U_int | SF measured | joint | total | response measured | predicted | error |\n|---|---|---|---|---|---|---|---|\n")
	var rtm, joint, total, jointSF []float64
	for _, p := range points {
		fmt.Fprintf(&b, "| %.2f | %.2f | %.2f | %.2f | %.2f | %.1f ms | %.1f ms | %.1f%% |\n", p.Utilization, p.Interfering, p.Severity, p.SeverityJoint, p.SeverityTotal, p.ResponseMS, p.ResponseModelMS, 100*off(p.ResponseModelMS, p.ResponseMS))
		rtm = append(rtm, off(p.ResponseModelMS, p.ResponseMS))
		joint = append(joint, off(1+p.SeverityJoint, 1+p.Severity))
		total = append(total, off(1+p.SeverityTotal, 1+p.Severity))
		if p.Severity > 0 {
			jointSF = append(jointSF, off(p.SeverityJoint, p.Severity))
		}
	}
	fmt.Fprintf(&b, "\n| model | mean error | largest | paper, mean |\n|---|---|---|---|\n")
	for _, line := range []struct {
		name   string
		errors []float64
		paper  string
	}{
		{"response time (Eq. 2)", rtm, "6.8% (file)"},
		{"interference, joint", joint, "-"},
		{"interference, total (Eq. 3)", total, "6.1% (file)"},
		{"interference, joint, of SF itself", jointSF, "-"},
	} {
		mean, most := meanAndMost(line.errors)
		fmt.Fprintf(&b, "| %s | %.1f%% | %.1f%% | %s |\n", line.name, mean*100, most*100, line.paper)
	}
	fmt.Fprintf(&b, "\nThe response-time model for other metrics, on the same runs:\n\n| metric | mean error | 95th percentile over the points |\n|---|---|---|\n")
	for _, m := range metrics {
		fmt.Fprintf(&b, "| %s | %.1f%% | %.1f%% |\n", m.metric, 100*m.ResponseTime.Mean, 100*m.ResponseTime.P95)
	}
	fmt.Fprintf(&b, "\n%s\n", limits)
	fmt.Fprintf(&b, "\nThe fit's own report, leaving one cell out at a time:\n\n```\n")
	_ = report.Write(&b)
	fmt.Fprintf(&b, "```\n")
	return b.Bytes()
}

// limits says why one of the models falls short.
const limits = "The paper's curve, U_total = IM(SF), falls short on a link that is shared equally: there severity is near U_int / (1 - U - U_int), so one total belongs to many severities, and a curve of the total alone cannot tell them apart. The joint model can; it is the default. What is left of its error is mostly the probe's own noise, in the training as in the long runs: where a neighbour takes little, severity is small and its relative error large."

func meanAndMost(values []float64) (mean, most float64) {
	for _, v := range values {
		mean += v / float64(len(values))
		most = math.Max(most, v)
	}
	return mean, most
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
