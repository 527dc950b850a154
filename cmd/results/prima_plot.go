package main

import (
	"cmp"
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/quellhq/quell/internal/figure"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/policy/table"
)

// plotRun draws a run over time: at the top the response time and its threshold, below the highest and the lowest utilisation of the
// instances, and the neighbours' use.
func plotRun(path, title string, sc *scenario.Scenario, r *experiment.Record) error {
	var seen, threshold plotter.XYs
	above := 0
	for _, m := range r.Moments {
		if m.AtS < 0 {
			continue
		}
		if m.LatencyMS > sc.Service.SLO.ThresholdMS() {
			above++
		}
		seen = append(seen, plotter.XY{X: m.AtS, Y: m.LatencyMS})
		threshold = append(threshold, plotter.XY{X: m.AtS, Y: sc.Service.SLO.ThresholdMS()})
	}
	found := fmt.Sprintf("%s: above the objective at %d%% of the times", title, 100*above/max(1, len(seen)))
	latency := figure.New(found, "", "response time, ms")
	if err := figure.AddLines(latency, figure.Series{Name: string(sc.Service.SLO.Metric), Points: seen, Color: runColour(title)},
		figure.Series{Name: "objective", Points: threshold, Color: figure.Threshold, Dashed: true}); err != nil {
		return err
	}
	use := figure.New("", "seconds", "share of a host's "+string(experiment.Fullest(sc)))
	if err := figure.AddLines(use, uses(r)...); err != nil {
		return err
	}
	for _, p := range []*plot.Plot{latency, use} {
		p.X.Min, p.Y.Min, p.X.Max, p.Y.Max = 0, 0, sc.Duration.Seconds(), 1.05*p.Y.Max
	}
	return figure.WriteAbove(path, latency, use)
}

func runColour(title string) color.Color {
	if col, ok := figure.Policy(title); ok {
		return col
	}
	return figure.Nth(0)
}

// uses are the highest and the lowest utilisation of the instances at each moment, and the use of each neighbour.
func uses(r *experiment.Record) []figure.Series {
	highest := figure.Series{Name: "fullest instance", Color: figure.Threshold}
	lowest := figure.Series{Name: "emptiest instance", Color: figure.Others}
	for _, m := range r.Moments {
		var all []float64
		for _, in := range m.Instances {
			if in.Utilization != nil {
				all = append(all, *in.Utilization)
			}
		}
		if len(all) > 0 && m.AtS >= 0 {
			highest.Points = append(highest.Points, plotter.XY{X: m.AtS, Y: slices.Max(all)})
			lowest.Points = append(lowest.Points, plotter.XY{X: m.AtS, Y: slices.Min(all)})
		}
	}
	lines := []figure.Series{highest, lowest}
	for k, host := range disturbedHosts(r) {
		lines = append(lines, figure.Series{Name: "neighbour " + host, Points: disturbance(r, host), Color: figure.Nth(k), Dashed: true})
	}
	return lines
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

// tradeoffPoint is a run of a comparison.
type tradeoffPoint struct {
	Title, Rule string
	Violation   float64 // seconds
	Over        float64 // share of requests above the threshold
	Cost        float64 // instance-seconds
}

// tradeoffs are the points of the runs of a comparison: medians over the seeds.
func tradeoffs(all []contender) (points []tradeoffPoint) {
	for _, c := range all {
		points = append(points, tradeoffPoint{c.Title, c.rule(), c.Violation(), c.Over(), c.Cost()})
	}
	return points
}

// plotTradeoff draws the violation against cost and, below, the share of requests over the threshold against cost. Each policy and
// size is one point; a line joins the sizes of one rule.
func plotTradeoff(path string, all []tradeoffPoint) error {
	violation, err := tradeoff("violation, s", all, func(p tradeoffPoint) float64 { return p.Violation })
	if err != nil {
		return err
	}
	least := slices.MinFunc(all, func(a, b tradeoffPoint) int {
		return cmp.Or(cmp.Compare(a.Violation, b.Violation), cmp.Compare(a.Cost, b.Cost))
	})
	violation.Title.Text = fmt.Sprintf("%s misses the objective least: for %g s, at %.0f instance-seconds (lower left is better)", least.Title,
		least.Violation, least.Cost)
	over, err := tradeoff("requests over the threshold, %", all, func(p tradeoffPoint) float64 { return 100 * p.Over })
	if err != nil {
		return err
	}
	over.X.Label.Text = "instance-seconds"
	return figure.WriteAbove(path, violation, over)
}

func tradeoff(label string, all []tradeoffPoint, value func(tradeoffPoint) float64) (*plot.Plot, error) {
	p := figure.New("", "", label)
	series := map[string]plotter.XYs{}
	var order []string
	for _, c := range all {
		if series[c.Rule] == nil {
			order = append(order, c.Rule)
		}
		series[c.Rule] = append(series[c.Rule], plotter.XY{X: c.Cost, Y: value(c)})
	}
	var lines []figure.Series
	for i, col := range figure.Runs(order...) {
		lines = append(lines, figure.Series{Name: order[i], Points: series[order[i]], Color: col, Mark: figure.Disc})
	}
	if err := figure.AddLines(p, lines...); err != nil {
		return nil, err
	}
	p.X.Min, p.Y.Min, p.Y.Max = 0, 0, max(1.15*p.Y.Max, 1) // all may be 0
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
