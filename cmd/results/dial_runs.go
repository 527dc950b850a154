package main

import (
	"context"
	"fmt"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/divide"
	"github.com/quellhq/quell/policy/prima"
	"github.com/quellhq/quell/policy/table"
)

// dialScenario is a scenario with the results of every run.
type dialScenario struct {
	Name string    `json:"name"`
	Rows []dialRow `json:"rows"`
}

// dialRow is a run: what it is, and the means over seeds.
type dialRow struct {
	Title     string   `json:"title"`
	Violation estimate `json:"violation"`
	Over      estimate `json:"over"` // share of requests over the threshold
	Cost      estimate `json:"cost"` // instance-seconds
	MS        estimate `json:"ms"`   // p90
}

// dialRun is a run of a scenario.
type dialRun struct {
	title string
	scenario.Run
}

// dialRuns are DIAL, what the paper compares it with, and PRIMA with both divisions of the load. Groups that do not scale have three
// instances.
func dialRuns() (list []dialRun) {
	add := func(title string, p quell.Policy, s quell.Scheduling) {
		list = append(list, dialRun{fmt.Sprintf("%s, %s", title, s), scenario.Run{Policy: p, Scheduling: s}})
	}
	for _, s := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn, quell.Random2, quell.EWMA} {
		add(table.All.Plain(), table.All.Whole(quell.Policy{Name: table.All.Plain()}), s)
	}
	add("knapsack", quell.Policy{Name: "knapsack"}, quell.LeastConn)
	for _, s := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn} {
		add("dial", table.All.Whole(quell.Policy{Name: "dial"}), s)
	}
	for _, v := range table.All.Variants(table.All.Whole(quell.Policy{Name: "dial"})) {
		for _, s := range v.Schedulings {
			add("dial with "+v.Change, v.Policy, s)
		}
	}
	prima := table.All.Whole(quell.Policy{Name: table.All.Default()})
	for _, headroom := range []float64{0.9, 1} {
		for _, share := range []divide.Rule{divide.Proportional, divide.Tail} {
			for _, s := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn} {
				title := fmt.Sprintf("prima, headroom %.0f%%, share %s", 100*headroom, share)
				add(title, primaSharing(prima, share, headroom), s)
			}
		}
	}
	return list
}

// primaSharing returns PRIMA with all resources, a division of the load and a headroom.
func primaSharing(p quell.Policy, share divide.Rule, headroom float64) quell.Policy {
	settings := p.Settings.(prima.Settings)
	settings.Resources, settings.Share, settings.Headroom = policy.AllKnown(), share, headroom
	p.Settings = settings
	return p
}

// compareAll plays every run in the scenarios of DIAL.
func (f *dialFigures) compareAll(ctx context.Context) error {
	models, err := f.seeded(ctx)
	if err != nil {
		return err
	}
	f.Scenarios = nil
	for _, name := range []string{"dial-single", "dial-combined"} {
		if err := f.compare(ctx, name, models); err != nil {
			return err
		}
	}
	return f.replay(ctx)
}

// replay plays every run in the scenario with a recorded load, which has other machines and requests, and so models of its own.
func (f *dialFigures) replay(ctx context.Context) error {
	sc, err := exampleScenario("dial-trace")
	if err != nil {
		return err
	}
	var models []*model.Models
	for seed := range uint64(dialSeeds) {
		m, err := simulatedModels(ctx, sc, seed+1)
		if err != nil {
			return err
		}
		models = append(models, m)
	}
	return f.compare(ctx, sc.Name, models)
}

func (f *dialFigures) compare(ctx context.Context, name string, models []*model.Models) error {
	sc, err := exampleScenario(name)
	if err != nil {
		return err
	}
	part := dialScenario{Name: name}
	for _, run := range dialRuns() {
		var results []scenario.Result
		for seed, m := range models {
			r, err := sim.Run(ctx, sim.Options{Scenario: sc, Run: run.Run, Models: m, Seed: uint64(seed) + 1})
			if err != nil {
				return fmt.Errorf("%s, %s: %w", name, run.title, err)
			}
			results = append(results, r)
		}
		part.Rows = append(part.Rows, newDialRow(run.title, results))
	}
	f.Scenarios = append(f.Scenarios, part)
	return nil
}

func newDialRow(title string, results []scenario.Result) dialRow {
	of := func(value func(scenario.Result) float64) estimate {
		var values []float64
		for _, r := range results {
			values = append(values, value(r))
		}
		return estimateOf(values)
	}
	return dialRow{title,
		of(func(r scenario.Result) float64 { return r.SLO.ViolationShare }),
		of(func(r scenario.Result) float64 { return float64(r.SLO.RequestsOver) / float64(r.Requests) }),
		of(func(r scenario.Result) float64 { return r.InstanceSeconds }),
		of(func(r scenario.Result) float64 { ms, _ := r.LatencyMS.Of(quell.P90); return ms }),
	}
}
