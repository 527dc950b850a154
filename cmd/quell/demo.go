package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/examples"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/emulated"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
	"github.com/quellhq/quell/train"
)

// demoOptions are the demo's flags.
type demoOptions struct {
	duration time.Duration
	policies []string
	scenario string
	seed     uint64
	json     string
	dir      string
	models   string

	stretched bool // a duration was given
}

func demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo [--duration 60s] [--policy prima] [--scenario FILE] [--seed N] [--json FILE]",
		Short: "Run today's balancing and PRIMA, which learns as it goes, side by side on a fleet with noisy neighbours; needs nothing else",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.stretched = cmd.Flags().Changed("duration")
			sc, err := o.load(cmd.Flags().Changed("seed"))
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), sc, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	durationFlag(f, &o.duration, "duration", 0,
		"length of the scenario, whose timeline is stretched or cut to it; default: as the scenario says")
	f.StringSliceVar(&o.policies, "policy", nil, "run only these policies; default: all runs of the scenario")
	f.StringVar(&o.scenario, "scenario", "", "scenario file; default: twelve machines with noisy neighbours that move")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the random arrivals and neighbours")
	f.StringVar(&o.json, "json", "", "write the results to this file")
	f.StringVar(&o.dir, "dir", "", "folder for models, journals and logs; default: a new one below the folder for temporary files")
	f.StringVar(&o.models, "models", "",
		"use exactly these models; default: policies learn them during the run, and those that cannot are trained first")
	return cmd
}

// load reads the scenario and adapts it to the flags.
func (o *demoOptions) load(seeded bool) (*scenario.Scenario, error) {
	name, data := "the demo's scenario", examples.Fleet
	if o.scenario != "" {
		var err error
		if data, err = os.ReadFile(o.scenario); err != nil {
			return nil, userErrorf("reading the scenario: %w", err)
		}
		name = o.scenario
	}
	sc, err := scenario.Parse(name, data)
	if err != nil {
		return nil, err
	}
	if err := experiment.Playable(sc); err != nil {
		return nil, scenario.InFile(name, data, err)
	}
	if err := choosePolicies(name, data, sc, o.policies); err != nil {
		return nil, err
	}
	if o.models == "" {
		sc.Runs = experiment.Learning(sc.Runs)
	}
	if seeded {
		sc.Seed = o.seed
	}
	if o.stretched {
		if o.duration < 5*time.Second {
			return nil, userErrorf("--duration %s: at least 5s", o.duration)
		}
		sc.Stretch(o.duration)
	}
	return sc, nil
}

// warmUp is how long the first load is offered before measuring starts, if the scenario does not set it.
const warmUp = 4 * time.Second

func (o *demoOptions) run(ctx context.Context, sc *scenario.Scenario, out io.Writer) (err error) {
	if err := o.check(sc); err != nil {
		return err
	}
	dir, err := o.folder()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && o.dir == "" {
			_ = os.RemoveAll(dir) // the folder is temporary
		}
	}()
	view := newDemoView(out, sc)
	view.opening()
	models, err := o.prepareModels(ctx, sc, dir, view)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	rig := &experiment.Emulated{Program: program, Dir: dir, Models: models, Scenario: sc}
	defer rig.Close()
	results, groups, err := playDemo(ctx, rig, view)
	if err != nil {
		return err
	}
	if models == "" {
		if models, err = keepLearned(ctx, sc, groups, dir); err != nil {
			return err
		}
	}
	if err := summarise(out, sc, results, groups, dir, models); err != nil {
		return err
	}
	return writeResults(o.json, results)
}

// playDemo starts the groups of all runs, plays the scenario, and stops the groups.
func playDemo(
	ctx context.Context, rig *experiment.Emulated, view *demoView,
) (results []scenario.Result, groups []*experiment.EmulatedGroup, err error) {
	sc := rig.Scenario
	groups, err = startGroups(ctx, rig, sc)
	defer func() { err = errors.Join(err, stopGroups(groups)) }()
	if err != nil {
		return nil, groups, err
	}
	view.playing()
	view.page(groups[len(groups)-1].Page())
	players := make([]experiment.Player, len(groups))
	for i, g := range groups {
		players[i] = experiment.Player{Run: sc.Runs[i], Group: g}
	}
	results, err = experiment.Play(ctx, experiment.Options{Scenario: sc, Players: players, WarmUp: cmp.Or(sc.WarmUp, warmUp),
		Watch: view.frame})
	view.done()
	return results, groups, err
}

// keepLearned writes what the last of the learning runs has learned, and returns the path of the file. It returns "" if no run learns, or
// if too little was measured.
func keepLearned(ctx context.Context, sc *scenario.Scenario, groups []*experiment.EmulatedGroup, dir string) (string, error) {
	for i, g := range slices.Backward(groups) {
		if sc.Runs[i].Models != scenario.Learn {
			continue
		}
		models, err := g.Learned(ctx, emulatedType, time.Now().UTC())
		if errors.Is(err, quell.ErrNoData) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, "models.json")
		return path, modelfile.Save(models, path)
	}
	return "", nil
}

// emulatedType is the type of instance of models that are made on emulated machines.
const emulatedType = "emulated"

// check finds mistakes before anything starts: models that a policy cannot use, and a results file that cannot be written.
func (o *demoOptions) check(sc *scenario.Scenario) error {
	if o.json != "" {
		f, err := os.OpenFile(o.json, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return userErrorf("--json: %w", err)
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	if o.models == "" {
		return nil
	}
	for _, run := range sc.Runs {
		service := sc.Service
		service.Policy = sc.PolicyOf(run)
		if _, err := loadEngine(service, o.models, false); err != nil {
			return err
		}
	}
	return nil
}

func (o *demoOptions) folder() (string, error) {
	if o.dir == "" {
		return os.MkdirTemp("", "quell-demo-")
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return "", err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return "", userErrorf("--dir %s is not empty: name a new folder", o.dir)
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// prepareModels returns the path of the user's models. If there are none and the policy of a run cannot learn them, it trains models on
// emulated hosts like those of the scenario. It returns "" if no run needs a file.
func (o *demoOptions) prepareModels(ctx context.Context, sc *scenario.Scenario, dir string, view *demoView) (string, error) {
	if o.models != "" {
		return filepath.Abs(o.models)
	}
	if !slices.ContainsFunc(sc.Runs, trained) {
		return "", nil
	}
	plan := train.Quick()
	store, err := train.OpenStore(filepath.Join(dir, "training.jsonl"), plan.Settings(), true)
	if err != nil {
		return "", err
	}
	defer store.Close()
	view.training()
	hosts := experiment.Training{Hosts: 8, Bandwidth: sc.Hosts[0].Network, Workload: sc.Workload, Budget: 0.02, Seed: sc.Seed}
	rows, err := hosts.Run(ctx, store.In(train.Options{Plan: plan, Resource: emulated.Shared, Progress: view.progress}))
	if err != nil {
		return "", err
	}
	models, report, err := model.Fit(rows, model.FitOptions{Service: sc.Service.Name, InstanceType: emulatedType,
		Metric: sc.Service.SLO.Metric, At: time.Now().UTC()})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "models.json")
	view.trained(report)
	return path, modelfile.Save(models, path)
}

// startGroups starts the groups of instances of all runs at once.
func startGroups(ctx context.Context, rig *experiment.Emulated, sc *scenario.Scenario) ([]*experiment.EmulatedGroup, error) {
	groups := make([]*experiment.EmulatedGroup, len(sc.Runs))
	errs := make([]error, len(sc.Runs))
	var all sync.WaitGroup
	for i, run := range sc.Runs {
		all.Go(func() { groups[i], errs[i] = rig.Start(ctx, i, run) })
	}
	all.Wait()
	return groups, errors.Join(errs...)
}

func stopGroups(groups []*experiment.EmulatedGroup) error {
	errs := make([]error, len(groups))
	var all sync.WaitGroup
	for i, g := range groups {
		if g != nil {
			all.Go(func() { errs[i] = g.Stop() })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}
