package train

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

func trained(t *testing.T, plan Plan, seed uint64) []model.TrainingRow {
	t.Helper()
	rows, err := Run(t.Context(), Options{Resource: quell.Network, Plan: plan, Machines: []Machine{&sharedLink{}}, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// truth returns held-out points around a total utilisation of two thirds, at which the response time is 30 ms.
func truth() []model.TrainingRow {
	var rows []model.TrainingRow
	for _, c := range []Cell{{0.15, 0.5}, {0.25, 0.38}, {0.35, 0.35}, {0.45, 0.2}, {0.55, 0.13}, {0.25, 0.15}, {0.45, 0.05}} {
		rows = append(rows, linkRow(RunRequest{Cell: c}, 0))
	}
	return rows
}

// TestAdaptiveMeasuresNearTheThreshold checks that further runs are near the threshold (response time within a factor of
// two), and that with the same number of runs the capacity is known as well as with the grid.
func TestAdaptiveMeasuresNearTheThreshold(t *testing.T) {
	const thresholdMS, budget = 30, 60
	plan := Learn(quell.Mean, thresholdMS, budget, 0, 4)
	begin := len(first(plan.Cells()))
	rows := trained(t, plan, 1)
	if len(rows) != budget {
		t.Fatalf("%d runs, want the whole budget of %d", len(rows), budget)
	}
	close := 0
	for _, r := range rows[begin:] {
		if ratio := unloadedMS / (1 - r.Level - *r.InterferingLevel) / thresholdMS; ratio > 0.5 && ratio < 2 {
			close++
		}
	}
	if chosen := budget - begin; close < chosen*3/4 {
		t.Errorf("%d of %d chosen runs are near the threshold", close, chosen)
	}
	s, err := Score(rows, truth(), quell.Mean, thresholdMS)
	if err != nil {
		t.Fatal(err)
	}
	if s.Capacity.Mean > 0.03 || s.ResponseTime.Mean > 0.05 {
		t.Errorf("the capacity is off by %.3f, the response time by %.3f", s.Capacity.Mean, s.ResponseTime.Mean)
	}
}

func TestAdaptiveEndsWhenTheCapacityIsKnown(t *testing.T) {
	loose, tight := trained(t, Learn(quell.Mean, 30, 90, 0.05, 6), 1), trained(t, Learn(quell.Mean, 30, 90, 0.025, 6), 1)
	if !(len(loose) < len(tight) && len(tight) < 90) {
		t.Errorf("%d runs for a bound of 0.05, %d for 0.025", len(loose), len(tight))
	}
}

// TestAdaptiveWithNothingToLearn checks that the budget of runs is spread over all cells if every load meets the threshold, or if none
// does.
func TestAdaptiveWithNothingToLearn(t *testing.T) {
	for _, thresholdMS := range []float64{1e-3, 1e9} {
		runs := map[Cell]int{}
		for _, r := range trained(t, Learn(quell.Mean, thresholdMS, 60, 0, 4), 1) {
			runs[cellOf(&r)]++
		}
		for cell, n := range runs {
			if n > 2 {
				t.Errorf("threshold %v: %d runs of %v, and %d cells measured", thresholdMS, n, cell, len(runs))
			}
		}
	}
}

func TestAdaptiveTakesPercentiles(t *testing.T) {
	rows := trained(t, Learn(quell.P95, 90, 45, 0, 4), 1)
	s, err := Score(rows, truth(), quell.P95, 90)
	if err != nil {
		t.Fatal(err)
	}
	if s.Capacity.Mean > 0.05 {
		t.Errorf("the capacity is off by %.3f", s.Capacity.Mean)
	}
}

func TestAdaptiveRefusesBadOptions(t *testing.T) {
	for path, change := range map[string]func(*Adaptive){
		"slo.metric":    func(a *Adaptive) { a.Metric = "p42" },
		"slo.threshold": func(a *Adaptive) { a.ThresholdMS = math.NaN() },
		"train.budget":  func(a *Adaptive) { a.Budget = 3 },
		"train.bound":   func(a *Adaptive) { a.Bound = 1 },
		"train.hosts":   func(a *Adaptive) { a.AtOnce = 0 },
	} {
		p := Learn(quell.Mean, 30, 60, 0.02, 4)
		change(p.Adaptive)
		var invalid *quell.InvalidError
		if err := p.Validate(); !errors.As(err, &invalid) || invalid.Path != path {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

// TestScoreOfPerfectRows checks that rows without noise at the held-out points give no error.
func TestScoreOfPerfectRows(t *testing.T) {
	var rows []model.TrainingRow
	for _, c := range Full().Cells() {
		rows = append(rows, linkRow(RunRequest{Cell: c}, 0))
	}
	held := slices.DeleteFunc(slices.Clone(rows),
		func(r model.TrainingRow) bool { return r.Level+*r.InterferingLevel > 0.85 || *r.InterferingLevel == 0 })
	s, err := Score(rows, held, quell.Mean, 30)
	if err != nil {
		t.Fatal(err)
	}
	for name, off := range map[string]Off{"response time": s.ResponseTime, "joint": s.Joint, "capacity": s.Capacity} {
		if off.P95 > 1e-9 {
			t.Errorf("%s is off by %v", name, off)
		}
	}
	if s.Total.Mean < 0.05 {
		t.Errorf("one total belongs to many severities, yet that model is off by %v only", s.Total.Mean)
	}
}
