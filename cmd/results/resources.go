package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/train"
)

// resourcesLab compares PRIMA with its rivals under neighbours on processors and on disks, and shows which probes feel which neighbour.
func resourcesLab() labPage {
	// The study of cross-talk trains nothing, but it is played alone, too: it counts false alarms.
	return labPage{name: "resources", labs: 1, parts: []labPart{
		{name: "crosstalk", command: "crosstalk", trains: true, title: "Which probes feel which neighbour"},
		{name: "changing-cpu", trains: true, seeds: 3, title: "A neighbour on the processor that moves from host to host", sum: compare},
		{name: "changing-disk", trains: true, seeds: 3, title: "A neighbour on the disk that moves from host to host", sum: compare},
		{name: "changing-cpu-p90", seeds: 3, title: "Neighbours on the processor, p90", sum: compare},
		{name: "changing-disk-p90", seeds: 3, title: "Neighbours on the disk, p90", sum: compare},
		{name: "own-network", title: "Work of its own: half of the link", sum: sumOwn},
		{name: "own-cpu", title: "Work of its own: half of the processor", sum: sumOwn},
		{name: "own-disk", title: "Work of its own: half of the disk", sum: sumOwn},
		{name: "probe-costs", command: "benchmark", title: "What the probes cost"},
	}}
}

// probeCosts are the benchmarks of what probes cost.
var probeCosts = []string{"-bench", "Probes|Loaded", "-benchtime", "10x", "./probe/local"}

func (p labPart) benchmarkPath() string { return filepath.Join(labDir, p.name, "benchmark.txt") }

// benchmark measures what probes cost, unless that is known. If again is set, it measures again.
func (p labPart) benchmark(ctx context.Context, again bool) error {
	path := p.benchmarkPath()
	if _, err := os.Stat(path); err == nil && !again {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	out, err := benchmark(ctx, probeCosts)
	if err != nil {
		return err
	}
	for _, period := range []time.Duration{time.Second, 10 * time.Second} {
		agent, err := agentCost(ctx, period, "auto")
		if err != nil {
			return err
		}
		out = fmt.Appendf(out, "A whole agent at T=%v, watched for %v: %.2f%% of a core, %s of anonymous memory\n",
			period, agent.Watched, 100*agent.Core, agent.Memory)
	}
	return os.WriteFile(path, out, 0o644)
}

// benchmarked reads what the benchmarks printed.
func (p labPart) benchmarked(f *partFigures) error {
	out, err := os.ReadFile(p.benchmarkPath())
	if errors.Is(err, fs.ErrNotExist) {
		f.Missing = p.name
		return nil
	}
	f.Benchmarks = string(out)
	return err
}

// crosstalkFigures are the figures of a study of cross-talk.
type crosstalkFigures struct {
	train.Crosstalk
	Resources []quell.Resource // of the probes
}

// crosstalk reads what the lab measured.
func (p labPart) crosstalk(f *partFigures) error {
	var c crosstalkFigures
	ok, err := p.measured("crosstalk.json", &c.Crosstalk)
	if err != nil {
		return err
	}
	if !ok {
		f.Missing = p.name
		return nil
	}
	for _, r := range quell.Resources {
		if _, probed := c.Isolation[r]; probed {
			c.Resources = append(c.Resources, r)
		}
	}
	f.Crosstalk = &c
	return nil
}

// Felt is the share of a cell's periods in which a kind of probe was significantly slower, and by how much the mean probe was slower.
// It is bold if the neighbour uses the resource of the probe.
func (c crosstalkFigures) Felt(cell train.CrosstalkCell, r quell.Resource) string {
	f := cell.Felt[r]
	text := fmt.Sprintf("%s, x%.1f", percent(f.Share()), 1+f.Severity)
	if cell.Use > 0 && cell.Resource == r {
		return "**" + text + "**"
	}
	return text
}

// Reached says in how many of the cells with a goal the goal is reached: a probe is to feel neighbours that use its own resource, except
// memory, and no others.
func (c crosstalkFigures) Reached() string {
	reached, all := 0, 0
	for _, cell := range c.Cells {
		for _, r := range c.Resources {
			share, own := cell.Felt[r].Share(), cell.Use > 0 && cell.Resource == r
			if own && r == quell.Memory {
				continue
			}
			all++
			reached += count(own && share >= 0.9 || !own && share <= 0.05)
		}
	}
	return fmt.Sprintf("%d of %d", reached, all)
}
