package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/train"
)

// someResult is a result whose figures depend on n.
func someResult(n int) scenario.Result {
	x := float64(n)
	mean, p95, p99 := 10.25+x/3, 20.5+x/2, 40.125+x
	return scenario.Result{
		Scheduling: quell.LeastConn, DurationS: 120, Requests: int64(10_000 + 7*n), Errors: int64(n % 4), Seed: uint64(n + 1),
		LatencyMS: quell.Latency{Mean: &mean, P95: &p95, P99: &p99},
		SLO: scenario.SLOResult{Metric: quell.Mean, ThresholdMS: 24, ViolationS: 60 - 7*x/2, ViolationShare: 0.01 * x,
			RequestsOver: int64(900 - 31*n)},
		InstanceSeconds: 240.5 + 33*x, MeanInstances: 2.2 + x/5, Decisions: 3 + n,
	}
}

// someRecord is a record of 120 s in which instance i1 is joined by i2 at 20 s.
func someRecord(run scenario.Run, n int) *experiment.Record {
	r := &experiment.Record{Run: run, Result: someResult(n), Changes: []float64{21.5, 63}}
	for _, s := range []struct{ at, first float64 }{{0, 0.5}, {13.5, 0.3}, {25, 0.5}, {35, 0.6}, {60, 0.5}} {
		shares := map[string]float64{"i1": s.first, "i2": 1 - s.first}
		cuts := map[string]float64{"i1": min(1, 2*s.first), "i2": min(1, 2-2*s.first)}
		r.Shares = append(r.Shares, experiment.RecordedShares{AtS: s.at, Shares: shares, Cuts: cuts})
	}
	timeout := quell.Setting{Instance: "i2", Target: "apache", Name: "KeepAliveTimeout", Value: 9}
	r.Settings = []experiment.RecordedSetting{{AtS: 52, Setting: timeout}}
	for at := -2.0; at < 120; at++ {
		u, sf := 0.3+at/1000, 0.1+float64(n)/10
		m := experiment.Moment{AtS: at, LatencyMS: 12 + at/10, Disturbs: map[string]float64{"h1": 0.2}}
		m.Instances = []experiment.SeenInstance{{ID: "i1", State: quell.Ready, Utilization: &u, Severity: &sf}}
		r.Samples = append(r.Samples, experiment.RecordedSample{AtS: at + 0.5, LatencyMS: 11 + at/20, Instance: "i1"})
		if at == 14 || at == 15 {
			m.Instances[0].Cut = new(0.6)
		}
		if at >= 20 {
			m.Instances = append(m.Instances, experiment.SeenInstance{ID: "i2", State: quell.Ready, Utilization: &u})
			r.Samples = append(r.Samples, experiment.RecordedSample{AtS: at + 0.25, LatencyMS: 9 + at/30, Instance: "i2", Failed: at == 30})
		}
		r.Moments = append(r.Moments, m)
	}
	return r
}

// keepRecords writes a record of each run of a part, for a number of seeds, into the folder that the page reads.
func keepRecords(t *testing.T, p labPart, seeds int) {
	t.Helper()
	sc, err := p.load()
	if err != nil {
		t.Fatal(err)
	}
	for seed := range seeds {
		dir := filepath.Join(labDir, sc.Name)
		if seed > 0 {
			dir += fmt.Sprintf("-seed%d", seed+1)
		}
		for i, run := range sc.Runs {
			path := experiment.RecordPath(dir, i, run)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := someRecord(run, (5*i+seed)%9).Save(path); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// keep writes a file of measurements, as a command of the lab does.
func keep(t *testing.T, name string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Join(labDir, name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(labDir, name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func somePoints() []experiment.ValidationPoint {
	return []experiment.ValidationPoint{
		{Utilization: 0.66, Interfering: 0.05, Severity: 0.11, SeverityJoint: 0.26, SeverityTotal: 1.42, MeanMS: 37.8, PredictedMeanMS: 37.7,
			P95MS: 100, PredictedP95MS: 105.5},
		{Utilization: 0.36, Interfering: 0.33, Severity: 1.34, SeverityJoint: 1.59, SeverityTotal: 0.81, MeanMS: 30.9, PredictedMeanMS: 32.3,
			P95MS: 78.3, PredictedP95MS: 78.2},
	}
}

func someProbings() []train.ProbingScore {
	return []train.ProbingScore{
		{Probing: train.Probing{Period: 4 * time.Second, Count: 1, Bytes: 1_000_000}, Windows: 100, Severity: 0.61, Error: 0.22, Alone: 0.13},
		{Probing: train.Probing{Period: 4 * time.Second, Count: 20, Bytes: 20_000}, Windows: 100, Severity: 0.59, Error: 0.19, Alone: 0.07},
	}
}

func someScores(n float64) train.Scores {
	off := func(x float64) train.Off { return train.Off{Mean: x / 100, P95: x / 40} }
	return train.Scores{ResponseTime: off(7.25 + n), Joint: off(9.5 + n), Total: off(23 + n), Capacity: off(3.4 + n)}
}

func somePlans() (grids, adaptive []train.PlanScore) {
	return []train.PlanScore{{Plan: "grid 9 x 6 x 1", Runs: 43.4, Scores: someScores(1)}},
		[]train.PlanScore{{Plan: "adaptive, 32 runs", Runs: 32, Scores: someScores(2)}}
}

// someOutliers are a scenario in which something is wrong and one in which nothing is.
func someOutliers() outlierData {
	run := func(title string, x float64) outlierRun {
		return outlierRun{Title: title, ReactionS: []float64{x / 2, x}, ViolationS: []float64{5 * x, 5, 10}, Failed: []float64{0, x, 3 * x},
			Over: []float64{7, 7, 7}, AtFaultS: []float64{0, x, 5}, Sent: []float64{80 * x, 90}, Changes: []float64{x, 0, 2}}
	}
	ours, defaults, tuned := run("static (fast outlier)/leastconn x10", 2), run("static/envoy-random2 ejection defaults x10", 3),
		run("static/envoy-random2 ejection tuned x10", 1)
	ours.Outlier, defaults.Envoy, tuned.Envoy = true, "defaults", "tuned"
	nothing := outlierRun{Title: "static/leastconn x10", ViolationS: []float64{40, 40, 40}, Failed: []float64{0, 0, 0}}
	return outlierData{
		Machine: somewhere.Machine,
		Simulated: []outlierCase{
			{Scenario: "outlier-slow", DurationS: 60, Seeds: 3, Runs: []outlierRun{nothing, ours, defaults, tuned}},
			{Scenario: "outlier-calm", DurationS: 3600, Calm: true, Seeds: 3, Runs: []outlierRun{ours, tuned}},
		},
		Live: []outlierCase{{Scenario: "outlier-errors", DurationS: 60, Seeds: 3, Load: "0.50 before and 2.25 after", Doubtful: 4,
			Runs: []outlierRun{nothing, ours, defaults, tuned}}},
	}
}

// Only requests during the fault count as sent to the faulty instance, including those that clients gave up.
func TestSentToFaulty(t *testing.T) {
	sc, err := labPart{name: "outlier-errors"}.load()
	if err != nil {
		t.Fatal(err)
	}
	r := &experiment.Record{Samples: []experiment.RecordedSample{
		{AtS: 11.9, Instance: faulty}, {AtS: 12, Instance: faulty, Failed: true}, {AtS: 13, Instance: "i4"}, {AtS: 14, Failed: true},
		{AtS: 51.9, Instance: faulty}, {AtS: 52, Instance: faulty},
	}}
	if got := sentToFaulty(sc, r); got != 3 {
		t.Errorf("%g requests, want 3", got)
	}
}

// someCosts are costs of the scale page.
func someCosts() costs {
	c := costs{
		intake: 31.4e-6, period: 12.7e-6, decide: 1.9e-6, apply: map[int]float64{100: 0.4e-3, 1000: 4.3e-3}, probe: 212e-6,
		groups: map[string]float64{}, large: 1.3e6,
	}
	for i, scheduling := range quell.Schedulings {
		for _, n := range groupSizes {
			c.groups[fmt.Sprintf("%s-%d", scheduling, n)] = 2.5e6 / float64(i+1)
		}
	}
	return c
}

// someCluster is a measured run of a cluster whose parts have written their reports.
func someCluster(t *testing.T) *clusterRun {
	t.Helper()
	from := time.Unix(1_700_000_000, 0)
	c := &clusterRun{
		dir: t.TempDir(), files: 4096, agents: 3096, connected: 12300 * time.Millisecond, from: from, to: from.Add(time.Minute), load: "1.42",
		used: map[string]float64{"n1": 0.031, "leaf": 0.012, "intake": 0.2}, memory: map[string]int{"n1": 48, "agents": 900},
		losses: []*serverLoss{
			{what: "a server", at: from.Add(70 * time.Second), until: from.Add(95 * time.Second)},
			{what: "the leaf", at: from.Add(100 * time.Second), until: from.Add(125 * time.Second)},
		},
	}
	in, fleet := intakeReport{Rejected: 2}, fleetReport{}
	for i := range 120 {
		s := sending{Agent: i % 10, At: from.Add(time.Duration(i) * time.Second).UnixNano()}
		fleet.Sent = append(fleet.Sent, published{s, i == 75})
		if i != 71 && i != 75 && i != 97 {
			in.Got = append(in.Got, arrival{s, time.Duration(i) * 100 * time.Microsecond})
		}
	}
	fleet.Back = []int64{from.Add(72 * time.Second).UnixNano(), from.Add(73 * time.Second).UnixNano(), from.Add(101 * time.Second).UnixNano()}
	for name, report := range map[string]any{"intake": in, "agents": &fleet} {
		if err := writeReport(c.dir, name, report); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// someCrosstalk is a study of two kinds of probes, neither of which feels the other's neighbour often.
func someCrosstalk() train.Crosstalk {
	felt := func(significant int, severity float64) train.Felt {
		return train.Felt{Periods: 40, Significant: significant, Severity: severity, Utilization: 0.35, Probes: 20}
	}
	return train.Crosstalk{
		Level: 0.35, PeriodS: 5, Confidence: 0.99,
		Isolation: map[quell.Resource][]model.Isolation{
			quell.CPU:  {{Utilization: 0.35, ProbeMS: 0.5, StddevMS: 0.2, N: 700}},
			quell.Disk: {{Utilization: 0.35, ProbeMS: 0.3, StddevMS: 0.4, N: 500}},
		},
		Cells: []train.CrosstalkCell{
			{Felt: map[quell.Resource]train.Felt{quell.CPU: felt(1, -0.04), quell.Disk: felt(0, 0.1)}},
			{Neighbour: train.Neighbour{Resource: quell.CPU, Use: 0.5},
				Felt:   map[quell.Resource]train.Felt{quell.CPU: felt(39, 2.7), quell.Disk: felt(2, 0.2)},
				Waited: &train.Waited{Periods: 40, Significant: 39, Use: 0.47}},
			{Neighbour: train.Neighbour{Resource: quell.Disk, Use: 0.8},
				Felt: map[quell.Resource]train.Felt{quell.CPU: felt(0, 0), quell.Disk: felt(40, 37)}},
		},
	}
}
