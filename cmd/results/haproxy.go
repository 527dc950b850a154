package main

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/policy/table"
)

// haproxyLab compares policies and schedulings behind HAProxy on three timelines.
func haproxyLab() labPage {
	return labPage{name: "haproxy", labs: 3, parts: []labPart{
		{name: "changing-interference", trains: true, seeds: 3, title: "A neighbour that moves from host to host", sum: compare},
		{name: "random-neighbours", seeds: 3, title: "Neighbours at random beside four of five hosts", sum: compare},
		{name: "weak-neighbours", seeds: 3, title: "Weak and strong neighbours beside every host, a moving load", sum: compare},
	}}
}

// contest is the comparison of the runs of one timeline.
type contest struct {
	All     []contender
	Best    *contender // the run of PRIMA with the least violation; nil: PRIMA did not run
	AsLarge []duel     // PRIMA compared with rivals whose size is PRIMA's mean size, rounded up
	Plots   []labPlot

	Predicted *comparison // of PRIMA in a fleet

	timeline string
}

type labPlot struct{ About, File string }

// compare compares the runs with each other and draws them.
func compare(f *partFigures, plots string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	c := &contest{All: contenders(sc, plays), timeline: sc.Name}
	f.Contest = c
	for i := range c.All {
		if it := &c.All[i]; it.isPRIMA() && (c.Best == nil || it.Violation() < c.Best.Violation()) {
			c.Best = it
		}
	}
	for _, rival := range c.All {
		if c.Best != nil && !rival.isPRIMA() && rival.run.Fixed == c.Best.Size() {
			c.AsLarge = append(c.AsLarge, duel{Timeline: sc.Name, It: *c.Best, Rival: rival})
		}
	}
	draw := func(about, name string, plot func(path string) error) error {
		c.Plots = append(c.Plots, labPlot{about, filepath.Base(plots) + "/" + name})
		return plot(filepath.Join(plots, name))
	}
	err := draw("violation against cost", "tradeoff-"+sc.Name+".png", func(path string) error { return plotTradeoff(path, tradeoffs(c.All)) })
	if err != nil {
		return err
	}
	for i, r := range plays[0] {
		if r == nil || r.Run.Policy.Name != table.All.Default() {
			continue
		}
		title := experiment.Title(sc, sc.Runs[i])
		err := draw(title+" over time", fmt.Sprintf("%s-%d.png", sc.Name, i+1), func(path string) error {
			return plotRun(path, title+", first seed", sc, r)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// duels compare each run of PRIMA with least connections alone on two groups of fixed size: PRIMA's mean size, rounded down and
// rounded up.
func (c *contest) duels() (all []duel) {
	for _, it := range c.All {
		if !it.isPRIMA() {
			continue
		}
		for _, r := range c.All {
			if size := r.run.Fixed; r.isLeastConn() && (size == it.Size() || size == it.Size()-1) {
				all = append(all, duel{c.timeline, it, r})
			}
		}
	}
	return all
}

// duel is the comparison of a run of PRIMA with a rival.
type duel struct {
	Timeline  string
	It, Rival contender
}

// Cost is PRIMA's instance-seconds as a share of the rival's.
func (d duel) Cost() float64 { return d.It.Cost() / d.Rival.Cost() }

// muchCheaper is the cost, relative to the other's, below which a larger violation is called the price of the lower cost.
const muchCheaper = 0.95

// otherTail is how many times as long a p99 is that is called longer.
const otherTail = 1.25

// Verdict compares all seeds of PRIMA's run with all seeds of the rival.
func (d duel) Verdict() string {
	better := count(d.It.allBelow(d.Rival, violationOf)) + count(d.It.allBelow(d.Rival, overOf))
	worse := count(d.Rival.allBelow(d.It, violationOf)) + count(d.Rival.allBelow(d.It, overOf))
	switch {
	case better == 2 && 1/d.Cost() < muchCheaper:
		return "better in both, and dearer"
	case better == 2:
		return "clearly better"
	case worse == 2 && d.Cost() < muchCheaper:
		return "worse in both, and cheaper"
	case worse == 2:
		return "clearly worse"
	case better+worse == 2:
		return "better in one of the two, worse in the other"
	case worse == 1:
		return "worse in one of the two"
	case better == 1:
		return "better in one of the two"
	}
	return "no clear difference"
}

// Tail compares the medians of the p99, if they are far apart.
func (d duel) Tail() string {
	switch {
	case d.It.P99() > otherTail*d.Rival.P99():
		return "; p99 longer"
	case d.Rival.P99() > otherTail*d.It.P99():
		return "; p99 shorter"
	}
	return ""
}

// contender is one run of the comparison, played with several seeds. Its figures are medians over the seeds.
type contender struct {
	run   scenario.Run
	Title string
	plays []*experiment.Record
}

func contenders(sc *scenario.Scenario, plays [][]*experiment.Record) (all []contender) {
	for i := range sc.Runs {
		if c := newContender(sc, i, plays); len(c.plays) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// newContender is the run of that index, with no plays if it was not played.
func newContender(sc *scenario.Scenario, i int, plays [][]*experiment.Record) contender {
	c := contender{run: sc.Runs[i], Title: experiment.Title(sc, sc.Runs[i])}
	for _, records := range plays {
		if r := records[i]; r != nil {
			c.plays = append(c.plays, r)
		}
	}
	return c
}

// Violations and Costs are medians, with the least and the largest of several plays.
func (c contender) Violations() string { return medianRange("%.0f", c.of(violationOf)) + " s" }
func (c contender) Costs() string      { return medianRange("%.0f", c.of(costOf)) }

func (c contender) isPRIMA() bool { return c.run.Policy.Name == table.All.Default() }

func (c contender) isLeastConn() bool {
	return c.run.Policy.Name == table.All.Plain() && c.run.Scheduling == quell.LeastConn && c.run.Balancer == ""
}

// allBelow returns whether the value is smaller in every seed of c than in every seed of the other.
func (c contender) allBelow(other contender, value func(scenario.Result) float64) bool {
	return slices.Max(c.of(value)) < slices.Min(other.of(value))
}

// of returns one value of each run with the same settings, sorted.
func (c contender) of(value func(scenario.Result) float64) []float64 {
	var values []float64
	for _, r := range c.plays {
		values = append(values, value(r.Result))
	}
	slices.Sort(values)
	return values
}

func (c contender) median(value func(scenario.Result) float64) float64 {
	values := c.of(value)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

func (c contender) latency(m quell.Metric) float64 {
	return c.median(func(r scenario.Result) float64 { v, _ := r.LatencyMS.Of(m); return v })
}

// Seeds is the number of seeds with which the run was played.
func (c contender) Seeds() int { return len(c.plays) }

// Scheduling is the balancer's rule.
func (c contender) Scheduling() quell.Scheduling { return c.run.Scheduling }

// Violation is in seconds; Fewest and Most are the least and the largest of single seeds.
func (c contender) Violation() float64 { return c.median(violationOf) }
func (c contender) Fewest() float64    { return slices.Min(c.of(violationOf)) }
func (c contender) Most() float64      { return slices.Max(c.of(violationOf)) }

// Over is the share of requests above the threshold.
func (c contender) Over() float64 { return c.median(overOf) }

// Cost is in instance-seconds.
func (c contender) Cost() float64 { return c.median(costOf) }

// MeanSize is the mean number of instances, Size is the same rounded up.
func (c contender) MeanSize() float64 {
	return c.median(func(r scenario.Result) float64 { return r.MeanInstances })
}
func (c contender) Size() int { return int(math.Ceil(c.MeanSize() - 1e-9)) }

// Mean, P95 and P99 are response times in milliseconds.
func (c contender) Mean() float64 { return c.latency(quell.Mean) }
func (c contender) P95() float64  { return c.latency(quell.P95) }
func (c contender) P99() float64  { return c.latency(quell.P99) }

// Requests is the number of requests in all seeds, Failed is how many of them failed.
func (c contender) Requests() int64 {
	return c.sum(func(r scenario.Result) int64 { return r.Requests })
}
func (c contender) Failed() int64 { return c.sum(func(r scenario.Result) int64 { return r.Errors }) }

func (c contender) sum(value func(scenario.Result) int64) (sum int64) {
	for _, r := range c.plays {
		sum += value(r.Result)
	}
	return sum
}

func violationOf(r scenario.Result) float64 { return r.SLO.ViolationS }
func costOf(r scenario.Result) float64      { return r.InstanceSeconds }
func overOf(r scenario.Result) float64 {
	return float64(r.SLO.RequestsOver) / float64(max(1, r.Requests))
}
