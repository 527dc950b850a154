package main

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
)

// dialCauses are the columns of the confusion matrix.
var dialCauses = []string{"network", "cpu", "disk", "memory", model.NotContended}

// dialTruths are its rows.
var dialTruths = []string{"network", "cpu", "disk", "memory", loadChange}

// Causes are the columns of the confusion matrix.
func (f dialFigures) Causes() []string { return dialCauses }

// confusionRow is what DIAL named in runs with neighbours at one resource, or with a change of the load.
type confusionRow struct {
	Truth   string   `json:"truth"`
	Named   []int    `json:"named"` // by dialCauses
	Periods estimate `json:"periods"`
	Most    float64  `json:"most"`
}

// right is how many of the runs were named rightly: after a change of the load nothing is to be named.
func (r confusionRow) right() int {
	if i := slices.Index(dialCauses, r.Truth); i >= 0 {
		return r.Named[i]
	}
	return r.Named[slices.Index(dialCauses, model.NotContended)]
}

// RightOf is how many runs of a confusion matrix were named rightly.
func (f dialFigures) RightOf(rows []confusionRow) (sum int) {
	for _, r := range rows {
		sum += r.right()
	}
	return sum
}

// RunsOf is how many runs a confusion matrix has.
func (f dialFigures) RunsOf(rows []confusionRow) (sum int) {
	for _, r := range rows {
		for _, n := range r.Named {
			sum += n
		}
	}
	return sum
}

// unseen is an interference that no training has.
var unseen = map[string]float64{"network": 0.55, "cpu": 0.45, "disk": 0.75, "memory": 0.65}

// detectAll fills the confusion matrix with the periods of the paper.
func (f *dialFigures) detectAll(ctx context.Context) (err error) {
	f.Confusion, err = f.detect(ctx, 10*time.Second)
	return err
}

// detect plays neighbours of an intensity that training never saw, and changes of the load, and counts what DIAL names with periods of this
// length.
func (f *dialFigures) detect(ctx context.Context, period time.Duration) (rows []confusionRow, err error) {
	models, err := f.seeded(ctx)
	if err != nil {
		return nil, err
	}
	for _, truth := range dialTruths {
		row := confusionRow{Truth: truth, Named: make([]int, len(dialCauses))}
		var delays []float64
		for trial := range dialTrials {
			named, delay, err := detectOnce(ctx, truth, period, models[trial%len(models)], uint64(trial)+101)
			if err != nil {
				return nil, err
			}
			if row.Named[slices.Index(dialCauses, named)]++; delay > 0 {
				delays = append(delays, delay)
				row.Most = math.Max(row.Most, delay)
			}
		}
		if len(delays) > 0 {
			row.Periods = estimateOf(delays)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// detectOnce plays a minute of calm, and then a minute with neighbours at one of three instances or with half as many users more. It
// returns the class that most plans of that minute name, and after how many periods the first plan names one.
func detectOnce(
	ctx context.Context, truth string, period time.Duration, models *model.Models, seed uint64,
) (class string, periods float64, err error) {
	sc, err := exampleScenario("dial-single")
	if err != nil {
		return "", 0, err
	}
	const onset = time.Minute
	sc.Duration, sc.Service.Sampling = 2*onset, period
	event := scenario.Event{At: onset}
	if use, ok := unseen[truth]; ok {
		event.Interfere = &scenario.Interference{Host: sc.Hosts[0].ID, Resource: quell.Resource(truth), Use: use}
	} else {
		users := sc.Workload.Users * 3 / 2
		event.Users = &users
	}
	sc.Timeline = []scenario.Event{event}
	counts, first := map[string]int{}, 0.0
	var began time.Time
	_, err = sim.Run(ctx, sim.Options{Scenario: sc, Models: models, Seed: seed,
		Run: scenario.Run{Policy: quell.Policy{Name: "dial"}, Scheduling: quell.RoundRobin},
		Plans: func(p *quell.Plan) {
			if began.IsZero() {
				began = p.At
			}
			at := p.At.Sub(began) - sc.WarmUp // up to a period late, because plans begin with the first period
			if at < onset {
				return
			}
			class := model.NotContended
			for _, cause := range p.Cause {
				class = string(cause)
			}
			if counts[class]++; class != model.NotContended && first == 0 {
				first = math.Ceil((at - onset).Seconds() / sc.Service.Sampling.Seconds())
			}
		}})
	if err != nil {
		return "", 0, err
	}
	return mostNamed(counts), first, nil
}
