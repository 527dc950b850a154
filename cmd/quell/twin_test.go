package main

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/sim"
	"github.com/quellhq/quell/train"
)

// TestTwin plays one scenario file on emulated hosts and in the simulator, with the same models. What must hold on
// any machine is asserted: the same requests, nothing lost, the same order of the policies by mean response time,
// costs of fixed groups within 15% of each other. Response times of a busy machine are reported; docs/results/twin.md
// compares them over seeds.
func TestTwin(t *testing.T) {
	t.Parallel()
	file := filepath.Join(repository(t), "examples", "scenarios", "twin.yaml")
	sc, err := config.LoadScenario(file)
	if err != nil {
		t.Fatal(err)
	}
	plan := sim.Plan()
	plan.Levels, plan.Interference = []float64{0.1, 0.3, 0.5, 0.7, 0.85}, []float64{0, 0.1, 0.2, 0.3, 0.45, 0.6}
	models := twinModels(t, filepath.Join(t.TempDir(), "models.json"), plan)
	work := t.TempDir()
	out := filepath.Join(work, "live.json")
	cmd := exec.CommandContext(t.Context(), "quell", "demo", "--scenario", file, "--models", models, "--dir", filepath.Join(work, "demo"), "--json", out)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var live []quell.Result
	if err := json.Unmarshal(data, &live); err != nil {
		t.Fatal(err)
	}
	loaded, err := model.Load(models)
	if err != nil {
		t.Fatal(err)
	}
	var roundRobin quell.Result
	for i, run := range sc.Runs {
		simulated, err := sim.Run(t.Context(), sim.Options{Scenario: sc, Run: run, Models: loaded})
		if err != nil {
			t.Fatal(err)
		}
		compareTwins(t, live[i], simulated)
		if i == 0 {
			roundRobin = simulated
			continue
		}
		if *live[i].LatencyMS.Mean >= *live[0].LatencyMS.Mean || *simulated.LatencyMS.Mean >= *roundRobin.LatencyMS.Mean {
			t.Errorf("%s/%s is not faster than round robin in both", run.Policy, run.Scheduling)
		}
	}
}

func twinModels(t *testing.T, path string, plan train.Plan) string {
	t.Helper()
	sc, err := config.LoadScenario(filepath.Join(repository(t), "examples", "scenarios", "twin.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := sim.Train(t.Context(), sc, plan, 1)
	if err != nil {
		t.Fatal(err)
	}
	models, _, err := model.Fit(rows, model.FitOptions{Service: "twin", Metric: quell.Mean})
	if err != nil {
		t.Fatal(err)
	}
	if err := models.Save(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func compareTwins(t *testing.T, live, simulated quell.Result) {
	t.Helper()
	name := live.Policy + "/" + string(live.Scheduling)
	t.Logf("%s: mean %.1f ms live, %.1f simulated; %.0f and %.0f instance-seconds", name, *live.LatencyMS.Mean, *simulated.LatencyMS.Mean, live.InstanceSeconds, simulated.InstanceSeconds)
	if live.Requests != simulated.Requests || live.Errors+simulated.Errors > 0 {
		t.Errorf("%s: %d requests live, %d simulated; %d and %d failed", name, live.Requests, simulated.Requests, live.Errors, simulated.Errors)
	}
	if live.Fixed > 0 && math.Abs(live.InstanceSeconds/simulated.InstanceSeconds-1) > 0.15 {
		t.Errorf("%s costs %.1f instance-seconds live, %.1f simulated", name, live.InstanceSeconds, simulated.InstanceSeconds)
	}
}
