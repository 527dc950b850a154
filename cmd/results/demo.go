package main

import (
	"bytes"
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
)

// demoSeeds are played one after the other.
var demoSeeds = []string{"1", "2", "3", "4", "5"}

// demoPage plays the demo with several seeds and tabulates medians. It wants bin/quell.
func demoPage(ctx context.Context, dir string) error {
	sc, err := scenario.Parse("the demo's scenario", examples.NoisyNeighbour)
	if err != nil {
		return err
	}
	var all [][]quell.Result
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
	var b bytes.Buffer
	fmt.Fprintf(&b, "# The demo: PRIMA beside today's balancing\n\nWritten by `go run ./cmd/results demo` (after `make build`) on %s: `quell demo --seed N` for seeds %v, medians with the least and the most in brackets.\n\n", machine(), demoSeeds)
	fmt.Fprintf(&b, "| run | violation, s | instance-seconds | mean, ms | p99, ms | failed requests |\n|---|---|---|---|---|---|\n")
	for i, run := range sc.Runs {
		column := func(value func(quell.Result) float64) string { return spread(all, i, value) }
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", experiment.Title(sc, run),
			column(func(r quell.Result) float64 { return r.SLO.ViolationS }), column(func(r quell.Result) float64 { return r.InstanceSeconds }),
			column(func(r quell.Result) float64 { return *r.LatencyMS.Mean }), column(func(r quell.Result) float64 { return *r.LatencyMS.P99 }),
			column(func(r quell.Result) float64 { return float64(r.Errors) }))
	}
	fmt.Fprintf(&b, "\n| seed | of roundrobin's violation | of leastconn's | cost against leastconn x3 | against leastconn x4 |\n|---|---|---|---|---|\n")
	for s, results := range all {
		prima := results[len(results)-1]
		fmt.Fprintf(&b, "| %s | %.0f%% | %.0f%% | %+.0f%% | %+.0f%% |\n", demoSeeds[s], 100*prima.SLO.ViolationS/results[0].SLO.ViolationS, 100*prima.SLO.ViolationS/results[1].SLO.ViolationS,
			100*(prima.InstanceSeconds/results[1].InstanceSeconds-1), 100*(prima.InstanceSeconds/results[2].InstanceSeconds-1))
	}
	return os.WriteFile(filepath.Join(dir, "demo.md"), b.Bytes(), 0o644)
}

func playDemo(ctx context.Context, seed string) ([]quell.Result, error) {
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
	var results []quell.Result
	return results, json.Unmarshal(data, &results)
}

// spread is the median of a value of the i-th run over the seeds, with its bounds.
func spread(all [][]quell.Result, i int, value func(quell.Result) float64) string {
	var values []float64
	for _, results := range all {
		values = append(values, value(results[i]))
	}
	slices.Sort(values)
	return fmt.Sprintf("%.0f (%.0f to %.0f)", values[len(values)/2], values[0], values[len(values)-1])
}
