package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
	"github.com/quellhq/quell/policy/table"
)

// simOptions are the flags of `quell sim`.
type simOptions struct {
	models   string
	policies []string
	seed     uint64
	json     string
	learn    bool
}

func simCommand() *cobra.Command {
	var o simOptions
	cmd := &cobra.Command{
		Use:   "sim SCENARIO.yaml [--models FILE] [--policy prima,...] [--seed N] [--json FILE]",
		Short: "Play a scenario on simulated machines, in seconds, with the policies and the guard of the live system",
		Args:  named("SCENARIO.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			sc, err := o.load(args[0], cmd.Flags().Changed("seed"))
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), sc, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.models, "models", "", "use these models; default: train on simulated machines first")
	f.StringSliceVar(&o.policies, "policy", nil, "run only these policies; default: all runs of the scenario")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the random arrivals, neighbours and training; default: the scenario's")
	f.BoolVar(&o.learn, "learn", false, "also play without training each run whose policy can learn its models: it learns during the run")
	f.StringVar(&o.json, "json", "", "write the results to this file")
	return cmd
}

func (o *simOptions) load(path string, seeded bool) (*scenario.Scenario, error) {
	sc, data, err := scenario.Read(path)
	if err != nil {
		return nil, err
	}
	if seeded {
		sc.Seed = o.seed
	}
	if err := choosePolicies(path, data, sc, o.policies); err != nil {
		return nil, err
	}
	if o.learn {
		sc.Runs = withLearning(sc.Runs)
	}
	return sc, nil
}

// withLearning adds to every run of a policy that can learn its models one that learns them.
func withLearning(runs []scenario.Run) []scenario.Run {
	for _, r := range slices.Clone(runs) {
		if r.Models = scenario.Learn; table.All.Learns(r.Policy.Name) && !slices.Contains(runs, r) {
			runs = append(runs, r)
		}
	}
	return runs
}

// choosePolicies keeps only the runs of these policies. For a policy that has no run it adds one with least-connections scheduling.
// If an added run conflicts with the scenario, the error names the flag and the place in the file.
func choosePolicies(name string, data []byte, sc *scenario.Scenario, policies []string) error {
	if len(policies) == 0 {
		return nil
	}
	sc.Runs = slices.DeleteFunc(sc.Runs, func(r scenario.Run) bool { return !slices.Contains(policies, r.Policy.Name) })
	for _, p := range policies {
		if !slices.Contains(sim.Policies(), p) {
			return userErrorf("unknown policy %q (known: %s)", p, strings.Join(sim.Policies(), ", "))
		}
		if !slices.ContainsFunc(sc.Runs, func(r scenario.Run) bool { return r.Policy.Name == p }) {
			sc.Runs = append(sc.Runs, scenario.Run{Policy: quell.Policy{Name: p}, Scheduling: quell.LeastConn})
		}
	}
	if invalid, ok := errors.AsType[*quell.InvalidError](sc.Validate()); ok {
		return scenario.InFile(name, data, fmt.Errorf("with --policy %s: %w", strings.Join(policies, ","), invalid))
	}
	return nil
}

func (o *simOptions) run(ctx context.Context, sc *scenario.Scenario, out, errs io.Writer) error {
	models, err := o.prepare(ctx, sc, errs)
	if err != nil {
		return err
	}
	results, err := simulate(ctx, sc, models)
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing is written")
	}
	if err != nil {
		return err
	}
	if err := writeResults(o.json, results); err != nil {
		return err
	}
	if sc.Services > 1 {
		return experiment.WriteServices(out, sc, results)
	}
	return experiment.WriteTable(out, sc, results)
}

// prepare loads or trains models, if a run needs them.
func (o *simOptions) prepare(ctx context.Context, sc *scenario.Scenario, errs io.Writer) (*model.Models, error) {
	if o.models != "" {
		return modelfile.Load(o.models)
	}
	if !slices.ContainsFunc(sc.Runs, trained) {
		return nil, nil
	}
	began := time.Now()
	rows, err := sim.Train(ctx, sc, sim.Plan(), sc.Seed)
	if err != nil {
		return nil, err
	}
	models, report, err := model.Fit(rows, model.FitOptions{Service: sc.Service.Name, InstanceType: "simulated",
		Metric: sc.Service.SLO.Metric})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(errs, "Trained on %d simulated runs in %.1f s.\n", report.Rows, time.Since(began).Seconds())
	return models, nil
}

// trained returns whether a run's policy needs trained models.
func trained(r scenario.Run) bool {
	return table.All.Trained(r.Policy.Name) && r.Models != scenario.Learn
}

// simulate plays all runs of all services, as many at once as there are processors. The results are in the order of the runs, and
// within each run in the order of the services. Each service's seed is one larger than the previous one's; the first has the
// scenario's.
func simulate(ctx context.Context, sc *scenario.Scenario, models *model.Models) ([]scenario.Result, error) {
	services := max(1, sc.Services)
	results, failures := make([]scenario.Result, len(sc.Runs)*services), make([]error, len(sc.Runs)*services)
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i := range results {
		run, seed := sc.Runs[i/services], sc.Seed+uint64(i%services)
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			if results[i], failures[i] = sim.Run(ctx, sim.Options{Scenario: sc, Run: run, Models: models, Seed: seed}); failures[i] != nil {
				failures[i] = fmt.Errorf("simulating %s: %w", experiment.Title(sc, run), failures[i])
			}
		})
	}
	all.Wait()
	return results, firstOf(failures)
}

// firstOf returns only the first of equal failures, because equal services fail in the same way.
func firstOf(failures []error) error {
	var first []error
	seen := map[string]bool{}
	for _, err := range failures {
		if err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			first = append(first, err)
		}
	}
	return errors.Join(first...)
}

// writeResults writes results as a JSON array, if a file is given.
func writeResults(path string, results []scenario.Result) error {
	if path == "" {
		return nil
	}
	data, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}
