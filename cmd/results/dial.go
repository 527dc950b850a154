package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// What the page of DIAL is made of.
const (
	dialSeeds  = 8  // runs of each kind, each with models of its own
	dialTrials = 10 // runs of each row of the confusion matrix
	calmTrials = 100
	shareSeeds = 6 // runs of each scenario with each division of the load, with the same models
)

// dialParts are the parts of the page in the simulator, by name. The figures of parts that are not simulated again are read from dial.json.
var dialParts = map[string]func(f *dialFigures, ctx context.Context) error{
	"training":  (*dialFigures).trainings,
	"compare":   (*dialFigures).compareAll,
	"detect":    (*dialFigures).detectAll,
	"intervals": (*dialFigures).intervals,
	"calm":      (*dialFigures).calm,
	"shares":    (*dialFigures).divide,
	"harm":      (*dialFigures).harm,
	"use":       (*dialFigures).measureUse, // on machines: needs root
	"page":      func(*dialFigures, context.Context) error { return nil },
}

// dialPage simulates the scenarios of DIAL with it and with its rivals, its detection, and PRIMA with the load divided by DIAL's rule.
func dialPage(ctx context.Context, dir string) error {
	return dialPagePart(ctx, dir, "training", "compare", "detect", "intervals", "calm", "shares", "harm")
}

// dialPagePart simulates parts of the page, or plays those of the lab, and writes the page.
func dialPagePart(ctx context.Context, dir string, parts ...string) error {
	f := dialFigures{Seeds: dialSeeds, Trials: dialTrials, CalmTrials: calmTrials, ShareSeeds: shareSeeds}
	path := filepath.Join(dir, "dial.json")
	if _, err := readJSON(path, &f); err != nil {
		return err
	}
	for _, name := range parts {
		if simulate, ok := dialParts[name]; !ok {
			if err := playDial(ctx, name); err != nil {
				return err
			}
		} else if err := simulate(&f, ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := writeJSON(path, f); err != nil { // now, so that an interrupted call loses one part only
			return err
		}
	}
	var err error
	if f.Live, err = dialLab().figures(here(), dir); err != nil {
		return err
	}
	if err := plotIntervals(filepath.Join(dir, "dial", "intervals.png"), f.Intervals); err != nil {
		return err
	}
	return writePage(dir, "dial", f)
}

// dialFigures are the figures of the page. Those of the simulator are kept in dial.json, those of the lab in its records.
type dialFigures struct {
	Seeds      int            `json:"-"`
	Trials     int            `json:"-"`
	CalmTrials int            `json:"-"`
	ShareSeeds int            `json:"-"`
	Fits       []dialFit      `json:"fits"`
	Right      estimate       `json:"right"` // share of training runs that a tree fitted to others classifies right
	Tree       string         `json:"tree"`  // of the first seed
	Scenarios  []dialScenario `json:"scenarios"`
	Confusion  []confusionRow `json:"confusion"`
	Intervals  []intervalRow  `json:"intervals"`
	CalmMoves  float64        `json:"calm_moves"` // share of periods in which weights move
	CalmAbove  float64        `json:"calm_above"` // share of windows that are above some bound
	CalmPlans  int            `json:"calm_plans"` // number of periods
	Shares     []shareRow     `json:"shares"`
	Harm       []harmRow      `json:"harm"`

	Use *useFigures `json:"use,omitempty"`

	Live labFigures `json:"-"`

	models []*model.Models
}

// dialFit is how well Eq. 1 fits a resource, as mean relative errors.
type dialFit struct {
	Resource quell.Resource `json:"resource"`
	Error    estimate       `json:"error"`
	Plain    estimate       `json:"plain"` // without the square term
}

// seeded makes the models of each seed, once. dial-single and dial-combined have the same machines and requests, so they share models.
func (f *dialFigures) seeded(ctx context.Context) ([]*model.Models, error) {
	if f.models != nil {
		return f.models, nil
	}
	sc, err := exampleScenario("dial-single")
	if err != nil {
		return nil, err
	}
	for seed := range uint64(dialSeeds) {
		models, err := simulatedModels(ctx, sc, seed+1)
		if err != nil {
			return nil, err
		}
		f.models = append(f.models, models)
	}
	return f.models, nil
}

// trainings computes how well the models fit.
func (f *dialFigures) trainings(ctx context.Context) error {
	models, err := f.seeded(ctx)
	if err != nil {
		return err
	}
	full, plain := map[quell.Resource][]float64{}, map[quell.Resource][]float64{}
	var right []float64
	for _, m := range models {
		d := m.Dial()
		for r, e := range d.Errors {
			full[r], plain[r] = append(full[r], e.MeanRelative), append(plain[r], e.Linear)
		}
		all, hit := d.Validated.Total()
		right = append(right, float64(hit)/float64(all))
	}
	f.Fits = nil
	for _, r := range slices.Sorted(maps.Keys(full)) {
		f.Fits = append(f.Fits, dialFit{r, estimateOf(full[r]), estimateOf(plain[r])})
	}
	f.Right, f.Tree = estimateOf(right), models[0].Dial().Classifier.String()
	return nil
}
