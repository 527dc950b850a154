package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/golden"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/report"
	"github.com/quellhq/quell/switchback"
	"github.com/quellhq/quell/train"
)

var somewhere = place{Machine: "a virtual machine with 2 cores of Some Processor, shared with other work", Cores: 2}

// unmarked is a page's text without the marks of its measured parts.
func unmarked(text []byte) []byte { return liveText.ReplaceAll(text, []byte("$2")) }

// checkPage compares a page with its golden file.
func checkPage(t *testing.T, name, template string, figures any) {
	t.Helper()
	text, err := fill(template, figures)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "<no value>") || strings.Contains(string(text), "%!") {
		t.Errorf("%s lacks a figure:\n%s", name, text)
	}
	golden.Compare(t, filepath.Join("testdata", name+".golden"), unmarked(text))
}

func TestPages(t *testing.T) {
	few, err := simulatedService()
	if err != nil {
		t.Fatal(err)
	}
	demo, err := demoScenario()
	if err != nil {
		t.Fatal(err)
	}
	var played [][]scenario.Result
	twins := twinFigures{Seeds: len(demoSeeds)}
	for s := range demoSeeds {
		var results []scenario.Result
		for i := range demo.Runs {
			results = append(results, someResult(2*i+s))
		}
		played = append(played, results)
	}
	for i, run := range demo.Runs {
		twins.Runs = append(twins.Runs, newTwinRun(string(run.Scheduling),
			[]scenario.Result{someResult(i)}, []scenario.Result{someResult(i + 1)}))
	}
	demoPlayed := demoFigures(somewhere, demo, played)
	demoPlayed.Simulated = demoPlayed.Runs
	grids, adaptive := somePlans()
	points := []point{
		{Utilization: 0.15, Interfering: 0.15, Severity: 0, SeverityJoint: 0.02, SeverityTotal: 0.1, ResponseMS: 11.7, ResponseModelMS: 12.1},
		{Utilization: 0.25, Interfering: 0.43, Severity: 1.4, SeverityJoint: 1.5, SeverityTotal: 0.9, ResponseMS: 30, ResponseModelMS: 28},
	}
	training := newTrainingFigures(somewhere, points, []metricScore{{quell.Mean, someScores(0)}, {quell.P95, someScores(3)}})
	training.Runs, training.Took, training.Report = 231, 19*time.Minute, "network: 231 runs\n"
	cluster, err := someCluster(t).figures(somewhere)
	if err != nil {
		t.Fatal(err)
	}
	cluster.ReadingBytes = 700 // of now
	agent := &agentUse{Watched: agentWatch, Memory: "13108 kB", Core: 0.0023}
	for name, figures := range map[string]any{
		"advice": newAdviceFigures(adviceData{Hours: []adviceHourResult{
			{Seed: 1, Balance: "leastconn", MissedS: 400, ActedS: 30, Verdict: report.WouldSave,
				Claim: report.Estimate{Value: 360, Low: 340, High: 380}},
			{Seed: 1, Balance: "leastconn", Calm: true, Verdict: report.NothingLost},
		}, Compared: []comparedResult{{Name: "PRIMA, calm", Seed: 1, Right: true, Found: &switchback.Result{Blocks: 30,
			SavedS: &switchback.Interval{Value: 10, Low: -5, High: 25}, Verdict: switchback.Neither}}},
			Agentless: []agentlessResult{
				{Seed: 1, Host: 2, Use: 0.4, Slowed: []string{"i2"}, FoundS: 20, Correct: true}, {Seed: 1, Correct: true},
			}, Outside: &outsideData{Measured: somewhere.Machine, Looks: []outsideLook{
				{Beside: "web-1", True: 0.41, Named: []outsideNamed{{"web-2", -3}, {"web-1", 8}}, AtEnd: []string{"web-1"}}, {Beside: "web-2"},
			}}, Live: &liveHours{Measured: somewhere.Machine, Hours: []adviceLiveHour{{adviceHourResult: adviceHourResult{Seed: 1,
				MissedS: 60, ActedS: 9, Claim: report.Estimate{Value: 50, Low: 40, High: 58}}, Neighbours: 4,
				Settings: adviceLiveSetting{Load: 0.35, Balance: "roundrobin"}}}}}),
		"demo":    demoPlayed,
		"twin":    twins,
		"cluster": cluster,
		"speed":   speedFigures{place: somewhere, BinaryBytes: 41_300_000, Agent: agent, Benchmarks: "BenchmarkPRIMA 1\n"},
		"door": doorFigures{place: somewhere, Rounds: 3, Requests: 9000, Clients: 32, Body: 1024, Rows: doorRows(map[doorRun][]float64{
			{"Quell", doorHTTP1}: {50e-6, 60e-6, 40e-6}, {"HAProxy", doorHTTP1}: {25e-6, 20e-6, 30e-6}, {"Quell", doorHTTP2}: {70e-6, 70e-6, 70e-6},
		})},
		"scale": newScaleFigures(somewhere, someCosts(), evidence{
			results: []scenario.Result{someResult(1), someResult(4)}, took: 61 * time.Second, processor: 104 * time.Second, memory: 812_000_000,
		}),
		"plans": plansFigures{
			LinkBits: few.Hosts[0].Network, FileBytes: few.Workload.Size, Run: train.Full().Run, Seeds: planSeeds, LongRun: plansRun, Points: 24,
			MostRuns: planBudgets[len(planBudgets)-1],
			Objectives: []comparedPlans{
				{quell.Mean, 40, "plans-mean.png", append(grids, adaptive...)},
				{quell.P95, 120, "plans-p95.png", append(adaptive, grids...)},
			},
		},
		"probing": probingFigures{
			place: somewhere, LinkBits: linkBits, Period: probingPeriod, Cells: 4, Simulated: probed(someProbings(), linkBits),
			EmulatedCells: 1, EmulatedRun: emulatedProbing, Emulated: probed(someProbings()[:1], linkBits),
		},
		"training": training,
		"outlier":  newOutlierFigures(someOutliers()),
		"dial":     someDial(t),
		"mrburst": newMRburstPage(burstData{Simulated: someMRburst(), Table2: must[[]burstResource](t)(playTable2()),
			Live: someBurst(burstFiles), Store: someBurst(burstObjects)}),
		"acs":      newACSFigures(someACS()),
		"ice":      someICE(t),
		"stranger": someStranger(),
		"fronts":   newFrontsFigures(someFronts()),
		"mix":      someMix(),
	} {
		t.Run(name, func(t *testing.T) { checkPage(t, name, name, figures) })
	}
	t.Run("acs-live", func(t *testing.T) {
		d := someACS()
		d.Live = someACSLive()
		checkPage(t, "acs-live", "acs", newACSFigures(d))
	})
	t.Run("speed-unmeasured", func(t *testing.T) {
		checkPage(t, "speed-unmeasured", "speed", speedFigures{place: somewhere, AgentError: errors.New("no Linux"), Benchmarks: "none\n"})
	})
}

func someMix() mixFigures {
	return mixFigures{Machine: somewhere.Machine, MixRecord: &experiment.MixRecord{
		LengthS: 3600, SamplingS: 5, Plans: 720, Starts: 9, Named: 1, Clients: map[string]int{"ordinary 200": 1000, "limited 429": 7},
		Acts: []experiment.MixAct{{Act: "soft stop", Instance: "web-4", Seen: true}, {Act: "soft stop", Instance: "web-4", Lost: "gone"}},
		Ends: []experiment.MixEnd{{Instance: "web-7"}, {Instance: "web-4", Held: "soft stop"}},
		Cuts: map[string]int{"web-1": 3, "web-6": 600},
		Shares: []experiment.MixShare{{Instance: "web-1", Judged: 3000, Mean: 1.01, Below: 12, Longest: 5, Cuts: 3},
			{Instance: "web-6", Lame: true, Judged: 2000, Mean: 0.3, Below: 1900, Longest: 600, Cuts: 600}},
		Counters: []experiment.MixCounters{{Server: "web-6", Requests: 2000, Retries: 30, Redispatch: 60, Failed: 12}},
	}}
}

func someLearning() (d learnData) {
	run := func(more float64) learnRun {
		return learnRun{ViolationS: []float64{2 + more, 3 + more, 2.5}, Cost: []float64{100 - more, 110, 105}}
	}
	for i, name := range []string{"twin", "flash-crowd"} {
		d.put(learnCase{Scenario: name, DurationS: 90, ThresholdMS: 40, LearnedS: 3600, Trained: run(0), Cold: run(3), Later: run(float64(-i)),
			Coverage: learnedMargins{1200, 0.9, 10 + 20*float64(i)}})
	}
	return d
}

func someDial(t *testing.T) dialFigures {
	t.Helper()
	live, err := dialLab().figures(somewhere, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	e := estimate{0.123, 0.045}
	rows := []dialRow{newDialRow("dial, roundrobin", []scenario.Result{someResult(1), someResult(4)})}
	return dialFigures{
		Seeds: 2, Trials: 10, CalmTrials: 100, ShareSeeds: 2, Right: e, CalmMoves: 0.012, CalmAbove: 0.05, CalmPlans: 18000, Live: live,
		Fits:      []dialFit{{quell.CPU, e, estimate{0.2, 0.01}}},
		Scenarios: []dialScenario{{"dial-single", rows}, {"dial-combined", rows}},
		Confusion: []confusionRow{
			{Truth: "network", Named: []int{9, 1, 0, 0, 0}, Periods: estimate{1.4, 0.2}, Most: 2},
			{Truth: "load change", Named: []int{0, 1, 0, 0, 9}},
		},
		Use: &useFigures{somewhere.Machine, []useRow{
			{Resource: quell.CPU, Told: 0.4, Counted: []float64{0.4, 0.42}, Beside: []float64{0.39, 0.4}, Available: []float64{300, 330},
				Peak: []float64{500, 550}},
			{Resource: quell.Disk, Told: 0.4, Counted: []float64{0.38}, Beside: []float64{0.3}, Available: []float64{410}, Peak: []float64{400}},
		}},
		Intervals: []intervalRow{{Seconds: 1, Error: e, Right: 31, Periods: 3.5, False: 0.0123}},
		Shares:    []shareRow{{Scenario: "twin", Scheduling: quell.LeastConn, Violation: e, Over: e, MoreViolation: e, MoreOver: e, MoreCost: e}},
	}
}

func someICE(t *testing.T) *iceFigures {
	t.Helper()
	live, err := iceLab().figures(somewhere, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	e := estimate{0.123, 0.045}
	estimator := &model.Estimator{Intercept: 0.06, Previous: 0.64, Requests: 0.21, CPI: 0.24}
	cut, least := 2.25, 0.375
	return &iceFigures{
		Seeds: 2, Onsets: 30, Live: live,
		Threads: someThreads(),
		LVS: []lvsPhase{
			{Name: "calm", Requests: map[string]int{"one": 200, "two": 198}, MedianMS: map[string]float64{"one": 40, "two": 41},
				P90MS: map[string]float64{"one": 60, "two": 62}},
			{Name: "neighbour 1", Requests: map[string]int{"one": 120, "two": 200}, MedianMS: map[string]float64{"one": 90, "two": 45},
				P90MS: map[string]float64{"one": 160, "two": 70}, CutS: &cut, Least: &least, BackS: &cut},
		},
		Trainings: []iceTraining{{Machines: "ice-hour", Resource: quell.CPU, Runs: 6, Windows: 3600, Right: 0.991,
			Detector: "cpu_hidden > 0.2: interference (2160)\n", Signal: "cpu_wait",
			Fits:      []model.EstimatorFit{{Degree: 1, R2: 0.9, Without: 0.8}},
			Estimator: estimator}},
		Accuracies: []iceAccuracy{{Use: 0.2, Level: 0.33, Windows: 960, Right: 0.985, Missed: 0.02, False: 0.01}},
		Reactions:  []iceReaction{{Title: "trained", Use: 0.6, Noticed: 30, Median: 1.4, Max: 2.1}},
		Calm:       []iceCalm{{Title: "trained, leastconn", Hours: 2, Cuts: 1, Seconds: 17}},
		Hours:      []iceHour{{Title: "static, roundrobin", Median: e, All: e, Over: e, Changes: e}},
		Beside: []iceBeside{{Resource: quell.CPU, Scheduling: quell.LeastConn, Title: "prima", Over: e,
			Early: e, VersusEarly: "-40%", Violation: e, Cost: e, Reaction: "1.2"}},
		Sticky: []iceSticky{{Cut: e, Followed: e}, {Requests: 60, Cut: e, Never: 2}},
	}
}

// TestPagesOfTheLab renders the pages with records of only one part of each kind.
func TestPagesOfTheLab(t *testing.T) {
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir()) // records are kept below the working folder
	for _, page := range []labPage{primaLab(), haproxyLab(), resourcesLab(), dialLab(), iceLab(), learnLab(), fleetLab()} {
		for _, p := range page.parts {
			switch p.name {
			case "dial-calibrate-cpu", "dial-calm", "dial-names", "dial-tail":
				keepRecords(t, p, 2)
			case "table-vii-exp", "reaction", "quiet", "twelve-with-budget", "twelve-with-reserve":
				keepRecords(t, p, 1)
			case "fig-3", "twelve-moving", "changing-interference", "changing-disk", "learn-steady",
				"live-onsets", "live-calm", "live-table", "live-parameters":
				keepRecords(t, p, 2)
			case "live-streaming":
				keep(t, "streaming/streaming.json", someStreams())
			case "crosstalk":
				keep(t, "crosstalk/crosstalk.json", someCrosstalk())
			case "probe-costs":
				if err := os.MkdirAll(filepath.Dir(p.benchmarkPath()), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(p.benchmarkPath(), []byte("BenchmarkProbes \t 10 \t 0.4 %core\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			case "table-ii":
				keep(t, "table-ii/validation.json", map[string]any{"rows": 231, "points": somePoints()})
			case "probing":
				keep(t, "table-ii/probing.json", someProbings())
			}
		}
		figures, err := page.figures(somewhere, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if page.name == "prima" {
			grids, adaptive := somePlans()
			plans := figures.parts["plans"]
			if plans.Missing != "table-ii" {
				t.Errorf("without a training, plans are missing %q", plans.Missing)
			}
			plans.Missing = ""
			plans.Replayed = []comparedPlans{{quell.Mean, 18, "prima/plans-mean.png", append(grids, adaptive...)}}
			figures.parts["plans"] = plans
		}
		name, filled := page.name, any(figures)
		switch page.name {
		case "dial":
			name, filled = "dial-live", someDial(t)
		case "ice":
			name, filled = "ice-live", someICE(t)
		case "learn":
			learned := newLearnFigures(someLearning())
			learned.Live = figures
			filled = learned
		}
		text, err := fill(page.name, filled)
		if err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, filepath.Join(testdata, name+".golden"), unmarked(text))
	}
}

// TestEveryPartIsOnItsPage checks that the templates show every part, and nothing else as a part.
func TestEveryPartIsOnItsPage(t *testing.T) {
	for _, page := range []labPage{primaLab(), haproxyLab(), resourcesLab(), iceLab()} {
		text, err := templates.ReadFile(page.name + ".md.tmpl")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page.parts {
			if !strings.Contains(string(text), `.Part "`+p.name+`"`) {
				t.Errorf("the %s page does not show part %s", page.name, p.name)
			}
		}
	}
}

// someThreads are two plays of a streaming server.
func someThreads() (plays [][]experiment.ThreadResult) {
	of := func(ms float64) quell.Latency { return quell.Latency{Mean: &ms, N: 900} }
	for i := range 2 {
		more := float64(i)
		plays = append(plays, []experiment.ThreadResult{
			{ThreadRun: experiment.ThreadRun{Workers: 2, ICE: true}, Before: of(23 + more), Early: of(210 + more), Late: of(44 + more),
				After: of(22), Counts: []experiment.ThreadChange{{Workers: 2}, {AtS: 22.6 + more, Workers: 8}, {AtS: 71, Workers: 2}}},
			{ThreadRun: experiment.ThreadRun{Workers: 2}, Before: of(23), Early: of(220), Late: of(2100), After: of(60), Unsent: 0.12,
				Counts: []experiment.ThreadChange{{Workers: 2}}},
		})
	}
	return plays
}
