package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
)

// twinPage plays the demo's scenario in the simulator with the seeds of the demo page, reads that page's live results, and compares
// simulated and live results.
func twinPage(ctx context.Context, dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "demo.json"))
	if err != nil {
		return fmt.Errorf("write the demo page first: %w", err)
	}
	var live []scenario.Result
	if err := json.Unmarshal(data, &live); err != nil {
		return err
	}
	sc, err := demoScenario()
	if err != nil {
		return err
	}
	f := twinFigures{Seeds: len(demoSeeds)}
	for i, run := range sc.Runs {
		var lived, simulated []scenario.Result
		for s := range demoSeeds {
			lived = append(lived, live[s*len(sc.Runs)+i])
			result, err := sim.Run(ctx, sim.Options{Scenario: sc, Run: run, Seed: lived[s].Seed})
			if err != nil {
				return err
			}
			simulated = append(simulated, result)
		}
		f.Runs = append(f.Runs, newTwinRun(experiment.Title(sc, run), lived, simulated))
	}
	return writePage(dir, "twin", f)
}

type twinFigures struct {
	Seeds int
	Runs  []twinRun
}

// twinRun is one run, live and simulated; its values are medians over the seeds.
type twinRun struct {
	Title                 string
	Mean, Cost, Violation twins // milliseconds, instance-seconds, seconds
}

type twins struct{ Live, Simulated float64 }

// Ratio is the simulated value divided by the live one.
func (t twins) Ratio() float64 { return t.Simulated / t.Live }

func newTwinRun(title string, live, simulated []scenario.Result) twinRun {
	of := func(value func(scenario.Result) float64) twins {
		return twins{median(live, value), median(simulated, value)}
	}
	mean := func(r scenario.Result) float64 { return *r.LatencyMS.Mean }
	return twinRun{Title: title, Mean: of(mean), Cost: of(costOf), Violation: of(violationOf)}
}

func median(results []scenario.Result, value func(scenario.Result) float64) float64 {
	values := make([]float64, len(results))
	for i, r := range results {
		values[i] = value(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
