package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/model/modelfile"
)

func labValidateCommand() *cobra.Command {
	o := labRun{validate: true}
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "validate NAME|SCENARIO.yaml [--out DIR]",
		Short: "Compare the models of a scenario's machines and workload with runs at loads and neighbours that were not trained",
		Args:  named("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.heldOut = length
			return o.command(cmd, args)
		},
	}
	o.flags(cmd)
	durationFlag(cmd.Flags(), &length, "length", 3*time.Minute, "how long each point is measured")
	cmd.Flags().BoolVar(&o.resume, "resume", false, "do not measure if --out already has a validation")
	return cmd
}

// measureHeldOut measures the held-out points, writes validation.json and prints the models' errors.
func (o *labRun) measureHeldOut(ctx context.Context, program, models, dir string, machines experiment.Machines, out, errs io.Writer) error {
	path := filepath.Join(dir, "validation.json")
	if o.measured(path, out) {
		return nil
	}
	t := o.training()
	t.Plan.Only, t.Plan.Run, t.Plan.Repeat, t.Plan.MaxRepeat = experiment.HeldOut(), o.heldOut, 1, 1
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	o.scenario.Seed += 1_000_003 // the arrivals must differ from those of the training
	fmt.Fprintf(errs, "Measuring %d held-out points for %s each.\n", len(t.Plan.Only), o.heldOut)
	rows, err := o.train(ctx, t, t.Resource, dir, program, machines, errs)
	if err != nil {
		return err
	}
	fitted, err := modelfile.Load(models)
	if err != nil {
		return err
	}
	points, err := experiment.Validate(fitted, t.Resource, rows)
	if err != nil {
		return err
	}
	v := experiment.Validation{Points: points}
	if fitted.Trained != nil {
		v.Rows = fitted.Trained.Rows
	}
	if err := writeResult(path, v); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "U\tU_int\tSF\tJOINT\tTOTAL\tMEAN\tPREDICTED\tP95\tPREDICTED")
	for _, p := range points {
		fmt.Fprintf(w, "%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.1f ms\t%.1f ms\t%.1f ms\t%.1f ms\n", p.Utilization, p.Interfering, p.Severity,
			p.SeverityJoint, p.SeverityTotal, p.MeanMS, p.PredictedMeanMS, p.P95MS, p.PredictedP95MS)
	}
	return w.Flush()
}
