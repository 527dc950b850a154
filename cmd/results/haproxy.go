package main

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/policy"
)

// haproxyLab compares what can stand behind HAProxy on three timelines.
func haproxyLab() labPage {
	return labPage{name: "haproxy", head: haproxyHead, parts: haproxyParts(), tail: writeCombinations}
}

const haproxyHead = `# Behind HAProxy: which scheduling under PRIMA

Written by ` + "`go run ./cmd/results haproxy`" + ` (after ` + "`make build`" + `, as root) on %s.

PRIMA sets weights once a period; between two plans HAProxy's ` + "`balance`" + ` rule decides. This page compares the rules that honour
weights, each with PRIMA and alone, on real links: HAProxy in front of nginx on machines made of network namespaces with shaped links of 100 Mbit/s,
neighbours that are iperf3 sending UDP, files of 125 KB (10 ms alone), T = 1 s. Every run of a timeline gets the same requests and the same neighbours.

How to read the tables: each figure is the median of three seeds, with the range of violation beside it. *Violation* is the time in windows
in which some instance's metric was above the threshold. *Requests over* counts single requests above the threshold, whichever instance they met: it
does not depend on the judge's windows. A combination is *clearly worse* than least connections alone when all its seeds are worse than all of
the rival's, in violation and in requests over the threshold, where the rival is the fixed group as large as the combination's mean size rounded up.
`

// haproxyParts are the page's timelines.
func haproxyParts() []labPart {
	return []labPart{
		{name: "changing-interference", trains: true, seeds: 3, title: "A neighbour that moves from host to host",
			text:  "The objective is the mean. The load rises once; a neighbour takes 0.6 of one link, moves on to the next host, a second one joins it, and both end.",
			write: writeContest},
		{name: "random-neighbours", seeds: 3, title: "Neighbours at random beside four of five hosts",
			text:  "The objective is the p90. Each of the four neighbours takes half of its link, on for 15 s and off for 25 s on average. PRIMA's settings are the defaults.",
			write: writeContest},
		{name: "weak-neighbours", seeds: 3, title: "Weak and strong neighbours beside every host, a moving load",
			text:  "The objective is the mean. Each host's neighbour takes 0, 0.2 or 0.5 of the link, in turn at random. PRIMA's settings are the defaults.",
			write: writeContest},
	}
}

// writeCombinations says of each combination with PRIMA how it does against least connections alone, timeline by timeline.
func writeCombinations(b *bytes.Buffer, p labPage) error {
	fmt.Fprintf(b, "\n## Against least connections alone\n\nThe rival is least connections on a fixed group as large as the combination's mean size rounded up. Cost is the combination's instance-seconds against the rival's.\n\n")
	fmt.Fprintf(b, "| timeline | combination | rival | violation: it, rival | requests over: it, rival | p99: it, rival | cost | |\n|---|---|---|---|---|---|---|---|\n")
	for _, part := range p.parts {
		sc, err := part.load()
		if err != nil {
			return err
		}
		plays, err := part.records(sc)
		if err != nil {
			return err
		}
		all := contenders(sc, plays)
		for _, c := range all {
			if c.run.Policy.Name != policy.Default() {
				continue
			}
			i := slices.IndexFunc(all, func(r contender) bool { return r.isLeastConn() && r.run.Fixed == c.size() })
			if i < 0 {
				continue
			}
			rival := all[i]
			fmt.Fprintf(b, "| %s | %s | %s | %.0f s, %.0f s | %.1f%%, %.1f%% | %.0f ms, %.0f ms | %+.0f%% | %s |\n", sc.Name, c.title, rival.title,
				c.violation(), rival.violation(), 100*c.median(overOf), 100*rival.median(overOf),
				c.median(p99Of), rival.median(p99Of), 100*(c.cost()/rival.cost()-1), verdict(c, rival))
		}
	}
	fmt.Fprintln(b)
	return nil
}

func (c contender) isLeastConn() bool {
	return c.run.Policy.Name == policy.Plain && c.run.Scheduling == quell.LeastConn && c.run.Balancer == ""
}

// verdict compares all seeds of one with all of the other.
func verdict(c, rival contender) string {
	switch {
	case c.allBelow(rival, violationOf) && c.allBelow(rival, overOf):
		return "clearly better"
	case rival.allBelow(c, violationOf) && rival.allBelow(c, overOf):
		return "**clearly worse**"
	case rival.allBelow(c, violationOf) || rival.allBelow(c, overOf):
		return "worse in one of the two"
	}
	return "not clearly different, or better in one of the two"
}

// allBelow says whether each seed of c has a smaller value than each seed of the other.
func (c contender) allBelow(other contender, value func(quell.Result) float64) bool {
	return slices.Max(c.of(value)) < slices.Min(other.of(value))
}

func p99Of(r quell.Result) float64 { v, _ := r.LatencyMS.Of(quell.P99); return v }

// contender is a run of the comparison with the rivals, over its seeds.
type contender struct {
	run   scenario.Run
	title string
	plays []*experiment.Record
}

func contenders(sc *scenario.Scenario, plays [][]*experiment.Record) (all []contender) {
	for i, run := range sc.Runs {
		c := contender{run: run, title: experiment.Title(sc, run)}
		for _, records := range plays {
			if r := records[i]; r != nil {
				c.plays = append(c.plays, r)
			}
		}
		if len(c.plays) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// of returns the values of its plays in order of size.
func (c contender) of(value func(quell.Result) float64) []float64 {
	var values []float64
	for _, r := range c.plays {
		values = append(values, value(r.Result))
	}
	slices.Sort(values)
	return values
}

func (c contender) median(value func(quell.Result) float64) float64 {
	values := c.of(value)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

func (c contender) violation() float64 { return c.median(violationOf) }
func (c contender) cost() float64      { return c.median(costOf) }
func (c contender) size() int {
	return int(math.Ceil(c.median(func(r quell.Result) float64 { return r.MeanInstances }) - 1e-9))
}

func violationOf(r quell.Result) float64 { return r.SLO.ViolationS }
func costOf(r quell.Result) float64      { return r.InstanceSeconds }
func overOf(r quell.Result) float64 {
	return float64(r.SLO.RequestsOver) / float64(max(1, r.Requests))
}

// writeContest writes the comparison with the rivals.
func writeContest(b *bytes.Buffer, plots string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	all := contenders(sc, plays)
	writeContenders(b, all)
	var best *contender
	for i, c := range all {
		if c.run.Policy.Name == policy.Default() && (best == nil || c.violation() < best.violation()) {
			best = &all[i]
		}
	}
	if best != nil {
		writeVerdict(b, *best, all)
	}
	tradeoff := "tradeoff-" + sc.Name + ".png"
	if err := plotTradeoff(filepath.Join(plots, tradeoff), all); err != nil {
		return err
	}
	folder := filepath.Base(plots)
	fmt.Fprintf(b, "![violation against cost](%s/%s)\n\n", folder, tradeoff)
	for i, r := range plays[0] {
		if r == nil || r.Run.Policy.Name != policy.Default() {
			continue
		}
		name := fmt.Sprintf("%s-%d.png", sc.Name, i+1)
		if err := plotRun(filepath.Join(plots, name), experiment.Title(sc, sc.Runs[i])+", first seed", sc, r); err != nil {
			return err
		}
		fmt.Fprintf(b, "![%s over time](%s/%s)\n\n", experiment.Title(sc, sc.Runs[i]), folder, name)
	}
	return nil
}

func writeContenders(b *bytes.Buffer, all []contender) {
	fmt.Fprintf(b, "| run | seeds | violation | requests over the threshold | instance-seconds | mean size | mean | p95 | p99 | failed |\n|---|---|---|---|---|---|---|---|---|---|\n")
	latency := func(m quell.Metric) func(quell.Result) float64 {
		return func(r quell.Result) float64 { v, _ := r.LatencyMS.Of(m); return v }
	}
	for _, c := range all {
		violation := c.of(violationOf)
		var failed, requests int64
		for _, r := range c.plays {
			failed, requests = failed+r.Result.Errors, requests+r.Result.Requests
		}
		fmt.Fprintf(b, "| %s | %d | %.0f s (%.0f to %.0f) | %.1f%% | %.0f | %.2f | %.1f ms | %.1f ms | %.1f ms | %d of %d |\n", c.title, len(c.plays), c.violation(), violation[0], violation[len(violation)-1],
			100*c.median(overOf), c.cost(), c.median(func(r quell.Result) float64 { return r.MeanInstances }),
			c.median(latency(quell.Mean)), c.median(latency(quell.P95)), c.median(latency(quell.P99)), failed, requests)
	}
	fmt.Fprintln(b)
}

// writeVerdict holds PRIMA against the fixed groups as large as its mean size rounded up.
func writeVerdict(b *bytes.Buffer, best contender, all []contender) {
	fmt.Fprintf(b, "PRIMA over %s has the fewest violations of its combinations; its mean size rounded up is %d. Against rivals of that size:\n\n", best.run.Scheduling, best.size())
	for _, c := range all {
		if c.run.Policy.Name == policy.Default() || c.run.Fixed != best.size() {
			continue
		}
		fmt.Fprintf(b, "- %s: PRIMA is in violation for %.0f s, it for %.0f s; at %+.0f%% of its cost.\n", c.title, best.violation(), c.violation(), 100*(best.cost()/c.cost()-1))
	}
	fmt.Fprintln(b)
}
