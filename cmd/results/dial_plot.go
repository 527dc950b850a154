package main

import (
	"fmt"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
)

// plotTails draws the p90 of all requests in each period, one line for each run.
func plotTails(path string, sc *scenario.Scenario, runs []*experiment.Record) error {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "seconds", "p90, ms"
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	var lines []any
	period := sc.Service.Sampling.Seconds()
	for i, r := range runs {
		if r == nil {
			continue
		}
		var line plotter.XYs
		for at := 0.0; at < sc.Duration.Seconds(); at += period {
			if ms := p90Of(r.Phase(at, at+period).LatencyMS); ms > 0 {
				line = append(line, plotter.XY{X: at + period/2, Y: ms})
			}
		}
		if len(line) > 0 {
			lines = append(lines, experiment.Title(sc, sc.Runs[i]), line)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if err := plotutil.AddLines(p, lines...); err != nil {
		return err
	}
	p.Legend.Top = true
	p.X.Min, p.X.Max = 0, 1.35*sc.Duration.Seconds() // room for the legend
	return saveAbove(path, p)
}

// plotIntervals draws what DIAL sees with periods of different lengths (Figure 6).
func plotIntervals(path string, rows []intervalRow) error {
	if len(rows) == 0 {
		return nil
	}
	panels := []struct {
		label string
		value func(intervalRow) float64
	}{
		{"error of user time, %", func(r intervalRow) float64 { return 100 * r.Error.Mean }},
		{"falsely taken, %", intervalRow.FalsePercent},
		{"seconds to the first name", intervalRow.Delay},
	}
	var plots []*plot.Plot
	for _, panel := range panels {
		p := plot.New()
		p.Y.Label.Text = panel.label
		var line plotter.XYs
		for _, r := range rows {
			line = append(line, plotter.XY{X: r.Seconds, Y: panel.value(r)})
		}
		if err := plotutil.AddLinePoints(p, line); err != nil {
			return err
		}
		p.X.Min, p.Y.Min = 0, 0
		plots = append(plots, p)
	}
	plots[len(plots)-1].X.Label.Text = "length of the periods, s"
	return saveAbove(path, plots...)
}

// plotFits draws the p90 of training runs over the use of their resource, by instance and neighbour, with the curves of Eq. 1 (Figure 4).
// dir is the folder of the models, which has the training's rows, too.
func plotFits(path, dir string, dial *model.Dial) error {
	points, err := trainedPoints(dir)
	if err != nil {
		return err
	}
	var plots []*plot.Plot
	for _, r := range quell.Resources {
		q, fitted := dial.Queueing[r]
		if !fitted || len(points[r]) == 0 {
			continue
		}
		p := plot.New()
		p.X.Label.Text, p.Y.Label.Text = fmt.Sprintf("use of the %s by instance and neighbour", r), "p90, ms"
		scatter, err := plotter.NewScatter(points[r])
		if err != nil {
			return err
		}
		scatter.Radius = vg.Points(2)
		curve := plotter.NewFunction(q.MS)
		curve.Color = plotutil.Color(1)
		p.Add(scatter, curve)
		p.X.Min, p.X.Max, p.Y.Min = 0, 1, 0
		plots = append(plots, p)
	}
	if len(plots) == 0 {
		return nil
	}
	return saveAbove(path, plots...)
}

// trainedPoints are the p90s of a training over the use of its resource.
func trainedPoints(dir string) (map[quell.Resource]plotter.XYs, error) {
	files, err := filepath.Glob(filepath.Join(dir, "training*.jsonl"))
	if err != nil {
		return nil, err
	}
	points := map[quell.Resource]plotter.XYs{}
	for _, file := range files {
		rows, err := model.LoadTraining(file)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if ms, ok := row.LatencyMS.Of(quell.P90); ok {
				points[row.Resource] = append(points[row.Resource], plotter.XY{X: row.Utilization + row.Interfering, Y: ms})
			}
		}
	}
	return points, nil
}
