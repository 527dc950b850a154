package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
)

// fitOptions are the flags of `quell fit`.
type fitOptions struct {
	model.FitOptions
	out, metric string
	snapshots   bool
	threshold   time.Duration
}

func fitCommand() *cobra.Command {
	var o fitOptions
	cmd := &cobra.Command{
		Use: "fit FILE... [--snapshots --threshold T] --out models.json",
		Short: "Fit the models to training rows, of several files and resources together, and report how well they predict; --snapshots: to " +
			"recorded snapshots of a running service",
		Args: someNamed("training.jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Metric.UnmarshalText([]byte(o.metric)); err != nil {
				return userErrorf("--metric: %w", err)
			}
			o.At = time.Now().UTC()
			w := bufio.NewWriter(cmd.OutOrStdout())
			fit := o.fromRows
			if o.snapshots {
				fit = o.fromSnapshots
			} else if o.threshold != 0 {
				return userErrorf("--threshold is for --snapshots: training rows are fitted without it")
			}
			if err := fit(cmd, args, w); err != nil {
				return err
			}
			fmt.Fprintf(w, "\nmodels written to %s\n", o.out)
			return w.Flush()
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "models.json", "file for the models")
	f.StringVar(&o.Service, "service", "", "name of the service, kept with the models; default: service, or that of the snapshots")
	f.StringVar(&o.InstanceType, "instance-type", "", "type of the machine on which was trained; the models keep it")
	f.StringVar(&o.metric, "metric", string(quell.Mean),
		"metric of the objective: mean, p50, p90, p95, p99. Errors are reported for it; models of snapshots predict it and the mean")
	f.BoolVar(&o.snapshots, "snapshots", false,
		"the files have snapshots, as quell journal --snapshots prints them, the oldest file first; - is standard input")
	durationFlag(f, &o.threshold, "threshold", 0, "with --snapshots: the objective's threshold, at which capacities are reported")
	return cmd
}

// fromRows fits models to training rows, writes them, and reports their errors.
func (o *fitOptions) fromRows(_ *cobra.Command, files []string, w io.Writer) error {
	var rows []model.TrainingRow
	for _, path := range files {
		part, err := modelfile.LoadTraining(path)
		if err != nil {
			return err
		}
		rows = append(rows, part...)
	}
	o.Service = cmp.Or(o.Service, "service")
	models, report, err := model.Fit(rows, o.FitOptions)
	if err != nil {
		return err
	}
	if err := modelfile.Save(models, o.out); err != nil {
		return err
	}
	return report.Write(w)
}

// fromSnapshots learns models from snapshots as a controller does in place, writes them, and describes them.
func (o *fitOptions) fromSnapshots(cmd *cobra.Command, files []string, w io.Writer) error {
	if o.threshold <= 0 {
		return userErrorf("--snapshots needs --threshold, the objective's threshold, as in --threshold 75ms")
	}
	learning := snapshotLearning{slo: quell.SLO{Metric: o.Metric, Threshold: o.threshold}, service: o.Service}
	for _, path := range files {
		if err := learning.file(cmd, path); err != nil {
			return err
		}
	}
	o.Service = learning.service
	models, err := learning.learner.Export(o.FitOptions)
	if err != nil {
		return userErrorf("%w", err)
	}
	if err := modelfile.Save(models, o.out); err != nil {
		return err
	}
	return model.Describe(w, models, model.ShowOptions{ThresholdsMS: thresholds(o.threshold)})
}

// snapshotLearning is what was learned from the snapshots that were read so far.
type snapshotLearning struct {
	slo     quell.SLO
	service string // of all snapshots; empty: that of the first
	last    time.Time
	learner *model.Learner
}

// file learns from the snapshots of a file.
func (l *snapshotLearning) file(cmd *cobra.Command, path string) error {
	return eachSnapshot(cmd, path, func(r *strictjson.SnapshotReader, s *quell.Snapshot) error {
		if s.At.Before(l.last) {
			return r.Errorf("at: this snapshot is older than those of the file before: name the oldest file first")
		}
		l.service = cmp.Or(l.service, s.Service)
		if s.Service != l.service {
			return r.Errorf("service: the snapshot is of %q, and models are made of %q", s.Service, l.service)
		}
		l.last, l.learner = s.At, l.learner.Learn(s, l.slo)
		return nil
	})
}
