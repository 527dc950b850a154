package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
)

// nameSeeds is how many runs of each row of the live confusion matrix there are; the paper has 10 of each.
const nameSeeds = 10

// dialLab has the page's experiments on the lab's machines. They are played one at a time, because neighbours on the processors or the
// memory of one lab would disturb another lab.
func dialLab() labPage {
	page := labPage{name: "dial", labs: 1}
	for _, r := range []string{"network", "cpu", "disk", "memory"} {
		page.parts = append(page.parts, labPart{name: "dial-" + r, trains: r == "network", title: "Contention of the " + r, sum: tails})
	}
	for _, row := range namedLive {
		page.parts = append(page.parts, labPart{name: row.part, seeds: nameSeeds, title: row.neighbour, sum: named})
	}
	return page
}

// namedLive are the rows of the live confusion matrix: the resource that a neighbour uses, which training never saw.
var namedLive = []struct{ part, truth, neighbour string }{
	{"dial-names-network", "network", "a key-value server"},
	{"dial-names-cpu", "cpu", "a compiler"},
	{"dial-names-disk", "disk", "a sort"},
	{"dial-names-pgbench", "disk", "a database"},
	{"dial-names-memory", "memory", "a stream through memory"},
	{"dial-names-load", "load change", "none"},
}

// playDial plays experiments of the lab: all that are not complete (live), or the one of that name again.
func playDial(ctx context.Context, name string) error {
	lab := dialLab()
	if name == "live" {
		return playParts(ctx, lab.parts, lab.labs, false)
	}
	i := slices.IndexFunc(lab.parts, func(p labPart) bool { return p.name == name })
	if i < 0 {
		return fmt.Errorf("the dial page has no part %q", name)
	}
	return playParts(ctx, lab.parts[i:i+1], lab.labs, true)
}

// tailRow is a run of Figure 7: its p90 before the contention, and while it lasts.
type tailRow struct {
	Title            string
	CalmMS, MS       float64
	Against          float64 // the p90 in contention, relative to that of the first run
	Requests, Failed int
}

// Growth is how many times the calm p90 that in contention is.
func (r tailRow) Growth() float64 { return r.MS / r.CalmMS }

// tails sums up a scenario of Figure 7. The contention counts from the end of the second period after its onset on: until then no policy
// can have acted.
func tails(f *partFigures, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	onset, end := contention(sc)
	for i, r := range plays[0] {
		if r == nil {
			continue
		}
		calm, contended := r.Phase(0, onset), r.Phase(onset+2*sc.Service.Sampling.Seconds(), end)
		row := tailRow{Title: experiment.Title(sc, sc.Runs[i]), Requests: contended.Requests, Failed: contended.Failed}
		row.CalmMS, row.MS = p90Of(calm.LatencyMS), p90Of(contended.LatencyMS)
		row.Against = row.MS
		if len(f.Tails) > 0 {
			row.Against = f.Tails[0].MS
		}
		row.Against = row.MS / row.Against
		f.Tails = append(f.Tails, row)
	}
	return nil
}

// contention is when a scenario's neighbours come, and when they go, in seconds.
func contention(sc *scenario.Scenario) (onset, end float64) {
	onset, end = sc.Timeline[0].At.Seconds(), sc.Duration.Seconds()
	if len(sc.Timeline) > 1 {
		end = sc.Timeline[1].At.Seconds()
	}
	return onset, end
}

func p90Of(l quell.Latency) float64 {
	if ms, ok := l.Of(quell.P90); ok {
		return ms
	}
	return math.NaN()
}

// namedRow is what DIAL named in the runs of a scenario.
type namedRow struct {
	confusionRow
	Neighbour string
	Runs      int
	Elsewhere int // plans that named a resource of an instance without a neighbour
}

// named sums up the runs of a scenario of the live confusion matrix, as detectOnce does in the simulator.
func named(f *partFigures, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	row := namedRow{confusionRow: confusionRow{Named: make([]int, len(dialCauses))}}
	for _, known := range namedLive {
		if known.part == sc.Name {
			row.Truth, row.Neighbour = known.truth, known.neighbour
		}
	}
	onset, end := contention(sc)
	var delays []float64
	for _, records := range plays {
		if records[0] == nil {
			continue
		}
		row.Runs++
		counts, first := map[string]int{}, math.Inf(1)
		for _, c := range records[0].Causes {
			if c.AtS < onset || c.AtS >= end {
				continue
			}
			for id, cause := range c.Named {
				if !disturbs(sc, id) {
					row.Elsewhere++
					continue
				}
				counts[string(cause)]++
				first = min(first, c.AtS)
			}
		}
		row.Named[slices.Index(dialCauses, mostNamed(counts))]++
		if !math.IsInf(first, 1) {
			delays = append(delays, math.Ceil((first-onset)/sc.Service.Sampling.Seconds()))
		}
	}
	if len(delays) > 0 {
		row.Periods, row.Most = estimateOf(delays), slices.Max(delays)
	}
	f.Named = &row
	return nil
}

// disturbs returns whether the scenario's neighbour is beside an instance: the scaler starts i1 on h1, i2 on h2 and so on. If there is no
// neighbour, every instance counts.
func disturbs(sc *scenario.Scenario, id string) bool {
	n := sc.Timeline[0].Interfere
	return n == nil || strings.TrimPrefix(n.Host, "h") == strings.TrimPrefix(id, "i")
}

// mostNamed is the class that most plans of a run name, if at least two do.
func mostNamed(counts map[string]int) string {
	class, most := model.NotContended, 1
	for _, c := range dialCauses[:4] {
		if counts[c] > most {
			class, most = c, counts[c]
		}
	}
	return class
}

// NamedLive are the rows of the live confusion matrix that have been played.
func (f dialFigures) NamedLive() (rows []namedRow, err error) {
	for _, known := range namedLive {
		part, err := f.Live.Part(known.part)
		if err != nil {
			return nil, err
		}
		if part.Named != nil {
			rows = append(rows, *part.Named)
		}
	}
	return rows, nil
}

// NameSeeds is how many runs each row of the live confusion matrix has.
func (f dialFigures) NameSeeds() int { return nameSeeds }

// TailParts are the parts of Figure 7.
func (f dialFigures) TailParts() (names []string) {
	for _, p := range dialLab().parts {
		if p.seeds == 0 {
			names = append(names, p.name)
		}
	}
	return names
}
