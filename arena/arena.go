// Package arena plays scenarios with every policy and every rival over many seeds, in the simulator, as many runs at
// once as there are processors, and reports violation and cost side by side. What has finished is kept.
package arena

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/scenario"
	"github.com/quellhq/quell/sim"
)

// Options of an arena. Scenarios and Dir are required.
type Options struct {
	Scenarios []*scenario.Scenario // not changed
	Policies  []string             // beside the scenarios' own runs; nil: every known one
	Seeds     int                  // from the scenario's seed on; at least 1
	Dir       string               // results.jsonl and models go there; one that is not empty is gone on with
	Jobs      int                  // runs at once; 0: as many as there are processors
	Progress  func(Progress)       // may be nil; never called twice at once
}

// Progress tells how far an arena is.
type Progress struct {
	Doing       string // in words
	Done, Known int    // runs; more become known as rivals of fixed size grow
	Left        time.Duration
}

// Contest is one scenario with its results.
type Contest struct {
	Scenario *scenario.Scenario
	Seeds    []uint64
	Entrants []Entrant
	Results  map[Entrant][]quell.Result // in order of seeds; those that failed are absent

	digest  string
	models  *model.Models
	ladders []Entrant // the largest size so far of each rival of fixed size that does not keep the threshold yet
}

// Run plays what is missing in the folder. Runs that fail do not stop the others: their errors come joined, beside what
// could be had. After an interruption the same call goes on.
func Run(ctx context.Context, o Options) ([]*Contest, error) {
	contests, err := prepare(o)
	if err != nil {
		return nil, err
	}
	digests := map[string]string{}
	for _, c := range contests {
		digests[c.Scenario.Name] = c.digest
	}
	s, err := openStore(o.Dir, digests)
	if err != nil {
		return nil, err
	}
	h := &hall{Options: o, store: s, contests: contests, failed: map[play]error{}}
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
	if o.Seeds < 1 || o.Jobs < 0 || len(o.Scenarios) == 0 {
		return nil, &quell.UserError{Err: errors.New("an arena needs a scenario and at least one seed, and cannot do fewer than one run at a time")}
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
		c := &Contest{Scenario: sc, Entrants: entrants(sc, policies), Results: map[Entrant][]quell.Result{}}
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

// compete plays everybody's first seed, which also finds the sizes worth trying, and then the others.
func (h *hall) compete(ctx context.Context) error {
	for _, c := range h.contests {
		if err := h.train(ctx, c); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			h.untrained = append(h.untrained, err)
			c.Entrants = slices.DeleteFunc(c.Entrants, func(e Entrant) bool { return !e.untrained() })
		}
		for _, e := range c.Entrants {
			if e.Policy == static && e.Fixed > 0 && e.Fixed == c.Scenario.Instances.Fixed {
				c.ladders = append(c.ladders, e)
			}
		}
	}
	round := h.firsts()
	for range ladderSteps {
		if err := h.playAll(ctx, round); err != nil {
			return err
		}
		if round = h.climb(); len(round) == 0 {
			break
		}
	}
	h.late = true
	if err := h.playAll(ctx, h.others()); err != nil {
		return err
	}
	return h.gather()
}

// firsts are the plays of all entrants with the first seed.
func (h *hall) firsts() (round []task) {
	for _, c := range h.contests {
		for _, e := range c.Entrants {
			round = append(round, task{c, e, c.Seeds[0]})
		}
	}
	return round
}

// climb makes the rivals that did not keep the threshold larger, and returns their plays with the first seed.
func (h *hall) climb() (round []task) {
	for _, c := range h.contests {
		var higher []Entrant
		for _, e := range c.ladders {
			r, ok := h.store.result(play{c.Scenario.Name, e, c.Seeds[0]})
			if !ok || r.SLO.ViolationShare <= kept {
				continue
			}
			if e, ok = e.next(c.Scenario); !ok {
				continue
			}
			higher = append(higher, e)
			if !slices.Contains(c.Entrants, e) {
				c.Entrants = append(c.Entrants, e)
				round = append(round, task{c, e, c.Seeds[0]})
			}
		}
		c.ladders = higher
	}
	return round
}

// others are all plays with later seeds, seed by seed.
func (h *hall) others() (round []task) {
	for i := 1; i < h.Seeds; i++ {
		for _, c := range h.contests {
			for _, e := range c.Entrants {
				round = append(round, task{c, e, c.Seeds[i]})
			}
		}
	}
	return round
}

// gather hands the results to their contests, and reports what failed: of each entrant the first failure.
func (h *hall) gather() error {
	errs := h.untrained
	for _, c := range h.contests {
		for _, e := range c.Entrants {
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
			if first != nil {
				errs = append(errs, first)
			}
		}
	}
	return errors.Join(errs...)
}

// train prepares the scenario's models, unless nobody who plays needs them or an earlier call left them. Without models
// those who need them do not play.
func (h *hall) train(ctx context.Context, c *Contest) error {
	if !slices.ContainsFunc(c.Entrants, func(e Entrant) bool { return !e.untrained() }) {
		return nil
	}
	path := filepath.Join(h.Dir, fmt.Sprintf("%s-%s.models.json", c.Scenario.Name, c.digest))
	if models, err := model.Load(path); err == nil {
		c.models = models
		return nil
	}
	h.show("training for " + c.Scenario.Name)
	rows, err := sim.Train(ctx, c.Scenario, sim.Plan(), c.Scenario.Seed)
	if err != nil {
		return fmt.Errorf("training for %s: %w", c.Scenario.Name, err)
	}
	c.models, _, err = model.Fit(rows, model.FitOptions{Service: c.Scenario.Service.Name, InstanceType: "simulated", Metric: c.Scenario.Service.SLO.Metric})
	if err != nil {
		return fmt.Errorf("training for %s: %w", c.Scenario.Name, err)
	}
	return c.models.Save(path)
}

func (o *Options) jobs() int {
	if o.Jobs > 0 {
		return o.Jobs
	}
	return runtime.GOMAXPROCS(0)
}
