package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/train"
)

func labProbingCommand() *cobra.Command {
	o := labRun{probing: true}
	cmd := &cobra.Command{
		Use:   "probing NAME|SCENARIO.yaml [--out DIR]",
		Short: "Measure how precise probes with 1% to 5% of the link are on a scenario's machines: one download or many",
		Args:  named("NAME"),
		RunE:  o.command,
	}
	o.flags(cmd)
	durationFlag(cmd.Flags(), &o.heldOut, "length", 100*time.Second, "how long each budget is measured")
	cmd.Flags().BoolVar(&o.resume, "resume", false, "do not measure if --out already has a study")
	return cmd
}

// probingPeriod makes one download of 1 MB per period use 5% of a link of 100 Mbit/s.
const probingPeriod = 1600 * time.Millisecond

// probings are ways to spend 1 to 5% of a link: on one download per period or on many small ones. The first one is taken from PRIMA's
// paper: one download of 1 MB, at 5% of the link.
func probings(network float64) []train.Probing {
	var all []train.Probing
	for _, budget := range []float64{0.05, 0.02, 0.01} {
		for _, count := range []int{1, 8, 16} {
			bytes := budget * network / 8 * probingPeriod.Seconds() / float64(count)
			all = append(all, train.Probing{Period: probingPeriod, Count: count, Bytes: int64(bytes)})
		}
	}
	return all
}

// study measures each way to probe at a moderate load next to a neighbour, and writes probing.json.
func (o *labRun) study(ctx context.Context, program, dir string, machines experiment.Machines, out io.Writer) error {
	path := filepath.Join(dir, "probing.json")
	if o.measured(path, out) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	t := o.training()
	study := train.ProbingStudy{
		Probings: probings(t.Network), Resource: t.Resource, Cells: []train.Cell{{Level: 0.4, Interference: 0.3}}, Run: o.heldOut,
		WarmUp: 2 * time.Second, Seed: o.scenario.Seed,
	}
	var scores []train.ProbingScore
	err := o.hosts(t, dir, program, machines).On(ctx, func(ctx context.Context, machines []train.Machine) (err error) {
		for _, m := range machines {
			study.Machines = append(study.Machines, m.(train.ProbedMachine))
		}
		scores, err = study.Study(ctx)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "DOWNLOADS  BYTES    SHARE  SEVERITY  ERROR")
	for _, s := range scores {
		fmt.Fprintf(out, "%9d  %7d  %4.1f%%  %8.2f  %.3f\n", s.Count, s.Bytes, 100*s.Share(t.Network), s.Severity, s.Error)
	}
	return writeResult(path, scores)
}
