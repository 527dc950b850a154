package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/model/modelfile"
)

func labAlternateCommand() *cobra.Command {
	o := labRun{alternate: true}
	cmd := &cobra.Command{
		Use:   "alternate NAME|SCENARIO.yaml [--out DIR]",
		Short: "Measure machines second by second while a neighbour comes and goes: rows to train ICE's detector, and rows to test it",
		Args:  named("NAME"),
		RunE:  o.command,
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.resume, "resume", false, "keep the runs that --out already holds")
	return cmd
}

// alternations makes all runs in which a neighbour comes and goes. Each set of runs has a folder of its own below dir.
func (o *labRun) alternations(ctx context.Context, program, dir string, machines experiment.Machines, out, errs io.Writer) error {
	seed := o.scenario.Seed
	for i, a := range experiment.Alternations() {
		t := o.training()
		t.Plan = a.Plan()
		to := filepath.Join(dir, "alternating", a.Name())
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		path := rowsFile(to, t, t.Resource)
		if !o.resume {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		} else if rows, err := modelfile.LoadTraining(path); err == nil && len(rows) == len(t.Plan.Levels) {
			fmt.Fprintf(out, "%s is there already.\n", path)
			continue
		}
		o.scenario.Seed = seed + uint64(i)*1_000_003 // the arrivals of each set must differ from those of the others
		fmt.Fprintf(errs, "A neighbour that uses %.0f%% of the %s comes and goes, for %v.\n", 100*a.Use, t.Resource, t.Plan.Run)
		if _, err := o.train(ctx, t, t.Resource, to, program, machines, errs); err != nil {
			return err
		}
	}
	return nil
}
