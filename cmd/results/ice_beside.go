package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/train"
)

// iceBeside is the row of a policy in the timeline of changing interference.
type iceBeside struct {
	Resource    quell.Resource   `json:"resource"`
	Scheduling  quell.Scheduling `json:"scheduling"`
	Title       string           `json:"title"`
	Over        estimate         `json:"over"`  // share of requests over the threshold
	Early       estimate         `json:"early"` // the same in the two periods after an onset
	Violation   estimate         `json:"violation"`
	Cost        estimate         `json:"cost"`
	Reaction    string           `json:"reaction"`
	VersusOver  string           `json:"versus_over"` // compared with PRIMA alone
	VersusEarly string           `json:"versus_early"`
	VersusCost  string           `json:"versus_cost"`
}

// soonAfterOnset returns whether a window overlaps the two periods of PRIMA after a neighbour came.
func soonAfterOnset(sc *scenario.Scenario, w sim.Window) bool {
	return slices.ContainsFunc(sc.Timeline, func(e scenario.Event) bool {
		return e.Interfere != nil && e.Interfere.Use > 0 && w.Start+w.Length > e.At && w.Start < e.At+2*sc.Service.Sampling
	})
}

// beside plays the timeline of changing interference at T = 10 s, with neighbours at the processor and at the network.
func (f *iceFigures) beside(ctx context.Context) error {
	f.Beside = nil
	for _, resource := range []quell.Resource{quell.CPU, quell.Network} {
		sc, err := exampleScenario("changing-cpu-10s")
		if err != nil {
			return err
		}
		for i, e := range sc.Timeline {
			if e.Interfere != nil {
				sc.Timeline[i].Interfere.Resource = resource
			}
		}
		models, err := simulatedModels(ctx, sc, 1)
		if err != nil {
			return err
		}
		trained, err := trainedFor(ctx, sc, models)
		if err != nil {
			return err
		}
		for _, s := range []quell.Scheduling{quell.LeastConn, quell.RoundRobin} {
			if err := f.besideAt(ctx, sc, iceBeside{Resource: resource, Scheduling: s}, models, trained); err != nil {
				return err
			}
		}
	}
	return nil
}

// trainedFor adds ICE's section, trained on the scenario's machines with neighbours at the processor, to models.
func trainedFor(ctx context.Context, sc *scenario.Scenario, models *model.Models) (*model.Models, error) {
	rows, err := alternating(ctx, sc, quell.CPU, train.Alternating(), 1)
	if err != nil {
		return nil, err
	}
	more, _, err := model.Fit(rows, model.FitOptions{Service: sc.Name, Metric: sc.Service.SLO.Metric, Unscored: true})
	if err != nil {
		return nil, err
	}
	both := *models
	both.Sections = append(slices.Clone(models.Sections), more.ICE())
	return &both, nil
}

func (f *iceFigures) besideAt(
	ctx context.Context, sc *scenario.Scenario, part iceBeside, models, trained *model.Models,
) error {
	prima := sc.PolicyOf(scenario.Run{Policy: quell.Policy{Name: table.All.Default()}})
	cutting := prima
	cutting.Fast = quell.Fast{Name: "outlier"}
	plain := table.All.Whole(quell.Policy{Name: table.All.Plain()})
	foreseeing := quell.Policy{Name: sim.Clairvoyant}
	var alone iceBeside
	for _, run := range []struct {
		title  string
		policy quell.Policy
		models *model.Models
		fixed  int
		strain float64
	}{
		{title: "prima", policy: prima, models: models},
		{title: "prima, fast: ice, floor 60%, without training", policy: withICE(prima, 0.6), models: models},
		{title: "prima, fast: ice, floor 20%, without training", policy: withICE(prima, 0.2), models: models},
		{title: "prima, fast: ice, floor 60%, trained", policy: withICE(prima, 0.6), models: trained},
		{title: "prima, fast: ice, floor 20%, trained", policy: withICE(prima, 0.2), models: trained},
		{title: "prima, fast: outlier", policy: table.All.Whole(cutting), models: models},
		{title: "static, 3 servers", policy: plain, models: models, fixed: 3},
		{title: "static, 4 servers", policy: plain, models: models, fixed: 4},
		{title: "clairvoyant, up to 130%", policy: foreseeing, strain: 1.3},
		{title: "clairvoyant, up to 100%", policy: foreseeing, strain: 1},
		{title: "clairvoyant, up to 80%", policy: foreseeing, strain: 0.8},
		{title: "clairvoyant, up to 70%", policy: foreseeing, strain: 0.7},
	} {
		row := part
		row.Title = run.title
		err := row.play(ctx, sim.Options{Scenario: sc, Models: run.models, Strain: run.strain,
			Run: scenario.Run{Policy: run.policy, Scheduling: part.Scheduling, Fixed: run.fixed}})
		if err != nil {
			return fmt.Errorf("%s: %w", run.title, err)
		}
		if alone.Title == "" {
			alone = row
		} else {
			row.VersusOver = fmt.Sprintf("%+.0f%%", 100*(row.Over.Mean/alone.Over.Mean-1))
			row.VersusEarly = fmt.Sprintf("%+.0f%%", 100*(row.Early.Mean/alone.Early.Mean-1))
			row.VersusCost = fmt.Sprintf("%+.1f%%", 100*(row.Cost.Mean/alone.Cost.Mean-1))
		}
		f.Beside = append(f.Beside, row)
	}
	return nil
}

// play plays a run with several seeds.
func (row *iceBeside) play(ctx context.Context, o sim.Options) error {
	var over, early, violation, cost, reactions []float64
	for seed := range uint64(iceSeeds) {
		var after sim.Window
		o.Seed, o.Windows = seed+1, func(w sim.Window) {
			if soonAfterOnset(o.Scenario, w) {
				after.Requests, after.Over = after.Requests+w.Requests, after.Over+w.Over
			}
		}
		r, err := sim.Run(ctx, o)
		if err != nil {
			return err
		}
		early = append(early, float64(after.Over)/float64(after.Requests))
		over = append(over, float64(r.SLO.RequestsOver)/float64(r.Requests))
		violation, cost = append(violation, r.SLO.ViolationShare), append(cost, r.InstanceSeconds)
		if r.ReactionS != nil {
			reactions = append(reactions, r.ReactionS.Median)
		}
	}
	row.Over, row.Early, row.Violation, row.Cost = estimateOf(over), estimateOf(early), estimateOf(violation), estimateOf(cost)
	row.Reaction = spreadOf(reactions, "%.1f")
	return nil
}
