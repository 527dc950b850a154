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

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/train"
)

func labCrosstalkCommand() *cobra.Command {
	o := labRun{crosstalk: true}
	cmd := &cobra.Command{
		Use:   "crosstalk NAME|SCENARIO.yaml [--out DIR]",
		Short: "Measure which probes feel which neighbour: each one of the scenario's timeline by itself, and none",
		Args:  named("NAME"),
		RunE:  o.command,
	}
	o.flags(cmd)
	cmd.Flags().IntVar(&o.periods, "periods", 40, "number of sampling periods beside each neighbour, over all hosts")
	cmd.Flags().BoolVar(&o.resume, "resume", false, "do not measure if --out already has a matrix")
	return cmd
}

// baselineLoads are the loads at which probes are measured without a neighbour, as shares of the scenario's load. They cover the values
// that the scenario's load has in single periods.
var baselineLoads = []float64{0.6, 1, 1.4}

// matrix measures which probes feel which neighbour, and writes crosstalk.json.
func (o *labRun) matrix(ctx context.Context, program, dir string, machines experiment.Machines, out, errs io.Writer) error {
	path := filepath.Join(dir, "crosstalk.json")
	if o.measured(path, out) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	sc := o.scenario
	study := train.CrosstalkStudy{
		Resource: experiment.Fullest(sc), Level: sc.Workload.Load, Baseline: baselineLoads, Neighbours: experiment.Neighbours(sc),
		Period: sc.Service.Sampling, Periods: o.periods, WarmUp: 3 * time.Second, Seed: sc.Seed,
		Confidence: table.All.ConfidenceOf(sc.Service.Policy),
		Progress:   func(what string) { fmt.Fprintf(errs, "Measuring at %s.\n", what) },
	}
	var result train.Crosstalk
	err := o.hosts(o.training(), dir, program, machines).On(ctx, func(ctx context.Context, machines []train.Machine) (err error) {
		for _, m := range machines {
			study.Machines = append(study.Machines, m.(train.WatchedMachine))
		}
		result, err = study.Study(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := writeResult(path, result); err != nil {
		return err
	}
	return writeMatrix(out, result)
}

// writeMatrix prints, for each kind of probe and each neighbour, in how many periods the probe felt the neighbour, and how
// much longer the probe took on average. The last column is what the waiting of the instances' own tasks tells: in how many periods
// neighbours use the processors, and how much on average.
func writeMatrix(out io.Writer, c train.Crosstalk) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "NEIGHBOUR\tPERIODS")
	for _, r := range quell.Resources {
		fmt.Fprintf(w, "\t%s", r)
	}
	fmt.Fprintln(w, "\town waiting")
	for _, cell := range c.Cells {
		fmt.Fprintf(w, "%s\t%d", cell.Neighbour, cell.Periods())
		for _, r := range quell.Resources {
			f, ok := cell.Felt[r]
			if !ok {
				fmt.Fprint(w, "\t-")
				continue
			}
			fmt.Fprintf(w, "\t%.0f%% (%+.0f%%)", 100*f.Share(), 100*f.Severity)
		}
		if x := cell.Waited; x != nil {
			fmt.Fprintf(w, "\t%.0f%% (%.2f)\n", 100*x.Share(), x.Use)
		} else {
			fmt.Fprintln(w, "\t-")
		}
	}
	return w.Flush()
}
