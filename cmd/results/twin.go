package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/examples"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
)

// twinPage plays the demo's scenario in the simulator with the seeds of the demo page, whose live results it reads,
// and holds one against the other.
func twinPage(ctx context.Context, dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "demo.json"))
	if err != nil {
		return fmt.Errorf("write the demo page first: %w", err)
	}
	var live []quell.Result
	if err := json.Unmarshal(data, &live); err != nil {
		return err
	}
	sc, err := scenario.Parse("the demo's scenario", examples.NoisyNeighbour)
	if err != nil {
		return err
	}
	rows, err := sim.Train(ctx, sc, sim.Plan(), sc.Seed)
	if err != nil {
		return err
	}
	models, _, err := model.Fit(rows, model.FitOptions{Service: sc.Name, Metric: sc.Service.SLO.Metric, At: time.Now().UTC()})
	if err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# The simulator against emulated hosts\n\nWritten by `go run ./cmd/results twin` from the live results of [demo.md](demo.md): the same scenario file, the same seeds and so the same arrivals; neighbours' flows and models are each side's own. Medians over %d seeds. Aim: means and costs within 15%%.\n\n", len(demoSeeds))
	fmt.Fprintf(&b, "| run | mean, live | simulated | ratio | instance-seconds, live | simulated | ratio | violation, live | simulated |\n|---|---|---|---|---|---|---|---|---|\n")
	for i, run := range sc.Runs {
		var lived, simulated []quell.Result
		for s := range demoSeeds {
			lived = append(lived, live[s*len(sc.Runs)+i])
			result, err := sim.Run(ctx, sim.Options{Scenario: sc, Run: run, Models: models, Seed: lived[s].Seed})
			if err != nil {
				return err
			}
			simulated = append(simulated, result)
		}
		mean := func(r quell.Result) float64 { return *r.LatencyMS.Mean }
		cost := func(r quell.Result) float64 { return r.InstanceSeconds }
		violation := func(r quell.Result) float64 { return r.SLO.ViolationS }
		fmt.Fprintf(&b, "| %s | %.1f ms | %.1f ms | %.2f | %.0f | %.0f | %.2f | %.0f s | %.0f s |\n", experiment.Title(sc, run),
			median(lived, mean), median(simulated, mean), median(simulated, mean)/median(lived, mean),
			median(lived, cost), median(simulated, cost), median(simulated, cost)/median(lived, cost), median(lived, violation), median(simulated, violation))
	}
	return os.WriteFile(filepath.Join(dir, "twin.md"), b.Bytes(), 0o644)
}

func median(results []quell.Result, value func(quell.Result) float64) float64 {
	values := make([]float64, len(results))
	for i, r := range results {
		values[i] = value(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
