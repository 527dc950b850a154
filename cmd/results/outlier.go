package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/policy/table"
)

// outlierPart measures one part of the page's figures.
type outlierPart func(ctx context.Context, d *outlierData) error

// outlierMeasured finds a part of the page by name: one of these, or a single experiment of the lab, such as outlier-slow. The
// figures of parts that are not measured again are read from outlier.json.
func outlierMeasured(name string) (part outlierPart, ok bool) {
	switch name {
	case "simulated":
		return simulateOutliers, true
	case "live":
		return func(ctx context.Context, d *outlierData) error { return playOutliers(ctx, d, outlierParts()) }, true
	case "page":
		return func(context.Context, *outlierData) error { return nil }, true
	}
	for _, p := range outlierParts() {
		if p.name == name {
			return func(ctx context.Context, d *outlierData) error { return playOutliers(ctx, d, []labPart{p}) }, true
		}
	}
	return nil, false
}

// outlierPage compares policy outlier with Envoy's outlier detection, simulated and on real links.
func outlierPage(ctx context.Context, dir string) error {
	return outlierPagePart(ctx, dir, "simulated", "live")
}

func outlierPagePart(ctx context.Context, dir string, parts ...string) error {
	var d outlierData
	path := filepath.Join(dir, "outlier.json")
	if _, err := readJSON(path, &d); err != nil {
		return err
	}
	for _, name := range parts {
		measure, ok := outlierMeasured(name)
		if !ok {
			return fmt.Errorf("the outlier page has no part %q", name)
		}
		if err := measure(ctx, &d); err != nil {
			return err
		}
	}
	if err := writeJSON(path, d); err != nil {
		return err
	}
	return writePage(dir, "outlier", newOutlierFigures(d))
}

// outlierData has all measured figures, as they are in outlier.json.
type outlierData struct {
	Machine   string        `json:"machine"` // machine of the live part, in words
	Simulated []outlierCase `json:"simulated"`
	Live      []outlierCase `json:"live"`
}

// outlierCase has the figures of one scenario.
type outlierCase struct {
	Scenario  string       `json:"scenario"`
	DurationS float64      `json:"duration_s"`
	Calm      bool         `json:"calm"` // nothing is wrong in this scenario
	Seeds     int          `json:"seeds"`
	Load      string       `json:"load,omitempty"`     // the machine's load average before and after; live only
	Doubtful  int          `json:"doubtful,omitempty"` // runs whose load generator sent more than 1% of the requests late; live only
	Runs      []outlierRun `json:"runs"`
}

// outlierRun has one contender's figures, seed by seed.
type outlierRun struct {
	Title      string    `json:"title"`
	Envoy      string    `json:"envoy,omitempty"` // settings of Envoy's outlier detection
	Outlier    bool      `json:"outlier,omitempty"`
	ReactionS  []float64 `json:"reaction_s"` // only of the seeds in which anything was done
	ViolationS []float64 `json:"violation_s"`
	Failed     []float64 `json:"failed"`
	Over       []float64 `json:"over"`                 // requests above the threshold, failed ones included
	Sent       []float64 `json:"sent,omitempty"`       // requests to the faulty instance while it is at fault; live only
	AtFaultS   []float64 `json:"at_fault_s,omitempty"` // the part of the violation that this instance causes; live only
	Changes    []float64 `json:"changes"`              // ejections and returns, changes of shares
	Requests   float64   `json:"requests"`             // requests in all seeds
}

func (r *outlierRun) add(result scenario.Result) {
	if result.ReactionS != nil {
		r.ReactionS = append(r.ReactionS, result.ReactionS.Max)
	}
	r.ViolationS = append(r.ViolationS, result.SLO.ViolationS)
	r.Failed = append(r.Failed, float64(result.Errors))
	r.Over = append(r.Over, float64(result.SLO.RequestsOver))
	r.Requests += float64(result.Requests)
}

// newOutlierRun is a run without figures.
func newOutlierRun(sc *scenario.Scenario, run scenario.Run) outlierRun {
	return outlierRun{Title: experiment.Title(sc, run), Envoy: string(run.Ejection), Outlier: run.Policy.Fast.Name != ""}
}

// outlierSeeds is how many seeds each simulated scenario is played with; the calm hour has fewer.
const (
	outlierSeeds     = 20
	outlierCalmSeeds = 10
)

// simulateOutliers plays the scenarios in the simulator, with more contenders than in the lab.
func simulateOutliers(ctx context.Context, d *outlierData) error {
	scenarios, err := outlierScenarios()
	if err != nil {
		return err
	}
	d.Simulated = nil
	for _, sc := range scenarios {
		c, err := simulateOutlier(ctx, sc)
		if err != nil {
			return fmt.Errorf("%s: %w", sc.Name, err)
		}
		d.Simulated = append(d.Simulated, c)
	}
	return nil
}

// outlierScenarios are the scenarios of the lab, with the calm one an hour long, a scenario in which only a part of the requests
// fails, and two of the library.
func outlierScenarios() (list []*scenario.Scenario, err error) {
	add := func(sc *scenario.Scenario, problem error) *scenario.Scenario {
		if err == nil {
			err = problem
		}
		list = append(list, sc)
		return sc
	}
	for _, p := range outlierParts() {
		sc := add(p.load())
		if err == nil && p.name == "outlier-calm" {
			sc.Stretch(time.Hour)
		}
	}
	partly := add(labPart{name: "outlier-errors"}.load())
	for _, name := range []string{"linkerd-stuck", "envoy-slow"} {
		add(scenario.Load(filepath.Join("examples", "scenarios", name+".yaml")))
	}
	if err != nil {
		return nil, err
	}
	partly.Name, partly.Timeline[0].Errors = "outlier-errors, 30% of its requests", &scenario.Errors{Host: "h5", Share: 0.3}
	for _, sc := range list {
		for i := range sc.Timeline[1:] {
			sc.Timeline[i+1].Mark = "" // only the onset is marked, from which reactions are measured
		}
	}
	return list, nil
}

// outlierContenders are the runs of each simulated scenario.
func outlierContenders() (runs []scenario.Run) {
	plain := quell.Policy{Name: table.All.Plain()}
	cutting := plain
	cutting.Fast = quell.Fast{Name: "outlier"}
	for _, s := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn, quell.Random2} {
		runs = append(runs, scenario.Run{Policy: plain, Scheduling: s}, scenario.Run{Policy: cutting, Scheduling: s})
	}
	for _, s := range []quell.Scheduling{quell.RoundRobin, quell.Random2} {
		for _, e := range scenario.Ejections {
			runs = append(runs, scenario.Run{Policy: plain, Scheduling: s, Balancer: scenario.Envoy, Ejection: e})
		}
	}
	return runs
}

func simulateOutlier(ctx context.Context, sc *scenario.Scenario) (outlierCase, error) {
	c := outlierCase{Scenario: sc.Name, DurationS: sc.Duration.Seconds(), Calm: len(sc.Marks()) == 0}
	seeds := outlierSeeds
	if c.Calm {
		seeds = outlierCalmSeeds
	}
	c.Seeds = seeds
	for _, run := range outlierContenders() {
		r, err := simulateOutlierRun(ctx, sc, run, seeds)
		if err != nil {
			return c, err
		}
		c.Runs = append(c.Runs, r)
		fmt.Fprintf(os.Stderr, "outlier: %s of %s done\n", r.Title, sc.Name)
	}
	return c, nil
}

func simulateOutlierRun(ctx context.Context, sc *scenario.Scenario, run scenario.Run, seeds int) (outlierRun, error) {
	r := newOutlierRun(sc, run)
	results, err := simulateSeeds(ctx, sc, run, seeds)
	for _, result := range results {
		r.add(result)
		r.Changes = append(r.Changes, float64(result.Decisions))
	}
	return r, err
}

// simulateSeeds plays a run with the seeds from 1 to seeds, as many plays at once as there are processors.
func simulateSeeds(ctx context.Context, sc *scenario.Scenario, run scenario.Run, seeds int) ([]scenario.Result, error) {
	results := make([]scenario.Result, seeds)
	err := playAll(seeds, func(i int) (err error) {
		results[i], err = sim.Run(ctx, sim.Options{Scenario: sc, Run: run, Seed: uint64(i + 1)})
		return err
	})
	return results, err
}

// outlierParts are the experiments of the lab.
func outlierParts() []labPart {
	return []labPart{
		{name: "outlier-errors", seeds: 3},
		{name: "outlier-stuck", seeds: 3},
		{name: "outlier-slow", seeds: 3},
		{name: "outlier-calm", seeds: 1},
	}
}

// outlierLabs is how many experiments are played at once: one experiment, at 600 requests a second, uses a quarter of the machine.
const outlierLabs = 2

// playOutliers plays these experiments as far as they have not been played on the lab's machines, and replaces their figures.
func playOutliers(ctx context.Context, d *outlierData, parts []labPart) error {
	before, err := loadAverage()
	if err != nil {
		return err
	}
	if err := playParts(ctx, parts, outlierLabs, false); err != nil {
		return err
	}
	after, err := loadAverage()
	if err != nil {
		return err
	}
	d.Machine = here().Machine
	for _, p := range parts {
		sc, plays, err := p.played()
		if err != nil {
			return err
		}
		c := livePart(sc, plays)
		c.Load = fmt.Sprintf("%s before and %s after", before, after)
		d.replaceLive(c)
	}
	return nil
}

// replaceLive puts the figures of an experiment in the place of its earlier ones.
func (d *outlierData) replaceLive(c outlierCase) {
	for i := range d.Live {
		if d.Live[i].Scenario == c.Scenario {
			d.Live[i] = c
			return
		}
	}
	d.Live = append(d.Live, c)
}

// livePart sums up the records of a scenario, by seed. A seed counts once all runs have been played with it.
func livePart(sc *scenario.Scenario, plays [][]*experiment.Record) outlierCase {
	plays = slices.DeleteFunc(plays, func(records []*experiment.Record) bool { return slices.Contains(records, nil) })
	c := outlierCase{Scenario: sc.Name, DurationS: sc.Duration.Seconds(), Calm: len(sc.Marks()) == 0, Seeds: len(plays)}
	for i, run := range sc.Runs {
		r := newOutlierRun(sc, run)
		for _, records := range plays {
			record := records[i]
			if len(record.Result.Warnings) > 0 {
				c.Doubtful++
			}
			r.add(record.Result)
			r.Changes = append(r.Changes, float64(len(record.Changes)))
			if !c.Calm {
				r.Sent, r.AtFaultS = append(r.Sent, sentToFaulty(sc, record)), append(r.AtFaultS, atFault(sc, record))
			}
		}
		c.Runs = append(c.Runs, r)
	}
	return c
}

// faulty is the instance that the lab's scenarios are about: the scaler starts i5 on h5.
const faulty = "i5"

// sentToFaulty is how many requests the faulty instance got while it was at fault. A request that its client gave up names no
// instance, and counts as sent to the faulty one.
func sentToFaulty(sc *scenario.Scenario, r *experiment.Record) (n float64) {
	from, to := sc.Timeline[0].At.Seconds(), sc.Timeline[len(sc.Timeline)-1].At.Seconds()
	for _, s := range r.Samples {
		if s.AtS >= from && s.AtS < to && (s.Instance == faulty || s.Instance == "" && s.Failed) {
			n++
		}
	}
	return n
}

// atFault is the violation in seconds from the onset on, computed only from requests that failed and requests to the instance at
// fault. So if a busy machine slows all instances, that does not count.
func atFault(sc *scenario.Scenario, r *experiment.Record) float64 {
	judge := scenario.NewJudge(scenario.JudgeOptions{SLO: sc.Service.SLO, Duration: sc.Duration, Judging: sc.Judge})
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	for _, s := range r.Samples {
		if at := seconds(s.AtS); at >= sc.Timeline[0].At && (s.Failed || s.Instance == faulty) {
			latency := seconds(s.LatencyMS / 1000)
			judge.Add(scenario.Sample{Intended: at, Finished: at + latency, Instance: s.Instance, Latency: latency, Failed: s.Failed})
		}
	}
	return judge.Verdict().SLO.ViolationS
}

// outlierFigures are the figures of the page.
type outlierFigures struct {
	outlierData
	Defaults, Tuned     scenario.EjectionRules
	Simulator, RealOnes []outlierTable
	InShort             []outlierSum
	Overloaded          bool // most of the live runs are doubtful
}

func newOutlierFigures(d outlierData) outlierFigures {
	f := outlierFigures{outlierData: d}
	f.Defaults, _ = scenario.EjectionDefaults.Rules()
	f.Tuned, _ = scenario.EjectionTuned.Rules()
	for _, c := range d.Simulated {
		f.Simulator = append(f.Simulator, newOutlierTable(c))
	}
	doubtful, runs := 0, 0
	for _, c := range d.Live {
		f.RealOnes = append(f.RealOnes, newOutlierTable(c))
		doubtful, runs = doubtful+c.Doubtful, runs+c.Seeds*len(c.Runs)
	}
	f.Overloaded = 2*doubtful > runs
	f.InShort = []outlierSum{newOutlierSum("on real links", d.Live), newOutlierSum("simulated", d.Simulated)}
	return f
}

// outlierSum sums up what policy outlier did in all scenarios of a kind.
type outlierSum struct {
	Where             string
	InTime, Reactions int     // number of reactions within 2 s, and of all reactions
	Longest           float64 // seconds
	CalmHours         float64
	ForNothing        float64 // changes in scenarios in which nothing is wrong
	NoMore            []outlierDuel
}

func newOutlierSum(where string, cases []outlierCase) outlierSum {
	const inTime = 2 // seconds
	s := outlierSum{Where: where}
	for _, e := range scenario.Ejections {
		s.NoMore = append(s.NoMore, outlierDuel{Envoy: string(e)})
	}
	for _, c := range cases {
		for _, r := range c.Runs {
			switch {
			case !r.Outlier:
			case c.Calm:
				s.CalmHours += c.DurationS / 3600 * float64(len(r.Changes))
				for _, n := range r.Changes {
					s.ForNothing += n
				}
			default:
				for _, seconds := range r.ReactionS {
					if s.Reactions++; seconds <= inTime {
						s.InTime++
					}
					s.Longest = max(s.Longest, seconds)
				}
				for i := range s.NoMore {
					d := c.against(r, s.NoMore[i].Envoy)
					s.NoMore[i].NoMore, s.NoMore[i].Seeds = s.NoMore[i].NoMore+d.NoMore, s.NoMore[i].Seeds+d.Seeds
				}
			}
		}
	}
	return s
}

// outlierTable is the page's table about one scenario.
type outlierTable struct {
	outlierCase
	Rows []outlierRow
}

// outlierRow is the row of a contender. Each figure is the median over the seeds, with the least and the largest value.
type outlierRow struct {
	Title                                                     string
	Reaction, Violation, AtFault, Failed, Over, Sent, Changes string
	// Against compares with Envoy's detection, by its settings: in how many seeds the contender is in violation for no longer than the
	// better of Envoy's runs. Only policy outlier has it.
	Against []outlierDuel
}

// outlierDuel is a comparison seed by seed.
type outlierDuel struct {
	Envoy         string
	NoMore, Seeds int
}

func newOutlierTable(c outlierCase) outlierTable {
	t := outlierTable{outlierCase: c}
	for _, r := range c.Runs {
		row := outlierRow{
			Title: r.Title, Reaction: spreadOf(r.ReactionS, "%.1f"), Violation: spreadOf(r.ViolationS, "%.0f"),
			AtFault: spreadOf(r.AtFaultS, "%.0f"), Failed: spreadOf(r.Failed, "%.0f"), Over: spreadOf(r.Over, "%.0f"),
			Sent: spreadOf(r.Sent, "%.0f"), Changes: spreadOf(r.Changes, "%.0f"),
		}
		if r.Outlier && !c.Calm {
			for _, e := range scenario.Ejections {
				row.Against = append(row.Against, c.against(r, string(e)))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// judged are the violations to compare: in live runs, whose machine also does other work, only those caused by the instance at
// fault.
func (r *outlierRun) judged() []float64 {
	if r.AtFaultS != nil {
		return r.AtFaultS
	}
	return r.ViolationS
}

// against compares, seed by seed, a contender's violation with that of Envoy's better run in a setting.
func (c *outlierCase) against(r outlierRun, envoy string) outlierDuel {
	d := outlierDuel{Envoy: envoy, Seeds: len(r.ViolationS)}
	for i, violation := range r.judged() {
		least := -1.0
		for _, other := range c.Runs {
			if values := other.judged(); other.Envoy == envoy && i < len(values) && (least < 0 || values[i] < least) {
				least = values[i]
			}
		}
		if violation <= least {
			d.NoMore++
		}
	}
	return d
}

// spreadOf is the median of values with the least and the largest; a dash if there are none.
func spreadOf(values []float64, format string) string {
	if len(values) == 0 {
		return "-"
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	text := fmt.Sprintf(format, (sorted[(n-1)/2]+sorted[n/2])/2)
	if sorted[0] == sorted[n-1] {
		return text
	}
	return text + fmt.Sprintf(" ("+format+" to "+format+")", sorted[0], sorted[n-1])
}
