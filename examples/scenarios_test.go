package examples_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/experiment"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/scenario"
	"github.com/quellhq/quell/sim"
)

func library(t *testing.T, each func(*testing.T, string, []byte, *scenario.Scenario)) {
	t.Helper()
	files, err := filepath.Glob("scenarios/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sc, err := config.ParseScenario(file, data)
			if err != nil {
				t.Fatal(err)
			}
			each(t, file, data, sc)
		})
	}
}

// TestLibrary plays the first seconds of every scenario under each of its runs: all are answered for, and none fails.
func TestLibrary(t *testing.T) {
	library(t, func(t *testing.T, file string, data []byte, sc *scenario.Scenario) {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if sc.Name != name {
			t.Errorf("the file %s holds the scenario %s", name, sc.Name)
		}
		head, _, _ := strings.Cut(string(data), "scenario:")
		if !strings.HasPrefix(head, "# ") || name != "noisy-neighbour" && !strings.Contains(head, "# Sizes: ") {
			t.Error("the comment at its head does not say where it comes from and how large it is")
		}
		sc.Stretch(8 * time.Second)
		sc.WarmUp, sc.Judge.Window = 2*time.Second, 2*time.Second
		plan := sim.Plan() // just enough of it to have models
		plan.Levels, plan.Interference = []float64{0.2, 0.5, 0.8}, []float64{0, 0.15, 0.4, 0.7}
		plan.Repeat, plan.MaxRepeat, plan.Run, plan.WarmUp = 1, 1, 20*time.Second, time.Second
		rows, err := sim.Train(t.Context(), sc, plan, 1)
		if err != nil {
			t.Fatal(err)
		}
		models, _, err := model.Fit(rows, model.FitOptions{Service: sc.Service.Name, Metric: sc.Service.SLO.Metric})
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range sc.Runs {
			r, err := sim.Run(t.Context(), sim.Options{Scenario: sc, Run: run, Models: models})
			if err != nil {
				t.Fatalf("%s: %v", experiment.Title(sc, run), err)
			}
			if r.Requests < 100 || r.InstanceSeconds <= 0 {
				t.Errorf("%s: %d requests, %v instance-seconds", experiment.Title(sc, run), r.Requests, r.InstanceSeconds)
			}
		}
	})
}

// TestMachinesRefuseWhatTheyCannotPlay: a scenario either plays on live rigs as it is, or says what does not.
func TestMachinesRefuseWhatTheyCannotPlay(t *testing.T) {
	refused := map[string]string{
		"dial-single": "workload.classes[0].cpu", "dial-combined": "workload.classes[0].cpu", "ice-periodic": "workload.classes[0].cpu",
		"everything-at-once": "workload.classes[0].cpu",
	}
	library(t, func(t *testing.T, _ string, _ []byte, sc *scenario.Scenario) {
		err := experiment.Playable(sc)
		var user *quell.UserError
		if want := refused[sc.Name]; want == "" && err != nil || want != "" && (!errors.As(err, &user) || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("got %v, want a refusal of %q", err, want)
		}
		if err := experiment.Playable(sc, quell.Resources...); (err == nil) != (sc.Readings == scenario.Readings{} && len(sc.Failures()) == 0) {
			t.Errorf("hosts with every resource: %v", err)
		}
		file := *sc
		file.Workload = scenario.Workload{Kind: scenario.File}
		for path, change := range map[string]func(*scenario.Scenario){
			"readings":         func(s *scenario.Scenario) { s.Readings.Lost = 0.1 },
			"timeline[0].fail": func(s *scenario.Scenario) { s.Timeline = []scenario.Event{{Fail: &scenario.Failure{Host: "h1"}}} },
			"timeline[0].interfere.resource": func(s *scenario.Scenario) {
				s.Timeline = []scenario.Event{{Interfere: &scenario.Interference{Resource: quell.CPU}}}
			},
		} {
			changed := file
			changed.Readings, changed.Timeline = scenario.Readings{}, nil
			change(&changed)
			if err := experiment.Playable(&changed); !errors.As(err, &user) || !strings.HasPrefix(err.Error(), path+":") {
				t.Errorf("got %v, want a refusal of %s", err, path)
			}
		}
	})
}
