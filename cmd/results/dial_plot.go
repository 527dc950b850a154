package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/figure"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
)

// plotTails draws the p90 of all requests in each period, one line for each run.
func plotTails(path string, sc *scenario.Scenario, runs []*experiment.Record) error {
	p := figure.New("Response times of all requests in each period", "seconds", "p90, ms")
	figure.Logarithmic(&p.Y)
	var lines []figure.Series
	var titles []string
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
			titles = append(titles, experiment.Title(sc, sc.Runs[i]))
			lines = append(lines, figure.Series{Name: titles[len(titles)-1], Points: line})
		}
	}
	if len(lines) == 0 {
		return nil
	}
	for i, col := range figure.Runs(titles...) {
		lines[i].Color = col
	}
	p.X.Min = 0
	if err := figure.AddLines(p, lines...); err != nil {
		return err
	}
	return figure.WriteAbove(path, p)
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
		p := figure.New("", "", panel.label)
		var line plotter.XYs
		for _, r := range rows {
			line = append(line, plotter.XY{X: r.Seconds, Y: panel.value(r)})
		}
		dial, _ := figure.Policy("dial")
		if err := figure.AddLines(p, figure.Series{Points: line, Color: dial, Mark: figure.Disc}); err != nil {
			return err
		}
		p.X.Min, p.Y.Min = 0, 0
		plots = append(plots, p)
	}
	plots[0].Title.Text = intervalsFound(rows)
	plots[len(plots)-1].X.Label.Text = "length of the periods, s"
	return figure.WriteAbove(path, plots...)
}

// intervalsFound says which length has the smallest error, and what it costs.
func intervalsFound(rows []intervalRow) string {
	best := slices.MinFunc(rows, func(a, b intervalRow) int { return cmp.Compare(a.Error.Mean, b.Error.Mean) })
	return fmt.Sprintf("DIAL errs least with periods of %g s: %.1f%%, and names the neighbour after %.1f s", best.Seconds, 100*best.Error.Mean,
		best.Delay())
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
		p := figure.New("", fmt.Sprintf("use of the %s by instance and neighbour", r), "p90, ms")
		scatter, err := plotter.NewScatter(points[r])
		if err != nil {
			return err
		}
		scatter.Radius, scatter.Shape, scatter.Color = vg.Points(2), draw.CircleGlyph{}, figure.Others
		curve := plotter.NewFunction(q.MS)
		curve.Color, _ = figure.Policy("dial")
		curve.Width = vg.Points(1.6)
		p.Add(scatter, curve)
		p.X.Min, p.X.Max, p.Y.Min = 0, 1, 0
		plots = append(plots, p)
	}
	if len(plots) == 0 {
		return nil
	}
	return figure.WriteAbove(path, plots...)
}

// trainedPoints are the p90s of a training over the use of its resource.
func trainedPoints(dir string) (map[quell.Resource]plotter.XYs, error) {
	files, err := filepath.Glob(filepath.Join(dir, "training*.jsonl"))
	if err != nil {
		return nil, err
	}
	points := map[quell.Resource]plotter.XYs{}
	for _, file := range files {
		rows, err := modelfile.LoadTraining(file)
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
