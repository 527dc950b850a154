package examples_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/rivals"
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
			sc, err := scenario.Parse(file, data)
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
		if !strings.HasPrefix(head, "# ") || !strings.Contains(head, "# Sizes: ") {
			t.Error("the comment at its head does not say where it comes from and how large it is")
		}
		if _, err := os.Stat(strings.TrimSuffix(file, ".yaml") + ".md"); err != nil {
			t.Error("nothing is said beside it on why its runs come out as they do")
		}
		sc.Stretch(8 * time.Second)
		sc.WarmUp, sc.Judge.Window = 2*time.Second, 2*time.Second
		models := modelsOf(t, sc)
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

// modelsOf trains just enough to have models.
func modelsOf(t *testing.T, sc *scenario.Scenario) *model.Models {
	t.Helper()
	plan := sim.Plan()
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
	return models
}

// TestNobodyBeatsTheClairvoyant checks that in no shortened scenario any policy has less violation at the same or lower
// cost than the clairvoyant, or the same violation at lower cost. Differences of one judge window and of 1/30 of the
// cost are ignored.
func TestNobodyBeatsTheClairvoyant(t *testing.T) {
	const seeds = 2
	library(t, func(t *testing.T, _ string, _ []byte, sc *scenario.Scenario) {
		sc.Stretch(min(sc.Duration, 30*time.Second))
		models := modelsOf(t, sc)
		play := func(run scenario.Run) (violation, cost float64) {
			for seed := range uint64(seeds) {
				r, err := sim.Run(t.Context(), sim.Options{Scenario: sc, Run: run, Models: models, Seed: seed + 1})
				if err != nil {
					t.Fatalf("%s: %v", experiment.Title(sc, run), err)
				}
				violation += r.SLO.ViolationS / seeds
				cost += r.InstanceSeconds / seeds
			}
			return violation, cost
		}
		least, bound := play(scenario.Run{Policy: quell.Policy{Name: sim.Clairvoyant}, Scheduling: quell.LeastConn})
		rivals := append([]scenario.Run{{Policy: quell.Policy{Name: "hpa"}, Scheduling: quell.LeastConn},
			{Policy: quell.Policy{Name: "lsf"}, Scheduling: quell.LeastConn}}, sc.Runs...)
		for _, s := range []quell.Scheduling{quell.EWMA, quell.Prequal} {
			rivals = append(rivals, scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: s, Fixed: sc.Instances.Fixed})
		}
		for _, run := range rivals {
			violation, cost := play(run)
			if cost <= bound && violation < least-sc.Judge.Window.Seconds() || violation <= least && cost < bound*29/30 {
				t.Errorf("%s: %.1f s of violation for %.0f instance-seconds, and the clairvoyant %.1f s for %.0f", experiment.Title(sc, run), violation,
					cost, least, bound)
			}
		}
	})
}

// TestTheAutoscalersBestScheduling checks a scenario in which one server becomes slow: the autoscaler meets the objective with
// peak-EWMA, and misses it with least connections at the same target.
func TestTheAutoscalersBestScheduling(t *testing.T) {
	library(t, func(t *testing.T, _ string, _ []byte, sc *scenario.Scenario) {
		if sc.Name != "envoy-slow" && sc.Name != "linkerd-stuck" {
			return
		}
		half := quell.Policy{Name: "hpa", Settings: rivals.HPASettings{Resource: quell.Network, Utilization: 0.5}}
		violation := map[quell.Scheduling]float64{}
		for _, s := range []quell.Scheduling{quell.LeastConn, quell.EWMA} {
			r, err := sim.Run(t.Context(), sim.Options{Scenario: sc, Run: scenario.Run{Policy: half, Scheduling: s}})
			if err != nil {
				t.Fatal(err)
			}
			violation[s] = r.SLO.ViolationShare
		}
		if violation[quell.EWMA] > 0.02 || violation[quell.LeastConn] <= violation[quell.EWMA] {
			t.Errorf("hpa at 50%% misses the objective for %v of the time", violation)
		}
	})
}

// TestWhatIsSaidLeavesFiguresToTheReport checks the texts that people write about a scenario. They explain the result and must not
// name figures or winners, which the next run could make wrong; the page generates those from its results.
func TestWhatIsSaidLeavesFiguresToTheReport(t *testing.T) {
	files, err := filepath.Glob("scenarios/*.md")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d texts, %v", len(files), err)
	}
	code := regexp.MustCompile("`[^`]*`")
	compared := regexp.MustCompile(`(?i)[0-9]|%|\b(percent|hundredths?|tenths?|eighths?|sevenths?|sixths?|fifths?|quarters?|thirds|a third (of|less|more)|half|twice|two thirds|times as|times the|beats?|wins?|loses?|better|worse|best|worst|cheaper|cheapest|dearer|outright|fewest|least of|as good|misses nothing|as little)\b`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if word := compared.FindString(code.ReplaceAllString(line, "")); word != "" {
				t.Errorf("%s:%d: %q: leave figures and comparisons to the report", file, i+1, word)
			}
		}
	}
}

// TestMachinesRefuseWhatTheyCannotPlay checks that a scenario either plays on live rigs as it is, or reports what
// cannot be played.
func TestMachinesRefuseWhatTheyCannotPlay(t *testing.T) {
	refused := map[string]string{
		"dial-single": "workload.classes[0].cpu", "dial-combined": "workload.classes[0].cpu",
		"dial-trace": "workload.classes[0].cpu", "ice-periodic": "workload.classes[0].cpu",
		"everything-at-once": "workload.classes[0].cpu", "changing-cpu": "workload.classes[0].cpu", "changing-disk": "workload.classes[0].cpu",
		"changing-mixed": "workload.classes[0].cpu", "changing-mixed-10s": "workload.classes[0].cpu",
		"burstable-group":  "workload.classes[0].cpu",
		"fleet-rolling":    "timeline[0].release",
		"changing-cpu-10s": "workload.classes[0].cpu", "ice-hour": "workload.classes[0].cpu",
	}
	library(t, func(t *testing.T, _ string, _ []byte, sc *scenario.Scenario) {
		err := experiment.Playable(sc)
		var invalid *quell.InvalidError
		if want := refused[sc.Name]; want == "" && err != nil || want != "" && (!errors.As(err, &invalid) || invalid.Path != want) {
			t.Errorf("got %v, want a refusal of %q", err, want)
		}
		plain := sc.Readings == scenario.Readings{} && len(sc.Failures()) == 0 && len(sc.Releases()) == 0
		if err := experiment.Playable(sc, quell.Resources...); (err == nil) != plain {
			t.Errorf("hosts with every resource: %v", err)
		}
		file := *sc
		file.Workload = scenario.Workload{Kind: scenario.File}
		for path, change := range map[string]func(*scenario.Scenario){
			"readings":          func(s *scenario.Scenario) { s.Readings.Lost = 0.1 },
			"instances.credits": func(s *scenario.Scenario) { s.Instances.Credits = &scenario.Credits{} },
			"timeline[0].fail":  func(s *scenario.Scenario) { s.Timeline = []scenario.Event{{Fail: &scenario.Failure{Host: "h1"}}} },
			"timeline[0].interfere.resource": func(s *scenario.Scenario) {
				s.Timeline = []scenario.Event{{Interfere: &scenario.Interference{Resource: quell.CPU}}}
			},
		} {
			changed := file
			changed.Readings, changed.Probing, changed.Timeline = scenario.Readings{}, scenario.Probing{}, nil
			changed.Instances.Credits = nil
			change(&changed)
			if err := experiment.Playable(&changed); !errors.As(err, &invalid) || invalid.Path != path {
				t.Errorf("got %v, want a refusal of %s", err, path)
			}
		}
	})
}
