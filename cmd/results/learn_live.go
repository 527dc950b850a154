package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// The runs of each timeline of learnLab, in their order. After these come groups of other sizes.
const (
	runTrained = iota
	runLearned
	runRival
	runRivalAgain // the same run as runRival, which shows how large chance is
	runOthers
)

// learnLab plays PRIMA that learns in place on the lab's machines, PRIMA that was trained, and least connections alone. Its runs are
// limited by their links, so several labs at once do not disturb each other.
func learnLab() labPage {
	return labPage{name: "learn", labs: 4, parts: []labPart{
		{name: "learn-steady", piece: "live", trains: true, seeds: 3, title: "One neighbour that stays (p90)", sum: learnedLive},
		{name: "learn-moving", piece: "live", seeds: 3, title: "A neighbour that moves from host to host (mean)", sum: learnedLive},
		{name: "learn-random", piece: "live", seeds: 3, title: "Neighbours at random beside four hosts (p90)", sum: learnedLive},
		{name: "learn-weak", piece: "live", seeds: 3, title: "Weak and strong neighbours, a moving load (mean)", sum: learnedLive},
	}}
}

// playLearnLive plays those runs of the lab that have no record yet.
func playLearnLive(ctx context.Context) error {
	lab := learnLab()
	return playParts(ctx, lab.parts, lab.labs, false)
}

// tailWindow is the length, in seconds, of the windows in which response times of two runs are compared.
const tailWindow = 20.0

// learnedFigures compare PRIMA that learned in place with its rivals on one timeline.
type learnedFigures struct {
	Rows    []contender
	Rival   string  // least connections alone that costs about as much
	Windows int     // windows of tailWindow seconds, of all seeds, in which both runs have requests
	Worse   int     // of these, with a p95 above the rival's by more than Chance
	Chance  float64 // by how many milliseconds the p95 of two equal runs of least connections differ: 95% of windows differ by less

	Front  float64 // violation, in seconds, that least connections alone would have at this cost, between its two sizes
	Beyond bool    // with every seed the learned run has less
}

// WorseShare is the share of the windows that are worse.
func (l learnedFigures) WorseShare() float64 { return float64(l.Worse) / float64(max(1, l.Windows)) }

// learnedLive sums up one timeline.
func learnedLive(f *partFigures, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	plays = slices.DeleteFunc(slices.Clone(plays), func(records []*experiment.Record) bool { return slices.Contains(records, nil) })
	if len(plays) == 0 {
		f.Missing = "live"
		return nil
	}
	l := &learnedFigures{Rows: contenders(sc, plays)}
	f.Learned = l
	rival := l.nearest()
	l.Rival = l.Rows[rival].Title
	var chance []float64
	for _, more := range tailsAbove(sc, plays, runRivalAgain, runRival) {
		chance = append(chance, math.Abs(more))
	}
	if slices.Sort(chance); len(chance) > 0 {
		l.Chance = stat.Quantile(0.95, stat.Empirical, chance, nil)
	}
	for _, more := range tailsAbove(sc, plays, runLearned, rival) {
		l.Windows++
		if more > l.Chance {
			l.Worse++
		}
	}
	l.front(plays)
	return nil
}

// tailsAbove returns by how many milliseconds the p95 of a run is above that of another run with the same seed, window by window.
func tailsAbove(sc *scenario.Scenario, plays [][]*experiment.Record, run, other int) (more []float64) {
	for _, records := range plays {
		for at := 0.0; at+tailWindow <= sc.Duration.Seconds(); at += tailWindow {
			a, b := records[run].Phase(at, at+tailWindow), records[other].Phase(at, at+tailWindow)
			if a.Requests > 0 && b.Requests > 0 {
				more = append(more, *a.LatencyMS.P95-*b.LatencyMS.P95)
			}
		}
	}
	return more
}

// rivals are the runs of least connections alone, one for each size.
func rivals(runs int) (list []int) {
	list = append(list, runRival)
	for run := runOthers; run < runs; run++ {
		list = append(list, run)
	}
	return list
}

// nearest is the rival whose cost is nearest to that of the learned run.
func (l *learnedFigures) nearest() int {
	cost := l.Rows[runLearned].Cost()
	return slices.MinFunc(rivals(len(l.Rows)), func(a, b int) int {
		return cmp.Compare(math.Abs(l.Rows[a].Cost()-cost), math.Abs(l.Rows[b].Cost()-cost))
	})
}

// front compares the violation of the learned run with that of least connections alone at the same cost, seed by seed.
func (l *learnedFigures) front(plays [][]*experiment.Record) {
	l.Beyond = true
	var fronts []float64
	for _, records := range plays {
		var sizes []scenario.Result
		for _, run := range rivals(len(records)) {
			sizes = append(sizes, records[run].Result)
		}
		it := records[runLearned].Result
		at := violationAt(sizes, it.InstanceSeconds)
		fronts = append(fronts, at)
		l.Beyond = l.Beyond && it.SLO.ViolationS < at
	}
	l.Front = middle(fronts)
}

// violationAt is the violation, in seconds, that groups of these sizes would have at a cost: on the lines between them. Outside it is that
// of the nearest one. It sorts the sizes.
func violationAt(sizes []scenario.Result, cost float64) float64 {
	slices.SortFunc(sizes, func(a, b scenario.Result) int { return cmp.Compare(a.InstanceSeconds, b.InstanceSeconds) })
	at := sizes[0].SLO.ViolationS
	for i, large := range sizes[1:] {
		small := sizes[i]
		if part := (cost - small.InstanceSeconds) / (large.InstanceSeconds - small.InstanceSeconds); part > 0 {
			at = small.SLO.ViolationS + min(part, 1)*(large.SLO.ViolationS-small.SLO.ViolationS)
		}
	}
	return at
}

// Timelines are the comparisons, one for each timeline.
func (f learnFigures) Timelines() (list []partFigures, err error) {
	for _, p := range learnLab().parts {
		part, err := f.Live.Part(p.name)
		if err != nil {
			return nil, err
		}
		list = append(list, part)
	}
	return list, nil
}

// Worse says in how many windows of all timelines the learned run was worse than its rival.
func (f learnFigures) Worse() (string, error) {
	parts, err := f.Timelines()
	worse, all := 0, 0
	for _, p := range parts {
		if p.Learned != nil {
			worse, all = worse+p.Learned.Worse, all+p.Learned.Windows
		}
	}
	if all == 0 {
		return notMeasured, err
	}
	return fmt.Sprintf("%d of %d windows (%.1f%%)", worse, all, 100*float64(worse)/float64(all)), err
}
