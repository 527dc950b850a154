package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/experiment"
	"github.com/quellhq/quell/scenario"
	"github.com/quellhq/quell/train"
)

// writeValidation writes Table II from what `quell lab validate` measured.
func writeValidation(b *bytes.Buffer, name string) error {
	data, err := os.ReadFile(filepath.Join(labDir, name, "validation.json"))
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(b, "Not measured yet: `go run ./cmd/results prima:%s`.\n", name)
		return nil
	}
	if err != nil {
		return err
	}
	var v experiment.Validation
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	fmt.Fprintf(b, "| U | U_int | SF | R | predicted | error | p95 | predicted | error | 1 + SF | joint | error | total | error |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range v.Points {
		fmt.Fprintf(b, "| %s | %s | %.2f | %.1f ms | %.1f ms | %.1f%% | %.1f ms | %.1f ms | %.1f%% | %.2f | %.2f | %.1f%% | %.2f | %.1f%% |\n", percent(p.Utilization), percent(p.Interfering), p.Severity,
			p.MeanMS, p.PredictedMeanMS, 100*off(p.PredictedMeanMS, p.MeanMS), p.P95MS, p.PredictedP95MS, 100*off(p.PredictedP95MS, p.P95MS),
			1+p.Severity, 1+p.SeverityJoint, 100*off(1+p.SeverityJoint, 1+p.Severity), 1+p.SeverityTotal, 100*off(1+p.SeverityTotal, 1+p.Severity))
	}
	fmt.Fprintf(b, "\n| model | paper: mean, largest | ours: mean, largest |\n|---|---|---|\n")
	for _, line := range []struct {
		name, paper string
		error       func(experiment.ValidationPoint) float64
	}{
		{"response time, mean (Eq. 2)", "7.2%, 9.8%", func(p experiment.ValidationPoint) float64 { return off(p.PredictedMeanMS, p.MeanMS) }},
		{"response time, p95", "-", func(p experiment.ValidationPoint) float64 { return off(p.PredictedP95MS, p.P95MS) }},
		{"interference, joint, of the probe time 1 + SF", "-", func(p experiment.ValidationPoint) float64 { return off(1+p.SeverityJoint, 1+p.Severity) }},
		{"interference, total (Eq. 3), of 1 + SF", "6.9%, -", func(p experiment.ValidationPoint) float64 { return off(1+p.SeverityTotal, 1+p.Severity) }},
	} {
		var values []float64
		for _, p := range v.Points {
			values = append(values, line.error(p))
		}
		mean, most := meanAndMost(values)
		fmt.Fprintf(b, "| %s | %s | %.1f%%, %.1f%% |\n", line.name, line.paper, 100*mean, 100*most)
	}
	fmt.Fprintf(b, "\n%d runs in training; the errors are relative to what was measured.\n", v.Rows)
	return nil
}

// writeProbing writes what `quell lab probing` measured.
func writeProbing(b *bytes.Buffer, p labPart) error {
	data, err := os.ReadFile(filepath.Join(labDir, p.of, "probing.json"))
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(b, "Not measured yet: `go run ./cmd/results prima:%s`.\n", p.name)
		return nil
	}
	if err != nil {
		return err
	}
	var scores []train.ProbingScore
	if err := json.Unmarshal(data, &scores); err != nil {
		return err
	}
	const link = 100e6 // bit/s, of the scenario
	fmt.Fprintf(b, "| downloads | bytes each | share of the link | severity | error | alone | against 1 x 1 MB |\n|---|---|---|---|---|---|---|\n")
	for _, s := range scores {
		fmt.Fprintf(b, "| %d | %d | %.1f%% | %.2f | %.3f | %.3f | %.2f |\n", s.Count, s.Bytes, 100*s.Share(link), s.Severity, s.Error, s.Alone, s.Error/scores[0].Error)
	}
	return nil
}

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
		if c.run.Policy == "prima" && (best == nil || c.violation() < best.violation()) {
			best = &all[i]
		}
	}
	if best != nil {
		writeVerdict(b, *best, all)
	}
	if err := plotTradeoff(filepath.Join(plots, "tradeoff.png"), all); err != nil {
		return err
	}
	fmt.Fprintf(b, "![violation against cost](prima/tradeoff.png)\n\n")
	for i, r := range plays[0] {
		if r == nil || r.Run.Policy != "prima" {
			continue
		}
		name := fmt.Sprintf("%s-%d.png", sc.Name, i+1)
		if err := plotRun(filepath.Join(plots, name), experiment.Title(sc, sc.Runs[i])+", first seed", sc, r); err != nil {
			return err
		}
		fmt.Fprintf(b, "![%s over time](prima/%s)\n\n", experiment.Title(sc, sc.Runs[i]), name)
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
	fmt.Fprintf(b, "PRIMA over %s has the fewest violations of its two; its mean size rounded up is %d. Against rivals of that size:\n\n", best.run.Scheduling, best.size())
	for _, c := range all {
		if c.run.Policy == "prima" || c.run.Fixed != best.size() {
			continue
		}
		fmt.Fprintf(b, "- %s: PRIMA is in violation for %.0f s, it for %.0f s; at %+.0f%% of its cost.\n", c.title, best.violation(), c.violation(), 100*(best.cost()/c.cost()-1))
	}
	fmt.Fprintln(b)
}

// writeReaction takes the time from each onset to the first change after it.
func writeReaction(b *bytes.Buffer, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	r := plays[0][0]
	const lasts = 7 // seconds of interference: what is done later is no reaction to it
	var delays []float64
	for _, mark := range sc.Marks() {
		at := mark.Seconds()
		if i := slices.IndexFunc(r.Changes, func(c float64) bool { return c >= at }); i >= 0 && r.Changes[i] < at+lasts {
			delays = append(delays, r.Changes[i]-at)
		}
	}
	if len(delays) == 0 {
		fmt.Fprintln(b, "No plan was applied at all.")
		return nil
	}
	slices.Sort(delays)
	fmt.Fprintf(b, "A plan was applied in %d of %d onsets: after %.1f s in the median, %.1f s at least, %.1f s at most. The interferer's own start, until its first byte, is part of it. %d requests failed.\n",
		len(delays), len(sc.Marks()), delays[len(delays)/2], delays[0], delays[len(delays)-1], r.Result.Errors)
	return nil
}

func writeQuiet(b *bytes.Buffer, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	r := plays[0][0]
	periods := sc.Duration.Seconds() / sc.Service.Sampling.Seconds()
	fmt.Fprintf(b, "%d plans changed something in %.0f periods: %.1f%%.\n", r.Result.Decisions, periods, 100*float64(r.Result.Decisions)/periods)
	return nil
}
