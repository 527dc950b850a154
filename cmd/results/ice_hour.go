package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/table"
)

// iceHour is the row of a policy in the hour of 4 minutes with and 4 minutes without a neighbour.
type iceHour struct {
	Title   string   `json:"title"`
	Median  estimate `json:"median_ms"` // response time at the disturbed server while the neighbour is there
	All     estimate `json:"all_ms"`    // over all requests and the whole hour
	Over    estimate `json:"over"`      // share of requests over the threshold
	Changes estimate `json:"changes"`   // plans that changed something
	Versus  string   `json:"versus"`    // the median, compared with equal weights under the same scheduling
}

// hour compares policies for a group of fixed size.
func (f *iceFigures) hour(ctx context.Context) error {
	models, err := f.trained(ctx)
	if err != nil {
		return err
	}
	plain := table.All.Whole(quell.Policy{Name: table.All.Plain()})
	cutting := plain
	cutting.Fast = quell.Fast{Name: "outlier"}
	f.Hours = nil
	for _, scheduling := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn} {
		still := 0.0
		for _, run := range []struct {
			title  string
			policy quell.Policy
			models *model.Models
		}{
			{table.All.Plain(), plain, nil}, {"outlier beside static", table.All.Whole(cutting), nil},
			{"ice without training, floor 60%", icePolicy(0.6), nil}, {"ice without training, floor 20%", icePolicy(0.2), nil},
			{"ice trained, floor 60%", icePolicy(0.6), models}, {"ice trained, floor 20%", icePolicy(0.2), models},
		} {
			row, err := newIceHour(ctx, scenario.Run{Policy: run.policy, Scheduling: scheduling}, run.models)
			if err != nil {
				return err
			}
			row.Title = fmt.Sprintf("%s, %s", run.title, scheduling)
			if still == 0 {
				still = row.Median.Mean
			} else {
				row.Versus = fmt.Sprintf("%+.0f%%", 100*(row.Median.Mean/still-1))
			}
			f.Hours = append(f.Hours, row)
		}
	}
	return nil
}

// newIceHour plays the hour with several seeds.
func newIceHour(ctx context.Context, run scenario.Run, models *model.Models) (row iceHour, err error) {
	sc, err := exampleScenario("ice-hour")
	if err != nil {
		return row, err
	}
	var medians, all, over, changes []float64
	for seed := range uint64(iceSeeds) {
		var disturbed []float64
		r, err := sim.Run(ctx, sim.Options{Scenario: sc, Run: run, Models: models, Seed: seed + 1, Windows: func(w sim.Window) {
			const each = 8 * time.Minute
			if ms, there := w.ByMS[1]; there && w.Start%each >= each/2 {
				disturbed = append(disturbed, ms)
			}
		}})
		if err != nil {
			return row, err
		}
		slices.Sort(disturbed)
		ms, _ := r.LatencyMS.Of(quell.P50)
		medians, all = append(medians, disturbed[len(disturbed)/2]), append(all, ms)
		over, changes = append(over, float64(r.SLO.RequestsOver)/float64(r.Requests)), append(changes, float64(r.Decisions))
	}
	row.Median, row.All, row.Over, row.Changes = estimateOf(medians), estimateOf(all), estimateOf(over), estimateOf(changes)
	return row, nil
}
