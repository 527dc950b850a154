package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/lab/arena"
	"github.com/quellhq/quell/lab/scenario"
)

// arenaOptions are the flags of `quell arena`.
type arenaOptions struct {
	policies []string
	seeds    int
	out      string
	jobs     int
	report   string
}

func arenaCommand() *cobra.Command {
	var o arenaOptions
	cmd := &cobra.Command{
		Use:   "arena SCENARIO.yaml... [--policies prima,...] [--seeds 20] [--out DIR] [--report FILE.md]",
		Short: "Play scenarios on simulated machines with every policy and rival over many seeds; tables, plots, a report",
		Long: "Plays each scenario's runs and the named policies with every seed, as many runs at once as there are processors.\n" +
			"Each policy plays over every scheduling that it could run on, those of fixed size in groups of several sizes.\n" +
			"The report holds each rival at its best against PRIMA. What has finished is kept in --out. After an\n" +
			"interruption, or with more seeds, policies or scenarios, the same command goes on with it.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%s wants SCENARIO.yaml..., got none; see %[1]s --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.policies, "policies", nil, "policies to play in addition to the scenarios' own runs; default: all known")
	f.IntVar(&o.seeds, "seeds", 20, "number of seeds; the first is each scenario's own")
	f.StringVar(&o.out, "out", "arena", "folder for results.jsonl and models")
	f.IntVar(&o.jobs, "jobs", 0, "number of runs at once; default: as many as there are processors")
	f.StringVar(&o.report, "report", "", "file for the report, with its plots in a folder beside it; default: report.md in --out")
	return cmd
}

func (o *arenaOptions) run(ctx context.Context, paths []string, out, errs io.Writer) error {
	var scenarios []*scenario.Scenario
	why := map[string]string{}
	for _, path := range paths {
		sc, text, err := loadContest(path)
		if err != nil {
			return err
		}
		scenarios = append(scenarios, sc)
		why[sc.Name] = text
	}
	report := o.report
	if report == "" {
		report = filepath.Join(o.out, "report.md")
	}
	if err := arena.CheckReport(report); err != nil {
		return err
	}
	program, err := fingerprint()
	if err != nil {
		return err
	}
	bar := newProgressBar(errs)
	contests, err := arena.Run(ctx, arena.Options{
		Scenarios: scenarios, Policies: o.policies, Seeds: o.seeds, Dir: o.out, Jobs: o.jobs, Program: program, Progress: bar.showArena,
	})
	bar.finish()
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: what has finished is kept in %s; the same command goes on with it", o.out)
	}
	if contests == nil {
		return err
	}
	err = errors.Join(err, arena.WriteTables(out, contests), arena.Report(ctx, report, contests, why))
	if err == nil {
		fmt.Fprintf(out, "Report: %s\n", report)
	}
	return err
}

// loadContest reads a scenario. It also reads the text that explains the scenario's results, from the file of the same name that
// ends in .md.
func loadContest(path string) (*scenario.Scenario, string, error) {
	sc, err := scenario.Load(path)
	if err != nil {
		return nil, "", err
	}
	text, err := os.ReadFile(strings.TrimSuffix(path, filepath.Ext(path)) + ".md")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, "", fmt.Errorf("reading the explanation of scenario %s: %w", sc.Name, err)
	}
	return sc, string(text), nil
}
