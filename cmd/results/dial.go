package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/stats"
)

// What the page of DIAL is made of.
const (
	dialSeeds  = 8  // runs of each kind, each with models of its own
	dialTrials = 10 // runs of each row of the confusion matrix
	calmTrials = 100
	shareSeeds = 6 // runs of each scenario with each division of the load, with the same models
)

// dialPage simulates the scenarios of DIAL with it and with its rivals, its detection, and PRIMA with the load divided by DIAL's rule.
func dialPage(ctx context.Context, dir string) error {
	f := dialFigures{Seeds: dialSeeds, Trials: dialTrials, CalmTrials: calmTrials, ShareSeeds: shareSeeds}
	models, err := f.trainings(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"dial-single", "dial-combined"} {
		if err := f.compare(ctx, name, models); err != nil {
			return err
		}
	}
	if err := f.detect(ctx, models); err != nil {
		return err
	}
	if err := f.calm(ctx, models); err != nil {
		return err
	}
	if err := f.divide(ctx); err != nil {
		return err
	}
	return writePage(dir, "dial", f)
}

// dialFigures are the figures of the page.
type dialFigures struct {
	Seeds, Trials, CalmTrials, ShareSeeds int
	Fits                                  []dialFit
	Right                                 estimate // share of training runs that a tree fitted to others classifies right
	Scenarios                             []dialScenario
	Confusion                             []confusionRow
	Classes                               []string
	CalmMoves                             float64 // share of periods in which weights move
	CalmAbove                             float64 // share of windows that are above some bound
	CalmPeriods                           int
	Shares                                []shareRow
}

// estimate is a mean with half the width of its 95% confidence interval.
type estimate struct{ Mean, Half float64 }

func estimateOf(values []float64) estimate {
	if i, ok := stats.MeanInterval(values, 0.95); ok {
		return estimate{i.Mean, i.Half}
	}
	return estimate{Mean: stat.Mean(values, nil)}
}

// Percent is the estimate of a share in percent.
func (e estimate) Percent() string { return fmt.Sprintf("%.1f ± %.1f", 100*e.Mean, 100*e.Half) }

// Text is the estimate with this many decimals.
func (e estimate) Text(decimals int) string {
	return fmt.Sprintf("%.*f ± %.*f", decimals, e.Mean, decimals, e.Half)
}

// dialFit is how well Eq. 1 fits a resource, as mean relative errors.
type dialFit struct {
	Resource     quell.Resource
	Error, Plain estimate // Plain: without the square term
}

func exampleScenario(name string) (*scenario.Scenario, error) {
	path := filepath.Join("examples", "scenarios", name+".yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return scenario.Parse(path, data)
}

func simulatedModels(ctx context.Context, sc *scenario.Scenario, seed uint64) (*model.Models, error) {
	rows, err := sim.Train(ctx, sc, sim.Plan(), seed)
	if err != nil {
		return nil, err
	}
	models, _, err := model.Fit(rows, model.FitOptions{Service: sc.Name, Metric: sc.Service.SLO.Metric})
	return models, err
}

// trainings makes the models of each seed. The scenarios have the same machines and requests, so they share models.
func (f *dialFigures) trainings(ctx context.Context) (list []*model.Models, err error) {
	sc, err := exampleScenario("dial-single")
	if err != nil {
		return nil, err
	}
	errors, plain := map[quell.Resource][]float64{}, map[quell.Resource][]float64{}
	var right []float64
	for seed := range uint64(dialSeeds) {
		models, err := simulatedModels(ctx, sc, seed+1)
		if err != nil {
			return nil, err
		}
		d := models.Dial()
		for r, e := range d.Errors {
			errors[r], plain[r] = append(errors[r], e.MeanRelative), append(plain[r], e.Linear)
		}
		all, hit := d.Validated.Total()
		right = append(right, float64(hit)/float64(all))
		list = append(list, models)
	}
	for _, r := range slices.Sorted(maps.Keys(errors)) {
		f.Fits = append(f.Fits, dialFit{r, estimateOf(errors[r]), estimateOf(plain[r])})
	}
	f.Right = estimateOf(right)
	return list, nil
}

// dialScenario is a scenario with the results of every run.
type dialScenario struct {
	Name string
	Rows []dialRow
}

// dialRow is a run: what it is, and the means over seeds.
type dialRow struct {
	Title                     string
	Violation, Over, Cost, MS estimate
}

// dialRun is a run of a scenario.
type dialRun struct {
	title string
	scenario.Run
}

// dialRuns are DIAL, what the paper compares it with, and PRIMA with both divisions of the load. Groups that do not scale have three
// instances.
func dialRuns() (list []dialRun) {
	add := func(title string, p quell.Policy, s quell.Scheduling) {
		list = append(list, dialRun{fmt.Sprintf("%s, %s", title, s), scenario.Run{Policy: p, Scheduling: s}})
	}
	for _, s := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn, quell.Random2, quell.EWMA} {
		add(policy.Plain, policy.Whole(quell.Policy{Name: policy.Plain}), s)
	}
	add("knapsack", quell.Policy{Name: "knapsack"}, quell.LeastConn)
	for _, s := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn} {
		add("dial", policy.Whole(quell.Policy{Name: "dial"}), s)
	}
	for _, v := range policy.Variants(policy.Whole(quell.Policy{Name: "dial"})) {
		for _, s := range v.Schedulings {
			add("dial with "+v.Change, v.Policy, s)
		}
	}
	prima := policy.Whole(quell.Policy{Name: policy.Default()})
	for _, headroom := range []float64{0.9, 1} {
		for _, share := range []policy.Share{policy.Proportional, policy.Tail} {
			for _, s := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn} {
				title := fmt.Sprintf("prima, headroom %.0f%%, share %s", 100*headroom, share)
				add(title, primaSharing(prima, share, headroom), s)
			}
		}
	}
	return list
}

// primaSharing returns PRIMA with all resources, a division of the load and a headroom.
func primaSharing(p quell.Policy, share policy.Share, headroom float64) quell.Policy {
	settings := p.Settings.(policy.PRIMASettings)
	settings.Resources, settings.Share, settings.Headroom = policy.AllKnown(), share, headroom
	p.Settings = settings
	return p
}

func (f *dialFigures) compare(ctx context.Context, name string, models []*model.Models) error {
	sc, err := exampleScenario(name)
	if err != nil {
		return err
	}
	part := dialScenario{Name: name}
	for _, run := range dialRuns() {
		var results []quell.Result
		for seed, m := range models {
			r, err := sim.Run(ctx, sim.Options{Scenario: sc, Run: run.Run, Models: m, Seed: uint64(seed) + 1})
			if err != nil {
				return fmt.Errorf("%s, %s: %w", name, run.title, err)
			}
			results = append(results, r)
		}
		part.Rows = append(part.Rows, newDialRow(run.title, results))
	}
	f.Scenarios = append(f.Scenarios, part)
	return nil
}

func newDialRow(title string, results []quell.Result) dialRow {
	of := func(value func(quell.Result) float64) estimate {
		var values []float64
		for _, r := range results {
			values = append(values, value(r))
		}
		return estimateOf(values)
	}
	return dialRow{title,
		of(func(r quell.Result) float64 { return r.SLO.ViolationShare }),
		of(func(r quell.Result) float64 { return float64(r.SLO.RequestsOver) / float64(r.Requests) }),
		of(func(r quell.Result) float64 { return r.InstanceSeconds }),
		of(func(r quell.Result) float64 { ms, _ := r.LatencyMS.Of(quell.P90); return ms }),
	}
}

// confusionRow is what DIAL named in runs with neighbours at one resource, or with a change of the load.
type confusionRow struct {
	Truth   string
	Named   []int // by class
	Periods estimate
	Most    float64
}

// unseen is an interference that no training has.
var unseen = map[string]float64{"network": 0.55, "cpu": 0.45, "disk": 0.75, "memory": 0.65}

// detect plays neighbours of an intensity that training never saw, and changes of the load, and counts what DIAL names.
func (f *dialFigures) detect(ctx context.Context, models []*model.Models) error {
	f.Classes = []string{"network", "cpu", "disk", "memory", model.NotContended}
	for _, truth := range append(slices.Clone(f.Classes[:4]), "load change") {
		row := confusionRow{Truth: truth, Named: make([]int, len(f.Classes))}
		var delays []float64
		for trial := range dialTrials {
			named, delay, err := f.detectOnce(ctx, truth, models[trial%len(models)], uint64(trial)+101)
			if err != nil {
				return err
			}
			if row.Named[slices.Index(f.Classes, named)]++; delay > 0 {
				delays = append(delays, delay)
				row.Most = math.Max(row.Most, delay)
			}
		}
		if len(delays) > 0 {
			row.Periods = estimateOf(delays)
		}
		f.Confusion = append(f.Confusion, row)
	}
	return nil
}

// detectOnce plays a minute of calm, and then a minute with neighbours at one of three instances or with half as many users more. It
// returns the class that most plans of that minute name, and after how many periods the first plan names one.
func (f *dialFigures) detectOnce(
	ctx context.Context, truth string, models *model.Models, seed uint64,
) (class string, periods float64, err error) {
	sc, err := exampleScenario("dial-single")
	if err != nil {
		return "", 0, err
	}
	const onset = time.Minute
	sc.Duration, sc.Service.Sampling = 2*onset, 10*time.Second
	event := scenario.Event{At: onset}
	if use, ok := unseen[truth]; ok {
		event.Interfere = &scenario.Interference{Host: sc.Hosts[0].ID, Resource: quell.Resource(truth), Use: use}
	} else {
		users := sc.Workload.Users * 3 / 2
		event.Users = &users
	}
	sc.Timeline = []scenario.Event{event}
	counts, first := map[string]int{}, 0.0
	var began time.Time
	_, err = sim.Run(ctx, sim.Options{Scenario: sc, Models: models, Seed: seed,
		Run: scenario.Run{Policy: quell.Policy{Name: "dial"}, Scheduling: quell.RoundRobin},
		Plans: func(p *quell.Plan) {
			if began.IsZero() {
				began = p.At
			}
			at := p.At.Sub(began) - sc.WarmUp // up to a period late, because plans begin with the first period
			if at < onset {
				return
			}
			class := model.NotContended
			for _, cause := range p.Cause {
				class = string(cause)
			}
			if counts[class]++; class != model.NotContended && first == 0 {
				first = math.Ceil((at - onset).Seconds() / sc.Service.Sampling.Seconds())
			}
		}})
	if err != nil {
		return "", 0, err
	}
	named, most := model.NotContended, 1 // a single plan is not counted
	for _, class := range f.Classes[:4] {
		if counts[class] > most {
			named, most = class, counts[class]
		}
	}
	return named, first, nil
}

// calm plays a load that varies threefold without neighbours, and counts in how many periods weights move.
func (f *dialFigures) calm(ctx context.Context, models []*model.Models) error {
	sc, err := exampleScenario("dial-single")
	if err != nil {
		return err
	}
	sc.Timeline, sc.Duration = nil, 3*time.Minute
	for i := range 9 {
		users := []int{1000, 1500, 750, 500, 1200}[i%5]
		sc.Timeline = append(sc.Timeline, scenario.Event{At: time.Duration(i+1) * 18 * time.Second, Users: &users})
	}
	plans, moved, above := 0, 0, 0
	for trial := range calmTrials {
		var last map[string]float64
		_, err := sim.Run(ctx, sim.Options{Scenario: sc, Models: models[trial%len(models)], Seed: uint64(trial) + 201,
			Run: scenario.Run{Policy: quell.Policy{Name: "dial"}, Scheduling: quell.RoundRobin},
			Plans: func(p *quell.Plan) {
				if plans++; last != nil && !maps.Equal(last, p.Weights) {
					moved++
				}
				last = p.Weights
				for _, r := range p.Reasons {
					if r.Code == "confirming" && r.Instance != "" {
						above++
					}
				}
			}})
		if err != nil {
			return err
		}
	}
	f.CalmPeriods, f.CalmMoves, f.CalmAbove = plans, float64(moved)/float64(plans), float64(above)/float64(3*plans)
	return nil
}

// shareRow compares PRIMA's two divisions of the load in a scenario: the differences between tail and proportional, seed by seed.
type shareRow struct {
	Scenario                  string
	Scheduling                quell.Scheduling
	Violation, Over           estimate // with proportional shares
	MoreViolation, MoreOver   estimate // what tail shares add
	MoreCost                  estimate // as a fraction
	violations, overs, costs  []float64
	moreViolations, moreOvers []float64
}

// notDivided are scenarios that are left out: the first has 200 machines.
var notDivided = []string{"prequal-antagonists"}

// divide plays every example scenario with both divisions of the load.
func (f *dialFigures) divide(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join("examples", "scenarios", "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		name := filepath.Base(file[:len(file)-len(".yaml")])
		if slices.Contains(notDivided, name) {
			continue
		}
		sc, err := exampleScenario(name)
		if err != nil {
			return err
		}
		rows := []shareRow{{Scenario: name, Scheduling: quell.RoundRobin}, {Scenario: name, Scheduling: quell.LeastConn}}
		models, err := simulatedModels(ctx, sc, 1)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for seed := range uint64(shareSeeds) {
			for i := range rows {
				if err := rows[i].play(ctx, sc, models, seed+1); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
		for i := range rows {
			rows[i].sum()
			f.Shares = append(f.Shares, rows[i])
		}
	}
	return nil
}

func (s *shareRow) play(ctx context.Context, sc *scenario.Scenario, models *model.Models, seed uint64) error {
	var results []quell.Result
	for _, share := range []policy.Share{policy.Proportional, policy.Tail} {
		p := policy.Whole(sc.PolicyOf(scenario.Run{Policy: quell.Policy{Name: policy.Default()}}))
		settings := p.Settings.(policy.PRIMASettings)
		settings.Share = share
		p.Settings = settings
		r, err := sim.Run(ctx, sim.Options{Scenario: sc, Models: models, Seed: seed, Run: scenario.Run{Policy: p, Scheduling: s.Scheduling}})
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	over := func(r quell.Result) float64 { return float64(r.SLO.RequestsOver) / float64(r.Requests) }
	base, tail := results[0], results[1]
	s.violations, s.overs = append(s.violations, base.SLO.ViolationShare), append(s.overs, over(base))
	s.moreViolations = append(s.moreViolations, tail.SLO.ViolationShare-base.SLO.ViolationShare)
	s.moreOvers = append(s.moreOvers, over(tail)-over(base))
	s.costs = append(s.costs, tail.InstanceSeconds/base.InstanceSeconds-1)
	return nil
}

func (s *shareRow) sum() {
	s.Violation, s.Over = estimateOf(s.violations), estimateOf(s.overs)
	s.MoreViolation, s.MoreOver, s.MoreCost = estimateOf(s.moreViolations), estimateOf(s.moreOvers), estimateOf(s.costs)
}
