package main

import (
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/quellhq/quell/internal/figure"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/policy/table"
)

// plotRun draws a run over time: at the top the response time and its threshold, below each instance's utilisation and its
// neighbours' use.
func plotRun(path, title string, sc *scenario.Scenario, r *experiment.Record) error {
	latency := plot.New()
	latency.Title.Text, latency.Y.Label.Text = title, "response time, ms"
	var seen, threshold plotter.XYs
	for _, m := range r.Moments {
		if m.AtS < 0 {
			continue
		}
		seen = append(seen, plotter.XY{X: m.AtS, Y: m.LatencyMS})
		threshold = append(threshold, plotter.XY{X: m.AtS, Y: sc.Service.SLO.ThresholdMS()})
	}
	if err := plotutil.AddLines(latency, string(sc.Service.SLO.Metric), seen, "threshold", threshold); err != nil {
		return err
	}
	latency.Y.Min = 0
	use := plot.New()
	use.X.Label.Text, use.Y.Label.Text = "seconds", "share of a host's "+string(experiment.Fullest(sc))
	use.Y.Min = 0
	var lines []any
	for _, id := range instancesOf(r) {
		lines = append(lines, "U "+id, useOf(r, id))
	}
	for _, host := range disturbedHosts(r) {
		lines = append(lines, "neighbour "+host, disturbance(r, host))
	}
	if err := plotutil.AddLines(use, lines...); err != nil {
		return err
	}
	for _, p := range []*plot.Plot{latency, use} {
		p.Legend.Top, p.X.Min = true, 0
		p.X.Max = 1.2 * sc.Duration.Seconds() // room for the legend
		p.X.Tick.Marker = every(sc.Duration.Seconds() / 8)
		p.Y.Max *= 1.05
	}
	return saveAbove(path, latency, use)
}

func instancesOf(r *experiment.Record) []string {
	var ids []string
	for _, m := range r.Moments {
		for _, in := range m.Instances {
			if !slices.Contains(ids, in.ID) {
				ids = append(ids, in.ID)
			}
		}
	}
	slices.SortFunc(ids, byNumber)
	return ids
}

func useOf(r *experiment.Record, id string) plotter.XYs {
	var line plotter.XYs
	for _, m := range r.Moments {
		for _, in := range m.Instances {
			if in.ID == id && in.Utilization != nil && m.AtS >= 0 {
				line = append(line, plotter.XY{X: m.AtS, Y: *in.Utilization})
			}
		}
	}
	if line == nil { // because the library refuses lines without points
		line = plotter.XYs{{}}
	}
	return line
}

func disturbedHosts(r *experiment.Record) []string {
	var hosts []string
	for _, m := range r.Moments {
		for host := range m.Disturbs {
			if !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
	}
	slices.SortFunc(hosts, byNumber)
	return hosts
}

func disturbance(r *experiment.Record, host string) plotter.XYs {
	var line plotter.XYs
	for _, m := range r.Moments {
		if m.AtS >= 0 {
			line = append(line, plotter.XY{X: m.AtS, Y: m.Disturbs[host]})
		}
	}
	return line
}

// plotTradeoff draws the violation against cost and, below, the share of requests over the threshold against cost. Each policy and
// size is one point, a median; a line joins the sizes of one rule.
func plotTradeoff(path string, all []contender) error {
	violation, err := tradeoff("violation, s", all, contender.Violation)
	if err != nil {
		return err
	}
	violation.Title.Text = "violation and slow requests against cost (lower left is better)"
	over, err := tradeoff("requests over the threshold, %", all, func(c contender) float64 { return 100 * c.Over() })
	if err != nil {
		return err
	}
	over.X.Label.Text = "instance-seconds"
	return saveAbove(path, violation, over)
}

func tradeoff(label string, all []contender, value func(contender) float64) (*plot.Plot, error) {
	p := plot.New()
	p.Y.Label.Text = label
	series := map[string]plotter.XYs{}
	var order []string
	for _, c := range all {
		name := c.rule()
		if series[name] == nil {
			order = append(order, name)
		}
		series[name] = append(series[name], plotter.XY{X: c.Cost(), Y: value(c)})
	}
	for i, name := range order {
		line, points, err := plotter.NewLinePoints(series[name])
		if err != nil {
			return nil, err
		}
		line.Color, points.Color, points.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		points.Radius = vg.Points(4)
		p.Add(line, points)
		p.Legend.Add(name, line, points)
	}
	p.Add(figure.Grid())
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1.4*p.X.Max, 0, 1.15*p.Y.Max
	p.X.Tick.Marker = every(200)
	p.Legend.Top = true
	return p, nil
}

// rule is how a contender distributes requests.
func (c contender) rule() string {
	switch {
	case c.run.Balancer == scenario.Envoy:
		return "envoy least request"
	case c.run.Policy.Name == table.All.Plain():
		return "haproxy " + string(c.run.Scheduling)
	}
	return c.run.Policy.Name + " " + string(c.run.Scheduling)
}

// saveAbove writes the plots one above the other as a PNG.
func saveAbove(path string, plots ...*plot.Plot) error {
	img := vgimg.NewWith(vgimg.UseWH(9*vg.Inch, vg.Length(len(plots))*3.2*vg.Inch), vgimg.UseDPI(80))
	rows := make([][]*plot.Plot, len(plots))
	for i, p := range plots {
		rows[i] = []*plot.Plot{p}
	}
	tiles := draw.Tiles{Rows: len(plots), Cols: 1}
	canvases := plot.Align(rows, tiles, draw.New(img))
	for i, p := range plots {
		p.Draw(canvases[i][0])
	}
	return figure.Write(path, vgimg.PngCanvas{Canvas: img})
}
