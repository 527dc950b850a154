package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// sharedLink is a machine that behaves like processor sharing with noise: probes and requests take 1/(1 - U - U_int) times as long.
// It fails after a given number of runs.
type sharedLink struct {
	mu    sync.Mutex
	made  []RunRequest
	fails int
}

var errBroken = errors.New("broken")

const (
	unloadedMS      = 10.0
	unloadedProbeMS = 2.0
)

func (m *sharedLink) Measure(_ context.Context, r RunRequest) (model.TrainingRow, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails > 0 && len(m.made) == m.fails {
		return model.TrainingRow{}, errBroken
	}
	m.made = append(m.made, r)
	return linkRow(r, 0.06), nil
}

func linkRow(r RunRequest, noise float64) model.TrainingRow {
	rng := rand.New(rand.NewPCG(r.Seed, 1))
	stretch := 1 / (1 - r.Level - r.Interference)
	mean := unloadedMS * stretch * (1 + noise*rng.NormFloat64())
	p95 := 3 * unloadedMS * stretch * (1 + 2*noise*rng.NormFloat64())
	return model.TrainingRow{
		Resource: cmp.Or(r.Resource, quell.Network), Level: r.Level, InterferingLevel: &r.Interference, Interfering: r.Interference,
		Utilization: r.Level,
		RequestRate: 100 * r.Level, LatencyMS: quell.Latency{Mean: &mean, P95: &p95, N: 500}, Seed: r.Seed,
		ProbeMS: model.ProbeRun{Mean: unloadedProbeMS * stretch * (1 + noise*rng.NormFloat64()), Stddev: 0.5, N: 100},
	}
}

func small() Plan {
	return Plan{Levels: []float64{0.1, 0.3, 0.5}, Interference: []float64{0, 0.2, 0.4}, Run: time.Second, Repeat: 2, MaxRepeat: 4,
		Interval: 0.1, Confidence: 0.95}
}

func inOrder(rows []model.TrainingRow) []model.TrainingRow {
	return slices.SortedFunc(slices.Values(rows), func(a, b model.TrainingRow) int { return cmp.Compare(a.Seed, b.Seed) })
}

// TestInterruptedTrainingGoesOn checks that an interrupted training, on any number of machines, gives the same rows as
// one without interruption, and makes no run twice.
func TestInterruptedTrainingGoesOn(t *testing.T) {
	grid, adaptive := resumption(t, small()), resumption(t, Learn(quell.Mean, 30, 38, 0, 3))
	for _, fails := range [][]int{{1}, {27}, {28}, {31}, {10, 13, 11}} {
		adaptive(t, fails)
	}
	rapid.Check(t, func(rt *rapid.T) {
		grid(rt, rapid.SliceOfN(rapid.IntRange(1, 30), 1, 4).Draw(rt, "fails"))
	})
}

// resumption trains without interruption, and returns a check of trainings on machines that fail after a given number
// of runs each.
func resumption(t *testing.T, plan Plan) func(t rapid.TB, fails []int) {
	whole := inOrder(trained(t, plan, 7))
	return func(t rapid.TB, fails []int) {
		var rows []model.TrainingRow
		var last Progress
		o := Options{Resource: quell.Network, Plan: plan, Seed: 7, Save: func(r model.TrainingRow) error { rows = append(rows, r); return nil },
			Progress: func(p Progress) { last = p }}
		for _, n := range fails {
			o.Machines = append(o.Machines, &sharedLink{fails: n})
		}
		if _, err := Run(context.Background(), o); err != nil && !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		kept := len(rows)
		o.Rows, o.Machines = slices.Clone(rows), []Machine{&sharedLink{}, &sharedLink{}}
		if _, err := Run(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		if got := inOrder(rows); !reflect.DeepEqual(got, whole) {
			t.Fatalf("%d rows after an interruption at %d, not the %d of a training at once", len(got), kept, len(whole))
		}
		if last.Kept != kept || last.Runs != len(rows) {
			t.Fatalf("the progress says %d kept of %d, want %d of %d", last.Kept, last.Runs, kept, len(rows))
		}
	}
}

func TestRowsOfAnotherPlanAreRefused(t *testing.T) {
	whole := inOrder(trained(t, small(), 7))
	enough := slices.IndexFunc(whole, func(r model.TrainingRow) bool { return r.Converged != nil && *r.Converged })
	extra := whole[enough] // one more run of a cell that already had enough runs
	extra.Seed++
	for want, rows := range map[string][]model.TrainingRow{
		"seed 7 is of utilisation 0.9":              {linkRow(RunRequest{Cell: Cell{0.9, 0.05}, Seed: 7}, 0)},
		"two rows have seed 7":                      append(slices.Clone(whole), whole[0]),
		"no run with seed 589831":                   {linkRow(RunRequest{Cell: Cell{0.1, 0}, Seed: 7 + 9<<16}, 0)},
		"no run with seed 11":                       {linkRow(RunRequest{Cell: Cell{0.1, 0}, Seed: 7 + 4}, 0)},
		"no run with seed 6":                        {linkRow(RunRequest{Cell: Cell{0.1, 0}, Seed: 6}, 0)},
		fmt.Sprint("no run with seed ", extra.Seed): append(slices.Clone(whole), extra),
	} {
		_, err := Run(t.Context(), Options{Resource: quell.Network, Plan: small(), Machines: []Machine{&sharedLink{}}, Seed: 7, Rows: rows,
			Save: func(model.TrainingRow) error { return nil }})
		var user *quell.UserError
		if !errors.As(err, &user) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestRowsOfAWiderRuleCount checks that rows made under a less strict stopping rule are kept, and that the runs that the stricter rule
// needs are added.
func TestRowsOfAWiderRuleCount(t *testing.T) {
	wide := small()
	wide.Interval *= 2
	rows := trained(t, wide, 7)
	before := len(rows)
	m := &sharedLink{}
	_, err := Run(t.Context(), Options{
		Resource: quell.Network, Plan: small(), Machines: []Machine{m}, Seed: 7, Rows: slices.Clone(rows),
		Save: func(r model.TrainingRow) error { rows = append(rows, r); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	runs := func(rows []model.TrainingRow) (rates []float64) {
		for _, r := range inOrder(rows) {
			rates = append(rates, r.ProbeMS.Mean)
		}
		return rates
	}
	whole := trained(t, small(), 7)
	if !slices.Equal(runs(rows), runs(whole)) || len(m.made) != len(whole)-before || len(m.made) == 0 {
		t.Errorf("%d rows after %d more runs on %d, want the %d of a training at once", len(rows), len(m.made), before, len(whole))
	}
}

// Training treats all resources alike: rows of several resources give the same models as the rows of each resource alone.
func TestResourcesAreTrainedAlike(t *testing.T) {
	var all []model.TrainingRow
	alone := map[quell.Resource]*model.Models{}
	for _, r := range quell.Resources {
		rows, err := Run(t.Context(), Options{Resource: r, Plan: small(), Machines: []Machine{&sharedLink{}}, Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rows...)
		alone[r] = fitted(t, rows)
	}
	together := fitted(t, all).Prima()
	for r, m := range alone {
		p := m.Prima()
		if len(p.Isolation) != 1 || !reflect.DeepEqual(p.Isolation[r], together.Isolation[r]) ||
			!reflect.DeepEqual(p.ResponseTime[r], together.ResponseTime[r]) || !reflect.DeepEqual(p.Interference[r], together.Interference[r]) {
			t.Errorf("%s: alone %+v, together %+v", r, p, together)
		}
	}
	_, err := Run(t.Context(), Options{Resource: quell.Disk, Plan: small(), Machines: []Machine{&sharedLink{}}, Seed: 7, Rows: all[:1]})
	var user *quell.UserError
	if !errors.As(err, &user) || !strings.Contains(err.Error(), "the rows are of cpu, this training is of disk") {
		t.Errorf("rows of another resource: %v", err)
	}
}

func fitted(t *testing.T, rows []model.TrainingRow) *model.Models {
	t.Helper()
	m, _, err := model.Fit(rows, model.FitOptions{Metric: quell.Mean})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPlanSettingsTellPlansApart(t *testing.T) {
	if d := Quick().Settings().differences(Full().Settings()); len(d) == 0 {
		t.Error("the quick and the full plan have the same settings")
	}
	a, b := Learn(quell.Mean, 40, 60, 0.02, 4).Settings(), Learn(quell.P95, 40, 60, 0.02, 4).Settings()
	if d := a.differences(b); !slices.Equal(d, []string{"slo.metric was p95 and is mean"}) {
		t.Errorf("differences %v", d)
	}
	if s := small().Settings()["train.levels"]; s != "0.1, 0.3, 0.5" {
		t.Errorf("levels read %q", s)
	}
}
