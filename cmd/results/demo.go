package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/examples"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	hpa "github.com/quellhq/quell/policy/rivals"
	"github.com/quellhq/quell/policy/table"
)

// demoSeeds are the seeds with which the demo is played, one after the other.
var demoSeeds = []string{"1", "2", "3", "4", "5"}

// demoPage plays the demo with several seeds and writes the page. It needs bin/quell.
func demoPage(ctx context.Context, dir string) error {
	var all []scenario.Result
	for _, seed := range demoSeeds {
		results, err := playDemo(ctx, seed)
		if err != nil {
			return err
		}
		all = append(all, results...)
	}
	if err := writeJSON(filepath.Join(dir, "demo.json"), all); err != nil {
		return err
	}
	return demoPagePart(ctx, dir, "page")
}

// demoPagePart writes the page from what was played, beside every size and target in the simulator.
func demoPagePart(ctx context.Context, dir, part string) error {
	if part != "page" {
		return fmt.Errorf("the demo has no part %s", part)
	}
	sc, err := demoScenario()
	if err != nil {
		return err
	}
	var all []scenario.Result
	if found, err := readJSON(filepath.Join(dir, "demo.json"), &all); err != nil || !found {
		return fmt.Errorf("demo.json: found %t, %w", found, err)
	}
	f := demoFigures(here(), sc, slices.Collect(slices.Chunk(all, len(sc.Runs))))
	if f.Simulated, err = simulateDemo(ctx, sc); err != nil {
		return err
	}
	return writePage(dir, "demo", f)
}

// simulateDemo plays every fixed size from the mean size of PRIMA on, and several targets of the autoscaler, with the demo's seeds.
func simulateDemo(ctx context.Context, sc *scenario.Scenario) ([]demoRun, error) {
	simulated := *sc
	simulated.Runs = nil
	for size := 7; size <= sc.Service.Group.Max; size++ {
		simulated.Runs = append(simulated.Runs,
			scenario.Run{Policy: quell.Policy{Name: table.All.Plain()}, Scheduling: quell.LeastConn, Fixed: size})
	}
	for _, target := range []float64{0.4, 0.5, 0.6, 0.7} {
		simulated.Runs = append(simulated.Runs, scenario.Run{Scheduling: quell.LeastConn,
			Policy: quell.Policy{Name: "hpa", Settings: hpa.HPASettings{Resource: quell.Network, Utilization: target}}})
	}
	simulated.Runs = append(simulated.Runs, sc.Runs[len(sc.Runs)-1])
	all := make([][]scenario.Result, len(demoSeeds))
	for s := range demoSeeds {
		for _, run := range simulated.Runs {
			r, err := sim.Run(ctx, sim.Options{Scenario: &simulated, Run: run, Seed: uint64(s + 1)})
			if err != nil {
				return nil, err
			}
			all[s] = append(all[s], r)
		}
	}
	return demoRuns(&simulated, all), nil
}

// demoScenario is what the demo plays.
func demoScenario() (*scenario.Scenario, error) {
	sc, err := scenario.Parse("the demo's scenario", examples.Fleet)
	if err != nil {
		return nil, err
	}
	sc.Runs = experiment.Learning(sc.Runs)
	return sc, nil
}

// demoPageFigures are, for each run, the median, least and largest value over the seeds, and what was missed with each seed.
type demoPageFigures struct {
	place
	Seeds  []string
	Runs   []demoRun
	Played []demoPlay
	Late   [2]float64 // least and most requests that one run's generator sent late, in percent

	Simulated []demoRun
}

type demoRun struct{ Title, Machines, Violation, Over, Mean, P99, Failed string }

// demoPlay is, for one seed, the machines and the violation of each run.
type demoPlay struct {
	Seed  string
	Cells []string
}

func demoFigures(at place, sc *scenario.Scenario, all [][]scenario.Result) demoPageFigures {
	f := demoPageFigures{place: at, Seeds: demoSeeds[:len(all)], Runs: demoRuns(sc, all), Late: demoLate(all)}
	for s, results := range all {
		play := demoPlay{Seed: demoSeeds[s]}
		for _, r := range results {
			play.Cells = append(play.Cells, fmt.Sprintf("%.0f s with %.1f", r.SLO.ViolationS, r.MeanInstances))
		}
		f.Played = append(f.Played, play)
	}
	return f
}

// demoLate is the least and the most of a run's requests that were sent late, in percent, as the generator warns of them.
func demoLate(all [][]scenario.Result) [2]float64 {
	var shares []float64
	for _, r := range slices.Concat(all...) {
		var late, requests float64
		for _, warning := range r.Warnings {
			if n, _ := fmt.Sscanf(warning, "the generator fell behind: %f of %f", &late, &requests); n == 2 {
				break
			}
		}
		shares = append(shares, 100*late/max(1, requests))
	}
	return [2]float64{slices.Min(shares), slices.Max(shares)}
}

func demoRuns(sc *scenario.Scenario, all [][]scenario.Result) (runs []demoRun) {
	for i, run := range sc.Runs {
		column := func(decimals int, value func(scenario.Result) float64) string { return spread(all, i, decimals, value) }
		runs = append(runs, demoRun{
			Title:     experiment.Title(sc, run),
			Machines:  column(1, func(r scenario.Result) float64 { return r.MeanInstances }),
			Violation: column(0, violationOf),
			Over:      column(2, func(r scenario.Result) float64 { return 100 * float64(r.SLO.RequestsOver) / float64(r.Requests) }),
			Mean:      column(0, func(r scenario.Result) float64 { return *r.LatencyMS.Mean }),
			P99:       column(0, func(r scenario.Result) float64 { return *r.LatencyMS.P99 }),
			Failed:    column(0, func(r scenario.Result) float64 { return float64(r.Errors) }),
		})
	}
	return runs
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
func spread(all [][]scenario.Result, i, decimals int, value func(scenario.Result) float64) string {
	var values []float64
	for _, results := range all {
		values = append(values, value(results[i]))
	}
	slices.Sort(values)
	return fmt.Sprintf("%.*f (%.*f to %.*f)", decimals, values[len(values)/2], decimals, values[0], decimals, values[len(values)-1])
}
