package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/experiment"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/scenario"
	"github.com/quellhq/quell/testbed/kernel"
	"github.com/quellhq/quell/train"
)

func trainCommand() *cobra.Command {
	var path, out, prefix string
	cmd := &cobra.Command{
		Use:   "train --config FILE --out training.jsonl",
		Short: "Run controlled experiments on emulated hosts, or on kernel machines, and write one row for each",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			file, err := config.Load(path)
			if err != nil {
				return err
			}
			var machines *player
			if file.Train.Testbed == config.KernelTestbed {
				if machines = insideLab(); machines == nil {
					return ownTraining(cmd.Context(), file, prefix, cmd.ErrOrStderr())
				}
			}
			f, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			if os.IsExist(err) {
				return userErrorf("%s is there already: name another file, or remove it", out)
			}
			if err != nil {
				return fmt.Errorf("opening the training file: %w", err)
			}
			defer func() {
				if closeErr := f.Close(); err == nil {
					err = closeErr
				}
			}()
			bar := newProgressBar(cmd.ErrOrStderr())
			defer bar.finish()
			t := training(file.Train)
			t.Budget = file.Probe.Budget
			ctx := cmd.Context()
			if machines != nil {
				var cancel context.CancelFunc
				ctx, cancel = machines.with(ctx)
				defer cancel()
				var remove func() error
				if t.Kernel, remove, err = trainingHosts(file, prefix, machines); err != nil {
					return err
				}
				defer func() { err = errors.Join(err, remove()) }()
			}
			t.Save = saveTo(f)
			t.Progress = func(p train.Progress) { bar.show(p) }
			return t.Run(ctx)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&out, "out", "training.jsonl", "where the rows go; must not exist")
	cmd.Flags().StringVar(&prefix, "prefix", kernel.DefaultPrefix, "testbed kernel: what the names of namespaces and cgroups begin with")
	return cmd
}

// training turns a configuration into the runs to make.
func training(c config.Train) experiment.Training {
	plan := train.Plan{
		Levels: c.Levels, Interference: c.Interference, Run: c.Run, WarmUp: time.Second, Repeat: c.Repeat,
		MaxRepeat: c.MaxRepeat, Interval: c.Interval, Confidence: c.Confidence,
	}
	switch c.Plan {
	case config.QuickPlan:
		plan = train.Quick()
	case config.FullPlan:
		plan = train.Full()
	}
	return experiment.Training{
		Plan: plan, Hosts: c.Hosts, Bandwidth: c.Network, Seed: c.Seed,
		Workload: scenario.Workload{Kind: scenario.File, Arrivals: c.Arrivals, Size: c.FileSize},
	}
}

// saveTo writes rows as they come, each flushed: an interrupted training keeps what it has.
func saveTo(f *os.File) func(model.TrainingRow) error {
	return func(row model.TrainingRow) error {
		data, err := json.Marshal(row)
		if err != nil {
			return fmt.Errorf("encoding a training row: %w", err)
		}
		if _, err := f.Write(append(data, '\n')); err != nil {
			return fmt.Errorf("writing a training row: %w", err)
		}
		return nil
	}
}

func fitCommand() *cobra.Command {
	var out, service, instanceType string
	var metricName string
	cmd := &cobra.Command{
		Use:   "fit training.jsonl --out models.json",
		Short: "Fit the models to training rows and report how well they predict",
		Args:  named("training.jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var metric quell.Metric
			if err := metric.UnmarshalText([]byte(metricName)); err != nil {
				return userErrorf("--metric: %w", err)
			}
			rows, err := model.LoadTraining(args[0])
			if err != nil {
				return err
			}
			models, report, err := model.Fit(rows, model.FitOptions{Service: service, InstanceType: instanceType, Metric: metric, At: time.Now().UTC()})
			if err != nil {
				return err
			}
			if err := models.Save(out); err != nil {
				return err
			}
			w := bufio.NewWriter(cmd.OutOrStdout())
			if err := report.Write(w); err != nil {
				return err
			}
			fmt.Fprintf(w, "\nmodels written to %s\n", out)
			return w.Flush()
		},
	}
	cmd.Flags().StringVar(&out, "out", "models.json", "where the models go")
	cmd.Flags().StringVar(&service, "service", "service", "name of the service, kept with the models")
	cmd.Flags().StringVar(&instanceType, "instance-type", "", "type of the machine trained on, kept with the models")
	cmd.Flags().StringVar(&metricName, "metric", string(quell.Mean), "metric of the objective that the errors are reported for: mean, p50, p90, p95, p99")
	return cmd
}

func modelCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "model", Short: "Look at models", Args: cobra.NoArgs, RunE: showHelp}
	var threshold time.Duration
	show := &cobra.Command{
		Use:   "show models.json",
		Short: "Print what the models were trained on and the capacity they give against severity",
		Args:  named("models.json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			models, err := model.Load(args[0])
			if err != nil {
				return err
			}
			return describe(cmd, models, threshold)
		},
	}
	show.Flags().DurationVar(&threshold, "threshold", 0, "response-time threshold to work capacities out for; default: several")
	cmd.AddCommand(show)
	return cmd
}

// describe prints the models for the threshold, if one is given.
func describe(cmd *cobra.Command, models *model.Models, threshold time.Duration) error {
	w := bufio.NewWriter(cmd.OutOrStdout())
	o := model.DescribeOptions{}
	if threshold > 0 {
		o.ThresholdsMS = []float64{quell.SLO{Threshold: threshold}.ThresholdMS()}
	}
	if err := model.Describe(w, models, o); err != nil {
		return err
	}
	return w.Flush()
}
