package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quellhq/quell/examples"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
)

// contestFleet is a fleet with neighbours, or with a load that jumps, under PRIMA and its rivals, all over least connections.
type contestFleet struct {
	Name string       `json:"name"`
	Runs []contestRun `json:"runs"`
}

// contestRun has medians over seeds.
type contestRun struct {
	Title  string  `json:"title"`
	Family string  `json:"family"`
	Missed float64 `json:"missed_s"` // seconds in which at least one instance missed the objective
	Over   float64 `json:"over"`     // part of the requests
	Cost   float64 `json:"cost"`     // instance-seconds
	P99MS  float64 `json:"p99_ms"`
}

// The families of runs.
const (
	ownSingle, ownPooled = "single", "pooled"
	fixedSize, autoscale = "fixed", "autoscaler"
)

// rivalSeeds are not those by which any rule was chosen.
var rivalSeeds = []uint64{901, 902, 903}

// contestFleets names the fleets, and the sizes that are tried beside those that PRIMA's cost buys. The first four have up to
// 24 machines, the others twelve.
var contestFleets = []struct {
	name  string
	sizes []int
}{
	{"fleet-calm", []int{8, 10, 12, 14}}, {"fleet-storm", []int{12, 14, 16, 18}},
	{"fleet-rolling", []int{8, 10, 12, 14}}, {"fleet-mixed", []int{8, 10, 12, 14}},
	{"twelve-calm", []int{7, 8, 9, 10}}, {"twelve-moving", []int{7, 8, 9, 10}},
	{"twelve-random", []int{8, 9, 10, 11}}, {"twelve-weak", []int{8, 9, 10, 11}},
	{"twelve-moving" + byHAProxy, []int{7, 8, 9, 10}}, {"twelve-random" + byHAProxy, []int{8, 9, 10, 11}},
	{"twelve-weak" + byHAProxy, []int{8, 9, 10, 11}},
}

// byHAProxy ends the name of a fleet whose least connections are those of HAProxy.
const byHAProxy = " (HAProxy)"

// targets are the utilisations that the autoscaler is told to keep, in percent.
var targets = []int{35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90}

// playContests plays every fleet with every seed.
func playContests(ctx context.Context) ([]contestFleet, error) {
	all := make([]contestFleet, len(contestFleets))
	return all, playAll(len(all), func(i int) error {
		all[i].Name = contestFleets[i].name
		return all[i].play(ctx, contestFleets[i].sizes)
	})
}

// play plays PRIMA first, and then rivals of these sizes, and of the sizes next to what PRIMA cost.
func (f *contestFleet) play(ctx context.Context, sizes []int) error {
	sc, families, err := contestScenario(f.Name, nil, nil)
	if err != nil {
		return err
	}
	if err := f.playRuns(ctx, sc, families); err != nil {
		return err
	}
	pooled := f.Runs[slices.IndexFunc(f.Runs, func(r contestRun) bool { return r.Family == ownPooled })]
	all := map[int]bool{}
	for _, n := range slices.Concat(sizes, bought(pooled.Cost/sc.Duration.Seconds(), sc.Service.Group.Max)) {
		all[n] = true
	}
	if sc, families, err = contestScenario(f.Name, slices.Sorted(maps.Keys(all)), targets); err != nil {
		return err
	}
	sc.Runs, families = sc.Runs[len(f.Runs):], families[len(f.Runs):]
	return f.playRuns(ctx, sc, families)
}

// bought are the sizes next to what a mean size costs: the largest that costs no more, and one more. There are at most so many.
func bought(mean float64, most int) (sizes []int) {
	for _, n := range []int{int(math.Floor(sameCost * mean)), int(math.Ceil(sameCost * mean))} {
		if n <= most && !slices.Contains(sizes, n) {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// playRuns plays all runs with every seed.
func (f *contestFleet) playRuns(ctx context.Context, sc *scenario.Scenario, families []string) error {
	for i, run := range sc.Runs {
		var results []scenario.Result
		for _, seed := range rivalSeeds {
			r, err := sim.Run(ctx, sim.Options{Scenario: sc, Run: run, Seed: seed})
			if err != nil {
				return fmt.Errorf("%s, %s: %w", f.Name, experiment.Title(sc, run), err)
			}
			results = append(results, r)
		}
		f.Runs = append(f.Runs, medians(experiment.Title(sc, run), families[i], results))
	}
	return nil
}

// contestScenario returns the fleet's scenario with PRIMA's runs and those of rivals, and the family of each.
func contestScenario(fleet string, sizes, targets []int) (*scenario.Scenario, []string, error) {
	name, byRule := strings.CutSuffix(fleet, byHAProxy)
	text, known := examples.Lab()[name]
	if !known {
		var err error
		if text, err = os.ReadFile(filepath.Join("examples", "scenarios", name+".yaml")); err != nil {
			return nil, nil, err
		}
	}
	head, _, _ := bytes.Cut(text, []byte("\nruns:"))
	runs, families := bytes.NewBuffer(slices.Clone(head)), []string{ownSingle, ownPooled}
	fmt.Fprintln(runs, "\nruns:")
	for _, pooling := range []string{"0", "learned"} {
		fmt.Fprintf(runs, "  - {policy: {name: prima, pooling: %s}, scheduling: leastconn, models: learn}\n", pooling)
	}
	for _, n := range sizes {
		fmt.Fprintf(runs, "  - {policy: static, scheduling: leastconn, fixed: %d}\n", n)
		families = append(families, fixedSize)
	}
	for _, target := range targets {
		fmt.Fprintf(runs, "  - {policy: {name: hpa, utilization: %d%%}, scheduling: leastconn}\n", target)
		families = append(families, autoscale)
	}
	sc, err := scenario.Parse(name, runs.Bytes())
	if err != nil {
		return nil, nil, err
	}
	for i := range sc.Runs {
		if byRule {
			sc.Runs[i].Balancer = scenario.HAProxy
		}
	}
	return sc, families, nil
}

func medians(title, family string, results []scenario.Result) contestRun {
	return contestRun{Title: title, Family: family,
		Missed: median(results, func(r scenario.Result) float64 { return r.SLO.ViolationS }),
		Over:   median(results, func(r scenario.Result) float64 { return float64(r.SLO.RequestsOver) / float64(max(r.Requests, 1)) }),
		Cost:   median(results, func(r scenario.Result) float64 { return r.InstanceSeconds }),
		P99MS:  median(results, func(r scenario.Result) float64 { return *r.LatencyMS.P99 })}
}

// sameCost is how much more than PRIMA a rival of the same cost may cost.
const sameCost = 1.01

// Shown are PRIMA's runs and, of each family of rivals, the best in hindsight: of those that cost no more than PRIMA, the one with the
// fewest requests over the threshold; if all cost more, the cheapest.
func (f contestFleet) Shown() (shown []contestRun) {
	of := map[string][]contestRun{}
	for _, r := range f.Runs {
		of[r.Family] = append(of[r.Family], r)
	}
	shown = slices.Concat(of[ownSingle], of[ownPooled])
	most := sameCost * of[ownPooled][0].Cost
	for _, family := range []string{fixedSize, autoscale} {
		rivals := of[family]
		tooDear := func(r contestRun) bool { return r.Cost > most }
		if fit := slices.DeleteFunc(slices.Clone(rivals), tooDear); len(fit) > 0 {
			shown = append(shown, slices.MinFunc(fit, func(a, b contestRun) int { return cmp.Compare(a.Over, b.Over) }))
		} else {
			shown = append(shown, slices.MinFunc(rivals, func(a, b contestRun) int { return cmp.Compare(a.Cost, b.Cost) }))
		}
	}
	return shown
}
