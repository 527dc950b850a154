package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

const (
	// learnSeeds is how many seeds each scenario is played with.
	learnSeeds = 15
	// learnHour is for how long models have been learned in the runs "after an hour".
	learnHour = time.Hour
	// mostPassed bounds the requests of that hour. With more requests per second, less time is simulated.
	mostPassed = 150_000
	// leastPaired is the number of scenarios of the page in which learning should be as good as training.
	leastPaired = 14
	// dearer is how much more than training learning may cost.
	dearer = 1.02
)

// learnScenarios are the scenarios of the arena.
var learnScenarios = []string{
	"dial-combined", "dial-single", "diurnal-day", "envoy-slow", "everything-at-once", "flash-crowd", "ice-periodic", "linkerd-stuck",
	"noisy-neighbour", "prequal-antagonists", "prima-ec2", "prima-leastconn", "prima-lsf", "prima-roundrobin", "prima-scale", "twin",
}

// learnPage compares PRIMA that learns its models in place with PRIMA that was trained.
func learnPage(ctx context.Context, dir string) error {
	return learnPagePart(ctx, dir, learnScenarios...)
}

// learnPagePart plays some scenarios again. With "page" it plays none, with "live" those runs of the lab that have no records yet. The
// figures of the others are read from learn.json.
func learnPagePart(ctx context.Context, dir string, names ...string) error {
	var d learnData
	path := filepath.Join(dir, "learn.json")
	if _, err := readJSON(path, &d); err != nil {
		return err
	}
	for _, name := range names {
		switch name {
		case "page":
			continue
		case "live":
			if err := playLearnLive(ctx); err != nil {
				return err
			}
			continue
		}
		c, err := playLearning(ctx, name, learnSeeds, simulatedModels)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		d.put(c)
		if err := writeJSON(path, d); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "learn: %s done\n", name)
	}
	f := newLearnFigures(d)
	var err error
	if f.Live, err = learnLab().figures(here(), dir); err != nil {
		return err
	}
	return writePage(dir, "learn", f)
}

// learnData has all measured figures, as they are in learn.json.
type learnData struct {
	Cases []learnCase `json:"cases"` // in order of their names
}

// put adds the figures of a scenario, or replaces them.
func (d *learnData) put(c learnCase) {
	d.Cases = slices.DeleteFunc(d.Cases, func(old learnCase) bool { return old.Scenario == c.Scenario })
	d.Cases = append(d.Cases, c)
	slices.SortFunc(d.Cases, func(a, b learnCase) int { return strings.Compare(a.Scenario, b.Scenario) })
}

// learnCase has the figures of one scenario.
type learnCase struct {
	Scenario    string         `json:"scenario"`
	DurationS   float64        `json:"duration_s"`
	ThresholdMS float64        `json:"threshold_ms"`
	LearnedS    float64        `json:"learned_s"` // for how long was learned before the runs Later
	Trained     learnRun       `json:"trained"`
	Cold        learnRun       `json:"cold"`     // nothing was known
	Later       learnRun       `json:"later"`    // with what was learned before
	Coverage    learnedMargins `json:"coverage"` // while that was learned
}

// learnRun has the figures of a run, seed by seed.
type learnRun struct {
	ViolationS []float64 `json:"violation_s"`
	Cost       []float64 `json:"instance_seconds"`
}

func (r *learnRun) set(i int, result scenario.Result) {
	r.ViolationS[i], r.Cost[i] = result.SLO.ViolationS, result.InstanceSeconds
}

// learnedMargins is how well the margins of the predictions covered what was measured.
type learnedMargins struct {
	Windows float64 `json:"windows"`
	Share   float64 `json:"share"`
	WidthMS float64 `json:"width_ms"`
}

// playLearning plays a scenario with trained models, from a cold start, and after an hour of learning, with each seed. Each seed has a
// training of its own. All seeds go on from the same hour.
func playLearning(
	ctx context.Context, name string, seeds int, train func(context.Context, *scenario.Scenario, uint64) (*model.Models, error),
) (c learnCase, err error) {
	sc, err := exampleScenario(name)
	if err != nil {
		return c, err
	}
	blank := func() learnRun { return learnRun{make([]float64, seeds), make([]float64, seeds)} }
	c = learnCase{Scenario: name, DurationS: sc.Duration.Seconds(), ThresholdMS: sc.Service.SLO.ThresholdMS(), Trained: blank(), Cold: blank(),
		Later: blank()}
	err = playAll(seeds, func(i int) error {
		seed := uint64(i) + 1
		models, err := train(ctx, sc, seed)
		if err != nil {
			return err
		}
		run := learningRun
		run.Models = ""
		r, err := sim.Run(ctx, sim.Options{Scenario: sc, Run: run, Models: models, Seed: seed})
		c.Trained.set(i, r)
		return err
	})
	if err != nil {
		return c, err
	}
	memory, err := c.learn(ctx, sc)
	if err != nil {
		return c, err
	}
	return c, playAll(seeds, func(i int) error {
		seed := uint64(i) + 1
		cold, err := sim.Run(ctx, sim.Options{Scenario: sc, Run: learningRun, Seed: seed})
		if err != nil {
			return err
		}
		c.Cold.set(i, cold)
		later, err := sim.Run(ctx, sim.Options{Scenario: sc, Run: learningRun, Seed: seed, Begin: memory})
		c.Later.set(i, later)
		return err
	})
}

// learningRun is PRIMA that learns in place, with the law of single instances, as the trained models have it: so both are compared by how
// well they know the same. docs/results/group.md compares that law with the group's.
var learningRun = scenario.Run{Policy: mustPool("0"), Scheduling: quell.LeastConn, Models: scenario.Learn}

// learn plays the scenario again and again for an hour, and returns what is known then.
func (c *learnCase) learn(ctx context.Context, sc *scenario.Scenario) (memory policy.State, err error) {
	end := func(st policy.State) {
		memory = policy.State{Learned: st.Learned, Trust: policy.Trust{Level: st.Trust.Level}}
	}
	learned, requests := time.Duration(0), int64(0)
	for seed := uint64(1001); learned < learnHour && requests < mostPassed; seed++ {
		r, err := sim.Run(ctx, sim.Options{Scenario: sc, Run: learningRun, Seed: seed, Begin: memory, End: end})
		if err != nil {
			return memory, err
		}
		learned, requests = learned+sc.Duration, requests+r.Requests
	}
	c.LearnedS, c.Coverage = learned.Seconds(), learnedMargins(memory.Learned.Coverage())
	return memory, nil
}

// learnFigures are the figures of the page.
type learnFigures struct {
	Seeds, Goal, Scenarios  int
	Rows                    []learnRow
	ColdAsGood, LaterAsGood int
	Covered                 int // scenarios in which coverage and width are as they should be
	Live                    labFigures
}

// learnRow is a scenario's row: means over seeds.
type learnRow struct {
	Scenario                  string
	LearnedMinutes            float64
	Trained, Cold, Later      learnMeans
	ColdAgainst, LaterAgainst learnDifference
	Margins                   learnedMargins
	Width                     float64 // of the threshold
	Covers                    bool
}

// learnMeans are the means of a run.
type learnMeans struct{ ViolationS, Cost estimate }

// learnDifference compares learned models with trained ones, seed by seed.
type learnDifference struct {
	ViolationS estimate // learned less trained
	Cost       float64  // learned over trained
	AsGood     bool
}

func newLearnFigures(d learnData) learnFigures {
	f := learnFigures{Goal: leastPaired, Scenarios: len(d.Cases)}
	for _, c := range d.Cases {
		row := learnRow{Scenario: c.Scenario, LearnedMinutes: c.LearnedS / 60,
			Trained: c.Trained.means(), Cold: c.Cold.means(), Later: c.Later.means(),
			ColdAgainst: c.Cold.against(c.Trained), LaterAgainst: c.Later.against(c.Trained)}
		row.Margins = c.Coverage
		row.Width = row.Margins.WidthMS / c.ThresholdMS
		row.Covers = row.Margins.Windows >= 1000 && row.Margins.Share >= 0.87 && row.Margins.Share <= 0.93 && row.Width <= 0.5
		f.Seeds = len(c.Trained.Cost)
		f.ColdAsGood += count(row.ColdAgainst.AsGood)
		f.LaterAsGood += count(row.LaterAgainst.AsGood)
		f.Covered += count(row.Covers)
		f.Rows = append(f.Rows, row)
	}
	return f
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (r learnRun) means() learnMeans { return learnMeans{estimateOf(r.ViolationS), estimateOf(r.Cost)} }

// against compares a run with the trained one. It is as good if its violation is not above that of the trained one beyond the 95% interval
// of the differences, and its cost is at most 2% higher.
func (r learnRun) against(trained learnRun) (d learnDifference) {
	more := make([]float64, len(r.Cost))
	var cost, base float64
	for i := range more {
		more[i] = r.ViolationS[i] - trained.ViolationS[i]
		cost, base = cost+r.Cost[i], base+trained.Cost[i]
	}
	d.ViolationS, d.Cost = estimateOf(more), cost/base
	d.AsGood = d.ViolationS.Mean-d.ViolationS.Half <= 0 && d.Cost <= dearer
	return d
}
