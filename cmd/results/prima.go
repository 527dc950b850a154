package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell/examples"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// labDir keeps models and records of the lab between calls; what is there is not measured again.
var labDir = filepath.Join(".cache", "lab")

// labJob is what one lab plays at a time: a part, or one run of a part with several seeds.
type labJob struct {
	part  labPart
	run   int    // number of the run; 0: all
	seed  uint64 // seed of the play; 1: the scenario's own
	takes time.Duration
}

// jobs are the jobs that play a part.
func (p labPart) jobs() ([]labJob, error) {
	sc, err := p.load()
	if err != nil {
		return nil, err
	}
	var jobs []labJob
	for seed := range max(1, p.seeds) {
		if p.seeds == 0 || p.command != "" { // all runs of the scenario at once, or what the command plays
			jobs = append(jobs, labJob{part: p, seed: seed + 1, takes: sc.Duration * time.Duration(len(sc.Runs))})
			continue
		}
		for i := range sc.Runs {
			jobs = append(jobs, labJob{p, i + 1, seed + 1, sc.Duration})
		}
	}
	return jobs, nil
}

// labPage is a page of experiments on kernel machines, which need root.
type labPage struct {
	name  string // name of the file in docs/results, and of the folder of its plots
	labs  int    // how many experiments are played at once, each in a lab of its own
	parts []labPart
}

// The experiments on links are played one at a time: on two cores, three at once tripled the response times without any neighbour.
func primaLab() labPage { return labPage{name: "prima", labs: 1, parts: primaParts()} }

// play plays those of the page's experiments that have not been played, and writes the page.
func (p labPage) play(ctx context.Context, dir string) error {
	return errors.Join(playParts(ctx, p.parts, p.labs, false), p.write(dir))
}

// playPart plays the part of that name again and writes the page. If the name is page, it only writes the page.
func (p labPage) playPart(ctx context.Context, dir, name string) error {
	if name == "page" {
		return p.write(dir)
	}
	i := slices.IndexFunc(p.parts, func(part labPart) bool { return part.name == name })
	if i < 0 {
		return fmt.Errorf("there is no part %q of the %s page", name, p.name)
	}
	return errors.Join(playParts(ctx, p.parts[i:i+1], p.labs, true), p.write(dir))
}

// playParts plays the parts whose records are incomplete or, if again is set, all parts, in atOnce labs at once. First it plays,
// one after the other, the first run of each part that trains, because the other runs use its models.
func playParts(ctx context.Context, parts []labPart, atOnce int, again bool) error {
	var jobs []labJob
	for _, p := range parts {
		switch p.command {
		case "replay":
			continue
		case "benchmark":
			if err := p.benchmark(ctx, again); err != nil {
				return err
			}
			continue
		}
		own, err := p.jobs()
		if err != nil {
			return err
		}
		if !p.trains {
			jobs = append(jobs, own...)
			continue
		}
		if err := own[0].play(ctx, 0, again); err != nil {
			return err
		}
		jobs = append(jobs, own[1:]...)
	}
	slices.SortStableFunc(jobs, func(a, b labJob) int { return cmp.Compare(b.takes, a.takes) }) // longest first: no lab ends late
	queue := make(chan labJob)
	var workers sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for n := range atOnce {
		workers.Go(func() {
			for j := range queue {
				if err := j.play(ctx, n, again); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	workers.Wait()
	return errors.Join(errs...)
}

// play plays a job in the lab of that number. It keeps runs that have a record, unless again is set.
func (j labJob) play(ctx context.Context, lab int, again bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	args := []string{"lab", "run", j.part.scenario(), "--out", labDir, "--prefix", fmt.Sprintf("results%d", lab+1)}
	if !again {
		args = append(args, "--resume")
	}
	if j.part.command != "" {
		args[1] = j.part.command
	}
	if j.run > 0 {
		args = append(args, "--run", fmt.Sprint(j.run))
	}
	if j.seed > 1 {
		args = append(args, "--seed", fmt.Sprint(j.seed))
	}
	args = append(args, j.part.args...)
	for _, what := range slices.Sorted(maps.Keys(j.part.uses)) {
		args = append(args, "--use", fmt.Sprintf("%s=%g", what, j.part.uses[what]))
	}
	cmd := exec.CommandContext(ctx, filepath.Join("bin", "quell"), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("quell %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// labPart is one experiment of the page.
type labPart struct {
	name    string // name of the scenario
	title   string
	command string             // command of quell lab, instead of run; replay: none, reads what other parts measured; benchmark: go test
	of      string             // the scenario, if its name is not the part's
	trains  bool               // whether it is the first part of its workload, which trains the models
	piece   string             // the name under which it is measured, if that is not its own
	seeds   uint64             // number of seeds for each run; 0: one
	alone   int                // labs at the same time if only this part is played; 0: those of the page
	args    []string           // more arguments of the command
	uses    map[string]float64 // what neighbours use instead of what the scenario says, by resource or program
	// sum computes the part's figures from the records; nil: each run has figures of its own.
	sum func(f *partFigures, plots string, sc *scenario.Scenario, plays [][]*experiment.Record) error
}

func (p labPart) scenario() string {
	if p.of != "" {
		return p.of
	}
	return p.name
}

func (p labPart) load() (*scenario.Scenario, error) {
	return scenario.Parse(p.scenario(), examples.Lab()[p.scenario()])
}

// played returns the scenario, and the records of its runs by seed.
func (p labPart) played() (*scenario.Scenario, [][]*experiment.Record, error) {
	sc, err := p.load()
	if err != nil {
		return nil, nil, err
	}
	plays, err := p.records(sc)
	return sc, plays, err
}

// seedDir is where the lab keeps what it measured with a seed, counted from 0.
func seedDir(scenario string, seed uint64) string {
	dir := filepath.Join(labDir, scenario)
	if seed > 0 {
		dir += fmt.Sprintf("-seed%d", seed+1)
	}
	return dir
}

// records are the records of a scenario's runs, by seed; nil for a run that has not been played.
func (p labPart) records(sc *scenario.Scenario) ([][]*experiment.Record, error) {
	plays := make([][]*experiment.Record, max(1, p.seeds))
	for n := range plays {
		dir := seedDir(sc.Name, uint64(n))
		plays[n] = make([]*experiment.Record, len(sc.Runs))
		for i, run := range sc.Runs {
			r, err := experiment.LoadRecord(experiment.RecordPath(dir, i, run))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			plays[n][i] = r
		}
	}
	return plays, nil
}
