package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/quellhq/quell/examples"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// demoSeeds are the seeds with which the demo is played, one after the other.
var demoSeeds = []string{"1", "2", "3", "4", "5"}

// demoPage plays the demo with several seeds and tabulates medians. It needs bin/quell.
func demoPage(ctx context.Context, dir string) error {
	sc, err := scenario.Parse("the demo's scenario", examples.NoisyNeighbour)
	if err != nil {
		return err
	}
	sc.Runs = experiment.Learning(sc.Runs)
	var all [][]scenario.Result
	for _, seed := range demoSeeds {
		results, err := playDemo(ctx, seed)
		if err != nil {
			return err
		}
		all = append(all, results)
	}
	if err := writeJSON(filepath.Join(dir, "demo.json"), slices.Concat(all...)); err != nil {
		return err
	}
	return writePage(dir, "demo", demoFigures(here(), sc, all))
}

// demoPageFigures are, for each run, the median, least and largest value over the seeds, and for each seed PRIMA compared with its
// rivals.
type demoPageFigures struct {
	place
	Seeds  []string
	Runs   []demoRun
	Rivals []demoRivals
}

type demoRun struct{ Title, Violation, Cost, Mean, P99, Failed string }

// demoRivals are PRIMA's violation in percent of its rivals', and its cost as a share of the cost of groups of two fixed sizes
// under least connections.
type demoRivals struct {
	Seed                      string
	OfRoundRobin, OfLeastConn float64
	CostOfThree, CostOfFour   float64
}

func demoFigures(at place, sc *scenario.Scenario, all [][]scenario.Result) demoPageFigures {
	f := demoPageFigures{place: at, Seeds: demoSeeds}
	for i, run := range sc.Runs {
		column := func(value func(scenario.Result) float64) string { return spread(all, i, value) }
		f.Runs = append(f.Runs, demoRun{
			Title:     experiment.Title(sc, run),
			Violation: column(violationOf),
			Cost:      column(costOf),
			Mean:      column(func(r scenario.Result) float64 { return *r.LatencyMS.Mean }),
			P99:       column(func(r scenario.Result) float64 { return *r.LatencyMS.P99 }),
			Failed:    column(func(r scenario.Result) float64 { return float64(r.Errors) }),
		})
	}
	for s, results := range all {
		prima := results[len(results)-1]
		f.Rivals = append(f.Rivals, demoRivals{
			Seed:         demoSeeds[s],
			OfRoundRobin: 100 * prima.SLO.ViolationS / results[0].SLO.ViolationS,
			OfLeastConn:  100 * prima.SLO.ViolationS / results[1].SLO.ViolationS,
			CostOfThree:  prima.InstanceSeconds / results[1].InstanceSeconds,
			CostOfFour:   prima.InstanceSeconds / results[2].InstanceSeconds,
		})
	}
	return f
}

func playDemo(ctx context.Context, seed string) ([]scenario.Result, error) {
	dir, err := os.MkdirTemp("", "quell-results-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "results.json")
	cmd := exec.CommandContext(ctx, filepath.Join("bin", "quell"), "demo", "--seed", seed, "--dir", filepath.Join(dir, "demo"), "--json", file)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("quell demo --seed %s: %w", seed, err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var results []scenario.Result
	return results, json.Unmarshal(data, &results)
}

// spread is the median over the seeds of a value of the i-th run, with the least and the largest value.
func spread(all [][]scenario.Result, i int, value func(scenario.Result) float64) string {
	var values []float64
	for _, results := range all {
		values = append(values, value(results[i]))
	}
	slices.Sort(values)
	return fmt.Sprintf("%.0f (%.0f to %.0f)", values[len(values)/2], values[0], values[len(values)-1])
}
