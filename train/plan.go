// Package train runs controlled experiments on machines that it can load and disturb, and makes one row for each run: first with
// the probe and the service alone, then with each utilisation and interference (PRIMA, sections III-B1 and III-B2).
package train

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Plan says which runs to make.
type Plan struct {
	Levels       []float64     // commanded utilisations of the service; at 0 only the probe is measured
	Interference []float64     // commanded utilisations of the interferer; 0: the service runs alone
	Most         float64       // cells with a larger sum of both utilisations are left out; 0: 0.95
	Only         []Cell        // if set, exactly these cells instead
	Run          time.Duration // length of one run
	WarmUp       time.Duration // time with load and interference before measuring starts
	Repeat       int           // smallest number of runs of a cell
	MaxRepeat    int           // largest number of runs of a cell
	Interval     float64       // stop when the width of the confidence interval is at most this share of the mean (PRIMA, section III-B1)
	Confidence   float64
	Alternate    *Alternation // the interferer comes and goes in each run; nil: it stays
	Adaptive     *Adaptive    // how to choose cells by the results so far; nil: every cell is measured
}

// Busiest is the default of Plan.Most. If the sum is larger, queues keep growing during a run.
const Busiest = 0.95

// Quick takes about half a minute on eight hosts. It is enough for a demonstration, not for production.
func Quick() Plan {
	return Plan{
		Levels:       []float64{0.1, 0.3, 0.5, 0.65, 0.8},
		Interference: []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7},
		Most:         0.85,
		Run:          9 * time.Second, WarmUp: 500 * time.Millisecond, Repeat: 1, MaxRepeat: 1, Interval: 0.05, Confidence: 0.95,
	}
}

// Full follows the paper's utilisations, 10% to 90% in tens, with repeated runs; it takes minutes.
func Full() Plan {
	return Plan{
		Levels:       []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9},
		Interference: []float64{0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6},
		Run:          15 * time.Second, WarmUp: time.Second, Repeat: 3, MaxRepeat: 5, Interval: 0.05, Confidence: 0.95,
	}
}

// Cell is one combination of load and interference.
type Cell struct {
	Level        float64
	Interference float64
}

// Cells lists the plan's cells, those without interference first. It leaves out those whose sum is above Plan.Most.
func (p Plan) Cells() []Cell {
	if len(p.Only) > 0 {
		return p.Only
	}
	most := cmp.Or(p.Most, Busiest)
	var cells []Cell
	for _, interference := range p.Interference {
		for _, level := range p.Levels {
			if quell.AtMost(level+interference, most) {
				cells = append(cells, Cell{level, interference})
			}
		}
	}
	return cells
}

// Round returns the cells to measure in a round, counted from 0; none if the plan is finished. rows are those of the earlier rounds
// in order of their seeds. A plan without Adaptive has one round. The same rows always give the same cells, whichever machines made
// them, so that an interrupted training continues in the same way.
func (p Plan) Round(number int, rows []model.TrainingRow, seed uint64) ([]Cell, error) {
	switch {
	case p.Adaptive != nil:
		return p.Adaptive.round(p, number, rows)
	case number == 0:
		return shuffled(p.Cells(), seed), nil
	}
	return nil, nil
}

// shuffled puts the cells in a random order. So if a machine's speed changes meanwhile, that affects runs with and without
// interference alike.
func shuffled(cells []Cell, seed uint64) []Cell {
	cells = slices.Clone(cells)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	return cells
}

// mostCells is the largest number of cells that the plan measures.
func (p Plan) mostCells() int {
	if p.Adaptive != nil {
		return p.Adaptive.Budget
	}
	return len(p.Cells())
}

// Settings are the plan's values among the settings of a training.
func (p Plan) Settings() Settings {
	s := Settings{
		"train.levels": shareList(p.Levels), "train.interference": shareList(p.Interference), "train.run": p.Run.String(),
		"train.warm_up": p.WarmUp.String(), "train.repeat": fmt.Sprint(p.Repeat), "train.max_repeat": fmt.Sprint(p.MaxRepeat),
		"train.interval": fmt.Sprint(p.Interval), "train.confidence": fmt.Sprint(p.Confidence),
	}
	if a := p.Alternate; a != nil {
		s["train.alternate"] = fmt.Sprintf("%v away, %v there, windows of %v", a.Away, a.There, a.Window)
	}
	if a := p.Adaptive; a != nil {
		maps.Copy(s, Settings{
			"slo.metric": string(a.Metric), "slo.threshold": fmt.Sprintf("%gms", a.ThresholdMS),
			"train.budget": fmt.Sprint(a.Budget), "train.bound": fmt.Sprint(a.Bound), "train.hosts": fmt.Sprint(a.AtOnce),
		})
	}
	return s
}

func shareList(shares []float64) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(shares), "[]")), ", ")
}

// Validate returns the first rule that the plan breaks as a *quell.InvalidError.
func (p Plan) Validate() error {
	for _, rule := range []struct {
		broken        bool
		path, problem string
	}{
		{len(p.Levels) == 0, "train.levels", "at least one utilisation is needed"},
		{len(p.Interference) == 0 || p.Alternate == nil && p.Interference[0] != 0, "train.interference",
			"must begin with 0, the isolation baseline"},
		{p.Run < time.Second, "train.run", "a run takes at least 1s"},
		{p.Repeat < 1, "train.repeat", "at least 1"},
		{p.MaxRepeat < p.Repeat, "train.max_repeat", "must not be less than train.repeat"},
		{!(p.Interval > 0), "train.interval", "must be more than 0"},
		{!(p.Confidence > 0 && p.Confidence < 1), "train.confidence", "must lie between 0 and 1"},
	} {
		if rule.broken {
			return &quell.InvalidError{Path: rule.path, Problem: rule.problem}
		}
	}
	for _, share := range append(append([]float64{}, p.Levels...), p.Interference...) {
		if !(share >= 0 && share <= 1) {
			return &quell.InvalidError{Path: "train", Problem: fmt.Sprintf("%v is not a share from 0 to 1", share)}
		}
	}
	return cmp.Or(p.Alternate.validate(), p.Adaptive.validate())
}
