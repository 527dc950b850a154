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
)

// harmRow compares DIAL with the scheduling alone in a scenario, seed by seed.
type harmRow struct {
	Scenario   string           `json:"scenario"`
	Scheduling quell.Scheduling `json:"scheduling"`
	Over       estimate         `json:"over"`      // share of requests over the threshold, with the scheduling alone
	MoreOver   estimate         `json:"more_over"` // what DIAL adds
	MoreMS     estimate         `json:"more_ms"`   // what DIAL adds to the p90, in milliseconds
	Moves      int              `json:"moves"`     // plans that changed shares
}

// Harm says whether DIAL did harm, beyond what chance explains.
func (r harmRow) Harm() bool { return r.MoreOver.Mean > r.MoreOver.Half }

// HarmText sums the table up.
func (f dialFigures) HarmText() string {
	if len(f.Harm) == 0 {
		return "Not simulated yet: `go run ./cmd/results dial:harm`."
	}
	harmed, helped := 0, 0
	for _, r := range f.Harm {
		harmed += count(r.Harm())
		helped += count(r.MoreOver.Mean < -r.MoreOver.Half)
	}
	return fmt.Sprintf("Of %d rows, DIAL is better in %d beyond chance, and worse in %d.", len(f.Harm), helped, harmed)
}

// harmSchedulings are the rules over which DIAL changes shares.
var harmSchedulings = []quell.Scheduling{quell.RoundRobin, quell.LeastConn, quell.Random2}

// harm plays every example scenario over several rules, with and without DIAL.
func (f *dialFigures) harm(ctx context.Context) error {
	f.Harm = nil
	return eachDivided(ctx, func(sc *scenario.Scenario, models *model.Models) error {
		if models.Dial() == nil || models.Dial().Incomplete() != "" {
			return nil // DIAL cannot run on what this scenario's requests use
		}
		rows := make([]harmRow, len(harmSchedulings))
		err := playAll(len(rows), func(i int) (err error) {
			rows[i], err = playHarm(ctx, sc, harmSchedulings[i], models)
			return err
		})
		f.Harm = append(f.Harm, rows...)
		return err
	})
}

func playHarm(ctx context.Context, sc *scenario.Scenario, over quell.Scheduling, models *model.Models) (row harmRow, err error) {
	row.Scenario, row.Scheduling = sc.Name, over
	var base, more, ms []float64
	share := func(r scenario.Result) float64 { return float64(r.SLO.RequestsOver) / float64(r.Requests) }
	p90 := func(r scenario.Result) float64 { v, _ := r.LatencyMS.Of(quell.P90); return v }
	for seed := range uint64(shareSeeds) {
		var results [2]scenario.Result
		for i, name := range []string{table.All.Plain(), "dial"} {
			o := sim.Options{Scenario: sc, Models: models, Seed: seed + 1, Run: scenario.Run{Scheduling: over,
				Policy: table.All.Whole(quell.Policy{Name: name})}}
			o.Plans = func(p *quell.Plan) {
				if slices.ContainsFunc(p.Reasons, func(r quell.Reason) bool { return r.Code == "shift" }) {
					row.Moves++
				}
			}
			if results[i], err = sim.Run(ctx, o); err != nil {
				return row, err
			}
		}
		base, more = append(base, share(results[0])), append(more, share(results[1])-share(results[0]))
		ms = append(ms, p90(results[1])-p90(results[0]))
	}
	row.Over, row.MoreOver, row.MoreMS = estimateOf(base), estimateOf(more), estimateOf(ms)
	return row, nil
}
