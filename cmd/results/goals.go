package main

import (
	"fmt"
	"regexp"
	"strconv"
)

// benchmarkGoal is a figure that benchmarks print, with its limit. Of several figures the worst counts.
type benchmarkGoal struct {
	pattern string  // the figure is its group
	times   float64 // what the figure is multiplied by
	unit    string
	limit   float64
	least   bool // the limit is the least, not the largest
}

// benchmarkGoals are those of docs/results/speed.md and resources.md.
var benchmarkGoals = map[string]benchmarkGoal{
	"prima-1000":  {pattern: `BenchmarkPRIMA/1000/.*\s([\d.]+) ns/op`, times: 1e-6, unit: " ms", limit: 2},
	"prima-10000": {pattern: `BenchmarkPRIMA/10000/.*\s([\d.]+) ns/op`, times: 1e-6, unit: " ms", limit: 25},
	"throughput":  {pattern: `BenchmarkThroughput/.*\s([\d.]+) req/s`, times: 1, unit: " requests/s", limit: 15_000, least: true},
	"added":       {pattern: `BenchmarkAddedLatency.*\s([\d.]+) added-ms-p50`, times: 1, unit: " ms", limit: 0.3},
	"lost-1s":     {pattern: `(?m)BenchmarkLoadedService/T=1s.*\s([-\d.]+) %lost(?:\s|$)`, times: 1, unit: "%", limit: 1},
	"lost-10s":    {pattern: `(?m)BenchmarkLoadedService/T=10s.*\s([-\d.]+) %lost(?:\s|$)`, times: 1, unit: "%", limit: 1},
	"agent-1s":    {pattern: `agent at T=1s, .*: ([\d.]+)% of a core`, times: 1, unit: "%", limit: 1},
	"agent-10s":   {pattern: `agent at T=10s, .*: ([\d.]+)% of a core`, times: 1, unit: "%", limit: 1},
}

// goalIn says what benchmarks printed for a goal, and whether it is reached.
func goalIn(name, printed string) (string, error) {
	g, known := benchmarkGoals[name]
	if !known {
		return "", fmt.Errorf("there is no goal %q", name)
	}
	var worst float64
	found := regexp.MustCompile(g.pattern).FindAllStringSubmatch(printed, -1)
	for i, m := range found {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return "", err
		}
		if v *= g.times; i == 0 || g.least == (v < worst) {
			worst = v
		}
	}
	if len(found) == 0 {
		return "not measured", nil
	}
	return goalText(worst, g.unit, g.least && worst >= g.limit || !g.least && worst <= g.limit), nil
}

// goalText is a figure with three digits, and whether it reaches its goal.
func goalText(v float64, unit string, reached bool) string {
	text := fmt.Sprintf("%.3g", v)
	if v >= 1000 {
		text = fmt.Sprintf("%.0f", v)
	}
	if reached {
		return text + unit + ", reached"
	}
	return text + unit + ", missed"
}
