package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/chart"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
	"github.com/quellhq/quell/train"
)

func trainCommand() *cobra.Command {
	var path, out, prefix string
	var fresh bool
	var on onMachine
	cmd := &cobra.Command{
		Use: "train [--on INSTANCE --url PATH...] [--config FILE] [--out training.jsonl] [--fresh]",
		Short: "Run controlled experiments on emulated hosts, on kernel machines, or on an instance of your own, and write one row for " +
			"each; goes on where an interrupted one stopped",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if on.instance != "" || on.given(cmd) {
				return on.run(cmd, path, out, fresh)
			}
			file, err := daemon.Drivers().Load(path)
			if err != nil {
				return err
			}
			var inside *player
			if file.Train.Testbed == config.KernelTestbed {
				if inside = insideLab(); inside == nil {
					return ownTraining(cmd.Context(), file, prefix, cmd.ErrOrStderr())
				}
			}
			hosts, o := training(file)
			store, err := train.OpenStore(out, settings(file, o.Plan), fresh)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, store.Close()) }()
			ctx := cmd.Context()
			if inside != nil {
				var cancel context.CancelFunc
				ctx, cancel = inside.with(ctx)
				defer cancel()
				if hosts.Kernel, err = trainingHosts(file, prefix, inside); err != nil {
					return err
				}
			}
			return runTraining(ctx, cmd, hosts.Run, store.In(o), store, out)
		},
	}
	configFlag(cmd, &path)
	oneServiceFlag(cmd)
	on.flags(cmd)
	cmd.Flags().StringVar(&out, "out", "training.jsonl", "file for the rows; rows of an interrupted training in it are used")
	cmd.Flags().BoolVar(&fresh, "fresh", false, "begin again: a file of rows that exists is renamed to FILE.1, FILE.2 and so on")
	cmd.Flags().StringVar(&prefix, "prefix", kernel.DefaultPrefix, "testbed kernel: prefix of the names of namespaces and cgroups")
	return cmd
}

// runTraining makes the runs that the store lacks, and reports how many it stored, however the training ends.
func runTraining(
	ctx context.Context, cmd *cobra.Command, run func(context.Context, train.Options) ([]model.TrainingRow, error), o train.Options,
	store *train.Store, out string,
) error {
	bar := newProgressBar(cmd.ErrOrStderr())
	o.Progress = bar.show
	o.Off = func(c train.Cell, off *train.OffError) {
		bar.finish()
		fmt.Fprintf(cmd.ErrOrStderr(), "no row for utilisation %.2f, interference %.2f: %v\n", c.Level, c.Interference, off)
	}
	_, err := run(ctx, o)
	bar.finish()
	kept, added := len(store.Rows()), store.Added()
	fmt.Fprintf(cmd.OutOrStdout(), "%d rows in %s: %d kept, %d new\n", kept+added, out, kept, added)
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted; the same command goes on from here: %w", err)
	}
	return err
}

// settings are the values on which the rows of a configuration's training depend.
func settings(file *config.File, plan train.Plan) train.Settings {
	c, s := file.Train, plan.Settings()
	maps.Copy(s, train.Settings{
		"service": file.Service.Name, "train.plan": string(c.Plan), "train.testbed": string(c.Testbed),
		"train.network":   fmt.Sprintf("%gbps", c.Network),
		"train.file_size": fmt.Sprintf("%dB", c.FileSize), "train.arrivals": string(c.Arrivals), "train.seed": fmt.Sprint(c.Seed),
		"probe.budget": fmt.Sprint(file.Probe.Budget),
	})
	if p, ok := daemon.Probing(file); ok {
		s["probe.size"], s["probe.count"] = fmt.Sprintf("%dB", p.Bytes), fmt.Sprintf("%d in %gs", p.Count, p.PeriodS)
	}
	return s
}

// training turns a configuration into hosts and the runs to make on them.
func training(file *config.File) (experiment.Training, train.Options) {
	c := file.Train
	plan := train.Plan{
		Levels: c.Levels, Interference: c.Interference, Run: c.Run, WarmUp: time.Second, Repeat: c.Repeat,
		MaxRepeat: c.MaxRepeat, Interval: c.Interval, Confidence: c.Confidence,
	}
	switch c.Plan {
	case config.QuickPlan:
		plan = train.Quick()
	case config.FullPlan:
		plan = train.Full()
	case config.AlternatingPlan:
		plan = train.Alternating()
	case config.AdaptivePlan:
		slo := file.Service.SLO
		plan = train.Learn(slo.Metric, slo.ThresholdMS(), c.Budget, c.Bound, c.Hosts)
	}
	hosts := experiment.Training{
		Hosts: c.Hosts, Bandwidth: c.Network, Seed: c.Seed, Budget: file.Probe.Budget,
		Workload: scenario.Workload{Kind: scenario.File, Arrivals: scenario.Arrivals(c.Arrivals), Size: c.FileSize},
	}
	if p, ok := daemon.Probing(file); ok {
		hosts.Probing = &p
	}
	return hosts, train.Options{Plan: plan, Resource: c.Resource}
}

func modelCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "model", Short: "Show models", Args: cobra.NoArgs, RunE: showHelp}
	var threshold time.Duration
	var plots string
	show := &cobra.Command{
		Use:   "show models.json [--threshold T] [--plot DIR]",
		Short: "Print what the models were trained on and the capacity that they give at each severity, or draw them",
		Args:  named("models.json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if threshold <= 0 && cmd.Flags().Changed("threshold") {
				return userErrorf("--threshold %v: give a time above zero, as in 75ms", threshold)
			}
			models, err := modelfile.Load(args[0])
			if err != nil {
				return err
			}
			if err := describe(cmd, models, threshold); err != nil || plots == "" {
				return err
			}
			names, err := chart.Models(plots, models, model.ShowOptions{ThresholdsMS: thresholds(threshold)})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "\npictures: %s\n", strings.Join(names, ", "))
			return nil
		},
	}
	durationFlag(show.Flags(), &threshold, "threshold", 0, "response-time threshold for which to compute capacities; default: several")
	show.Flags().StringVar(&plots, "plot", "", "draw the models as PNG pictures into this folder")
	cmd.AddCommand(show)
	return cmd
}

// describe prints the models, and what they say for the threshold, if one is given.
func describe(cmd *cobra.Command, models *model.Models, threshold time.Duration) error {
	w := bufio.NewWriter(cmd.OutOrStdout())
	if err := model.Describe(w, models, model.ShowOptions{ThresholdsMS: thresholds(threshold)}); err != nil {
		return err
	}
	return w.Flush()
}

// thresholds returns the threshold in milliseconds, or nothing if none is given.
func thresholds(given time.Duration) []float64 {
	if given == 0 {
		return nil
	}
	return []float64{quell.SLO{Threshold: given}.ThresholdMS()}
}
