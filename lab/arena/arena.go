// Package arena simulates scenarios under every policy and every rival, with many seeds, on all processors at once. It reports side by
// side for how much of the time each run violated its objective, and what the run cost in instance-seconds. Results of finished runs are
// stored.
package arena

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
)

// Options of an arena. Scenarios and Dir are required.
type Options struct {
	Scenarios []*scenario.Scenario // Run does not change them
	Policies  []string             // played in addition to the scenarios' own runs; nil: all
	Seeds     int                  // number of seeds, counted up from the scenario's own; at least 1
	Dir       string               // folder of results.jsonl and models; if it has results already, the arena continues from them
	Jobs      int                  // runs at once; 0: one for each processor
	Program   string               // fingerprint of the program; stored results of another program are refused
	Progress  func(Progress)       // may be nil; never called twice at once
}

// mostSeeds limits the seeds, because every result is held in memory.
const mostSeeds = 10_000

// Progress reports how far an arena has come.
type Progress struct {
	Doing       string // the present step, in words
	Done, Known int    // runs; Known grows when a rival of fixed size is tried at further sizes
	Left        time.Duration
}

// Contest is one scenario with the results of its runs.
type Contest struct {
	Scenario   *scenario.Scenario
	Seeds      []uint64
	Candidates []Candidate
	Results    map[Candidate][]scenario.Result // one result for each seed, in the order of Seeds; failed runs are absent

	digest    string
	dir       string // folder of the trained models
	trainings []training
	sweeps    []sweep
	swept     map[Candidate]bool // candidates with a group size that widen added
}

// Run plays every run whose result is not in the folder yet. If a run fails, the others are played all the same; the errors are joined
// and returned with the results. If a call is interrupted, the same call again continues.
func Run(ctx context.Context, o Options) ([]*Contest, error) {
	contests, err := prepare(o)
	if err != nil {
		return nil, err
	}
	digests := map[string]string{}
	for _, c := range contests {
		digests[c.Scenario.Name] = c.digest
	}
	s, err := openStore(o.Dir, o.Program, digests)
	if err != nil {
		return nil, err
	}
	h := &pool{Options: o, store: s, contests: contests, failed: map[play]error{}}
	err = h.compete(ctx)
	return contests, errors.Join(err, s.close())
}

// prepare checks the options.
func prepare(o Options) ([]*Contest, error) {
	policies := o.Policies
	if policies == nil {
		policies = sim.Policies()
	}
	if err := checkPolicies(policies); err != nil {
		return nil, err
	}
	switch {
	case len(o.Scenarios) == 0:
		return nil, &quell.UserError{Err: errors.New("an arena needs a scenario")}
	case o.Seeds < 1 || o.Seeds > mostSeeds:
		return nil, &quell.UserError{Err: fmt.Errorf("seeds: must be between 1 and %d, is %d", mostSeeds, o.Seeds)}
	case o.Jobs < 0:
		return nil, &quell.UserError{Err: fmt.Errorf("jobs: must not be negative, is %d", o.Jobs)}
	}
	var contests []*Contest
	seen := map[string]bool{}
	for _, sc := range o.Scenarios {
		if err := sc.Validate(); err != nil {
			return nil, &quell.UserError{Err: err}
		}
		if sc.Services > 1 {
			return nil, &quell.UserError{Err: fmt.Errorf("scenario %s: services: the arena plays one service; use quell sim", sc.Name)}
		}
		if seen[sc.Name] {
			return nil, &quell.UserError{Err: fmt.Errorf("two scenarios have the name %s", sc.Name)}
		}
		seen[sc.Name] = true
		c := &Contest{
			Scenario: sc, Candidates: candidates(sc, policies), Results: map[Candidate][]scenario.Result{},
			dir: o.Dir, trainings: make([]training, o.Seeds), swept: map[Candidate]bool{},
		}
		for i := range o.Seeds {
			c.Seeds = append(c.Seeds, sc.Seed+uint64(i))
		}
		var err error
		if c.digest, err = digest(sc); err != nil {
			return nil, err
		}
		contests = append(contests, c)
	}
	return contests, nil
}

// compete first plays every candidate with the first seed; these results decide which other fixed sizes are tried. Then it plays the other
// seeds, and last groups that are fixed at PRIMA's mean size.
func (h *pool) compete(ctx context.Context) error {
	for _, c := range h.contests {
		for _, e := range c.Candidates {
			if e.Fixed > 0 && e.Fixed == c.Scenario.Instances.Fixed {
				c.sweeps = append(c.sweeps, sweep{e, true}, sweep{e, false})
			}
		}
	}
	round := h.firsts()
	for step := 0; len(round) > 0; step++ {
		if err := h.playAll(ctx, round); err != nil {
			return err
		}
		round = nil
		if step < sweepSteps {
			round = h.widen()
		}
	}
	h.prune()
	h.late = true
	if err := h.playAll(ctx, h.others()); err != nil {
		return err
	}
	if err := h.playAll(ctx, h.smaller()); err != nil {
		return err
	}
	return h.gather()
}

// firsts are the plays of all candidates with the first seed.
func (h *pool) firsts() (round []task) {
	for _, c := range h.contests {
		for _, e := range c.Candidates {
			round = append(round, task{c, e, c.Seeds[0]})
		}
	}
	return round
}

// others are all plays with later seeds, seed by seed.
func (h *pool) others() (round []task) {
	for i := 1; i < h.Seeds; i++ {
		for _, c := range h.contests {
			for _, e := range c.Candidates {
				round = append(round, task{c, e, c.Seeds[i]})
			}
		}
	}
	return round
}

// gather assigns the results to their contests and reports failures. If several runs of one candidate failed, it reports the first.
func (h *pool) gather() error {
	var errs []error
	told := map[string]bool{} // errors that are reported already: one failed training makes several runs fail
	for _, c := range h.contests {
		for _, e := range c.Candidates {
			var first error
			for _, seed := range c.Seeds {
				p := play{c.Scenario.Name, e, seed}
				if r, ok := h.store.result(p); ok {
					c.Results[e] = append(c.Results[e], r)
				}
				if first == nil {
					first = h.failed[p]
				}
			}
			if first != nil && !told[first.Error()] {
				told[first.Error()] = true
				errs = append(errs, first)
			}
		}
	}
	return errors.Join(errs...)
}

func (o *Options) jobs() int {
	if o.Jobs > 0 {
		return o.Jobs
	}
	return runtime.GOMAXPROCS(0)
}
