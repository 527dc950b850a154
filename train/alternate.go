package train

import (
	"context"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/model"
)

// Alternation says how the interferer comes and goes during a run, for detectors (ICE, section IV: 3 minutes there, 2 minutes away). Each
// round begins without it.
type Alternation struct {
	Away, There time.Duration // multiples of Window
	Window      time.Duration // each window has an observation in the run's row
}

// Alternating is the plan of ICE: three loads, an interferer of two strengths, and two rounds for each combination.
func Alternating() Plan {
	a := Alternation{Away: 2 * time.Minute, There: 3 * time.Minute, Window: time.Second}
	return Plan{
		Levels: []float64{0.2, 0.3, 0.4}, Interference: []float64{0.4, 0.5}, Alternate: &a, Run: 2 * a.round(), WarmUp: 10 * time.Second,
		Repeat: 1, MaxRepeat: 1, Interval: 0.05, Confidence: 0.95,
	}
}

func (a *Alternation) round() time.Duration { return a.Away + a.There }

// Use returns the interferer's use in a window, which is counted from 0: there if it is there, else 0.
func (a *Alternation) Use(window int, there float64) float64 {
	if window%int(a.round()/a.Window) < int(a.Away/a.Window) {
		return 0
	}
	return there
}

func (a *Alternation) validate() error {
	switch {
	case a == nil:
		return nil
	case a.Window <= 0 || a.Away < a.Window || a.There < a.Window || a.Away%a.Window != 0 || a.There%a.Window != 0:
		return &quell.InvalidError{Path: "train", Problem: fmt.Sprintf("%v away and %v there must be multiples of windows of %v", a.Away, a.There,
			a.Window)}
	}
	return nil
}

// alternate makes a run in which the interferer comes and goes, and measures each window.
func (m *live) alternate(ctx context.Context, r RunRequest) (row model.TrainingRow, err error) {
	calm, a := r, r.Alternate
	calm.Interference = 0
	var whole window
	var list []model.TrainingWindow
	load, err := m.loaded(ctx, calm, func(load *sent) error {
		use, before := 0.0, load.Total()
		began, err := m.carried(r.Resource)
		for n := range int(r.Run / a.Window) {
			if err != nil {
				return err
			}
			if next := a.Use(n, r.Interference); next != use {
				if use, err = next, m.target.Interfere(r.disturbed(), next); err != nil {
					return err
				}
			}
			var w window
			if w, began, err = m.window(ctx, r, m.prober, a.Window, began); err != nil {
				return err
			}
			total := load.Total()
			list = append(list, model.TrainingWindow{Interfering: use, Observation: w.observed(r.Resource, before, total)})
			whole.add(w)
			before = total
		}
		return err
	})
	if err != nil {
		return row, err
	}
	if row, err = whole.row(r); err != nil {
		return row, err
	}
	row.Windows = list
	return m.fill(row, r, load)
}

// add adds a window that follows.
func (w *window) add(next window) {
	w.seconds, w.own, w.interfering, w.sensed = w.seconds+next.seconds, w.own+next.own, w.interfering+next.interfering, next.sensed
}

// observed is what was measured in a window, with the requests that finished in it: before and after are the counts at its begin and end.
func (w *window) observed(resource quell.Resource, before, after loadgen.Stats) quell.Observation {
	o := w.sensed
	if o.Utilization = maps.Clone(o.Utilization); o.Utilization == nil {
		o.Utilization = map[quell.Resource]float64{}
	}
	o.Utilization[resource] = math.Max(0, math.Min(1, w.own/w.seconds))
	o.RequestRate = new(float64(after.Requests-before.Requests) / w.seconds)
	if n := after.LatencyMS.N - before.LatencyMS.N; n > 0 {
		o.LatencyMS = &quell.Latency{Mean: new((sumOf(after.LatencyMS) - sumOf(before.LatencyMS)) / float64(n)), N: n}
	}
	return o
}

func sumOf(l quell.Latency) float64 {
	if l.Mean == nil {
		return 0
	}
	return *l.Mean * float64(l.N)
}
