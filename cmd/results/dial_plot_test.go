package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Plots are drawn from what there is, and left out if there is nothing.
func TestDialPlots(t *testing.T) {
	dir := t.TempDir()
	dial := &model.Dial{Queueing: map[quell.Resource]model.Queueing{quell.CPU: {0, 3, 1}, quell.Disk: {1, 2, 0}}}
	fit, intervals := filepath.Join(dir, "fit.png"), filepath.Join(dir, "intervals.png")
	if err := plotFits(fit, dir, dial); err != nil {
		t.Fatal(err)
	}
	if err := plotIntervals(intervals, nil); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fit, intervals} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s was drawn from nothing", path)
		}
	}
	row := `{"resource":"cpu","level":0.3,"interfering":0.2,"utilization":0.3,"request_rate":10,"latency_ms":{"mean":10,"p90":20,"n":100},` +
		`"probe_ms":{"mean":1,"stddev":0.1,"n":10}}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "training-cpu.jsonl"), []byte(row), 0o644); err != nil {
		t.Fatal(err)
	}
	points, err := trainedPoints(dir)
	if p := points[quell.CPU]; err != nil || len(p) != 1 || p[0].X != 0.5 || p[0].Y != 20 {
		t.Errorf("%v, %v", points, err)
	}
	if err := plotFits(fit, dir, dial); err != nil {
		t.Fatal(err)
	}
	if err := plotIntervals(intervals, []intervalRow{{Seconds: 1}, {Seconds: 5, False: 0.1}}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fit, intervals} {
		if info, err := os.Stat(path); err != nil || info.Size() < 1000 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}
