package main

import (
	"context"
	"fmt"
	"maps"
	"math"
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

// dialParts are the parts of the page in the simulator, by name. The figures of parts that are not simulated again are read from dial.json.
var dialParts = map[string]func(f *dialFigures, ctx context.Context) error{
	"training":  (*dialFigures).trainings,
	"compare":   (*dialFigures).compareAll,
	"detect":    (*dialFigures).detectAll,
	"intervals": (*dialFigures).intervals,
	"calm":      (*dialFigures).calm,
	"shares":    (*dialFigures).divide,
	"page":      func(*dialFigures, context.Context) error { return nil },
}

// dialPage simulates the scenarios of DIAL with it and with its rivals, its detection, and PRIMA with the load divided by DIAL's rule.
func dialPage(ctx context.Context, dir string) error {
	return dialPagePart(ctx, dir, "training", "compare", "detect", "intervals", "calm", "shares")
}

// dialPagePart simulates parts of the page, or plays those of the lab, and writes the page.
func dialPagePart(ctx context.Context, dir string, parts ...string) error {
	f := dialFigures{Seeds: dialSeeds, Trials: dialTrials, CalmTrials: calmTrials, ShareSeeds: shareSeeds}
	path := filepath.Join(dir, "dial.json")
	if _, err := readJSON(path, &f); err != nil {
		return err
	}
	for _, name := range parts {
		if simulate, ok := dialParts[name]; !ok {
			if err := playDial(ctx, name); err != nil {
				return err
			}
		} else if err := simulate(&f, ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := writeJSON(path, f); err != nil { // now, so that an interrupted call loses one part only
			return err
		}
	}
	var err error
	if f.Live, err = dialLab().figures(here(), dir); err != nil {
		return err
	}
	return writePage(dir, "dial", f)
}

// dialFigures are the figures of the page. Those of the simulator are kept in dial.json, those of the lab in its records.
type dialFigures struct {
	Seeds      int            `json:"-"`
	Trials     int            `json:"-"`
	CalmTrials int            `json:"-"`
	ShareSeeds int            `json:"-"`
	Fits       []dialFit      `json:"fits"`
	Right      estimate       `json:"right"` // share of training runs that a tree fitted to others classifies right
	Scenarios  []dialScenario `json:"scenarios"`
	Confusion  []confusionRow `json:"confusion"`
	Intervals  []intervalRow  `json:"intervals"`
	CalmMoves  float64        `json:"calm_moves"` // share of periods in which weights move
	CalmAbove  float64        `json:"calm_above"` // share of windows that are above some bound
	CalmPlans  int            `json:"calm_plans"` // number of periods
	Shares     []shareRow     `json:"shares"`

	Live labFigures `json:"-"`

	models []*model.Models
}

// estimate is a mean with half the width of its 95% confidence interval.
type estimate struct {
	Mean float64 `json:"mean"`
	Half float64 `json:"half"`
}

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
	Resource quell.Resource `json:"resource"`
	Error    estimate       `json:"error"`
	Plain    estimate       `json:"plain"` // without the square term
}

func exampleScenario(name string) (*scenario.Scenario, error) {
	path := filepath.Join("examples", "scenarios", name+".yaml")
	return scenario.Load(path)
}

func simulatedModels(ctx context.Context, sc *scenario.Scenario, seed uint64) (*model.Models, error) {
	rows, err := sim.Train(ctx, sc, sim.Plan(), seed)
	if err != nil {
		return nil, err
	}
	models, _, err := model.Fit(rows, model.FitOptions{Service: sc.Name, Metric: sc.Service.SLO.Metric})
	return models, err
}

// seeded makes the models of each seed, once. dial-single and dial-combined have the same machines and requests, so they share models.
func (f *dialFigures) seeded(ctx context.Context) ([]*model.Models, error) {
	if f.models != nil {
		return f.models, nil
	}
	sc, err := exampleScenario("dial-single")
	if err != nil {
		return nil, err
	}
	for seed := range uint64(dialSeeds) {
		models, err := simulatedModels(ctx, sc, seed+1)
		if err != nil {
			return nil, err
		}
		f.models = append(f.models, models)
	}
	return f.models, nil
}

// trainings computes how well the models fit.
func (f *dialFigures) trainings(ctx context.Context) error {
	models, err := f.seeded(ctx)
	if err != nil {
		return err
	}
	full, plain := map[quell.Resource][]float64{}, map[quell.Resource][]float64{}
	var right []float64
	for _, m := range models {
		d := m.Dial()
		for r, e := range d.Errors {
			full[r], plain[r] = append(full[r], e.MeanRelative), append(plain[r], e.Linear)
		}
		all, hit := d.Validated.Total()
		right = append(right, float64(hit)/float64(all))
	}
	f.Fits = nil
	for _, r := range slices.Sorted(maps.Keys(full)) {
		f.Fits = append(f.Fits, dialFit{r, estimateOf(full[r]), estimateOf(plain[r])})
	}
	f.Right = estimateOf(right)
	return nil
}

// dialScenario is a scenario with the results of every run.
type dialScenario struct {
	Name string    `json:"name"`
	Rows []dialRow `json:"rows"`
}

// dialRow is a run: what it is, and the means over seeds.
type dialRow struct {
	Title     string   `json:"title"`
	Violation estimate `json:"violation"`
	Over      estimate `json:"over"` // share of requests over the threshold
	Cost      estimate `json:"cost"` // instance-seconds
	MS        estimate `json:"ms"`   // p90
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

// compareAll plays every run in the scenarios of DIAL.
func (f *dialFigures) compareAll(ctx context.Context) error {
	models, err := f.seeded(ctx)
	if err != nil {
		return err
	}
	f.Scenarios = nil
	for _, name := range []string{"dial-single", "dial-combined"} {
		if err := f.compare(ctx, name, models); err != nil {
			return err
		}
	}
	return f.replay(ctx)
}

// replay plays every run in the scenario with a recorded load, which has other machines and requests, and so models of its own.
func (f *dialFigures) replay(ctx context.Context) error {
	sc, err := exampleScenario("dial-trace")
	if err != nil {
		return err
	}
	var models []*model.Models
	for seed := range uint64(dialSeeds) {
		m, err := simulatedModels(ctx, sc, seed+1)
		if err != nil {
			return err
		}
		models = append(models, m)
	}
	return f.compare(ctx, sc.Name, models)
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

// dialCauses are the columns of the confusion matrix.
var dialCauses = []string{"network", "cpu", "disk", "memory", model.NotContended}

// dialTruths are its rows.
var dialTruths = []string{"network", "cpu", "disk", "memory", "load change"}

// Causes are the columns of the confusion matrix.
func (f dialFigures) Causes() []string { return dialCauses }

// confusionRow is what DIAL named in runs with neighbours at one resource, or with a change of the load.
type confusionRow struct {
	Truth   string   `json:"truth"`
	Named   []int    `json:"named"` // by dialCauses
	Periods estimate `json:"periods"`
	Most    float64  `json:"most"`
}

// right is how many of the runs were named rightly: after a change of the load nothing is to be named.
func (r confusionRow) right() int {
	if i := slices.Index(dialCauses, r.Truth); i >= 0 {
		return r.Named[i]
	}
	return r.Named[slices.Index(dialCauses, model.NotContended)]
}

// RightOf is how many runs of a confusion matrix were named rightly.
func (f dialFigures) RightOf(rows []confusionRow) (sum int) {
	for _, r := range rows {
		sum += r.right()
	}
	return sum
}

// RunsOf is how many runs a confusion matrix has.
func (f dialFigures) RunsOf(rows []confusionRow) (sum int) {
	for _, r := range rows {
		for _, n := range r.Named {
			sum += n
		}
	}
	return sum
}

// unseen is an interference that no training has.
var unseen = map[string]float64{"network": 0.55, "cpu": 0.45, "disk": 0.75, "memory": 0.65}

// detectAll fills the confusion matrix with the periods of the paper.
func (f *dialFigures) detectAll(ctx context.Context) (err error) {
	f.Confusion, err = f.detect(ctx, 10*time.Second)
	return err
}

// detect plays neighbours of an intensity that training never saw, and changes of the load, and counts what DIAL names with periods of this
// length.
func (f *dialFigures) detect(ctx context.Context, period time.Duration) (rows []confusionRow, err error) {
	models, err := f.seeded(ctx)
	if err != nil {
		return nil, err
	}
	for _, truth := range dialTruths {
		row := confusionRow{Truth: truth, Named: make([]int, len(dialCauses))}
		var delays []float64
		for trial := range dialTrials {
			named, delay, err := detectOnce(ctx, truth, period, models[trial%len(models)], uint64(trial)+101)
			if err != nil {
				return nil, err
			}
			if row.Named[slices.Index(dialCauses, named)]++; delay > 0 {
				delays = append(delays, delay)
				row.Most = math.Max(row.Most, delay)
			}
		}
		if len(delays) > 0 {
			row.Periods = estimateOf(delays)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// detectOnce plays a minute of calm, and then a minute with neighbours at one of three instances or with half as many users more. It
// returns the class that most plans of that minute name, and after how many periods the first plan names one.
func detectOnce(
	ctx context.Context, truth string, period time.Duration, models *model.Models, seed uint64,
) (class string, periods float64, err error) {
	sc, err := exampleScenario("dial-single")
	if err != nil {
		return "", 0, err
	}
	const onset = time.Minute
	sc.Duration, sc.Service.Sampling = 2*onset, period
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
	return mostNamed(counts), first, nil
}

// varying is a scenario without neighbours, in which the number of users varies threefold.
func varying() (*scenario.Scenario, error) {
	sc, err := exampleScenario("dial-single")
	if err != nil {
		return nil, err
	}
	sc.Timeline, sc.Duration = nil, 3*time.Minute
	for i := range 9 {
		users := []int{1000, 1500, 750, 500, 1200}[i%5]
		sc.Timeline = append(sc.Timeline, scenario.Event{At: time.Duration(i+1) * 18 * time.Second, Users: &users})
	}
	return sc, nil
}

// intervalRow is what DIAL sees with periods of one length.
type intervalRow struct {
	Seconds float64  `json:"seconds"`
	Error   estimate `json:"error"` // of the user time that is expected for the requests of a calm window, relative to the measured
	Right   int      `json:"right"` // runs that were named rightly, of dialTrials for each truth
	Periods float64  `json:"periods"`
	False   float64  `json:"false"` // share of the calm windows above a bound for W + 1 periods, or clearly above one
}

// FalsePercent is False in percent, and Delay the mean time to the first name in seconds.
func (r intervalRow) FalsePercent() float64 { return 100 * r.False }
func (r intervalRow) Delay() float64        { return r.Periods * r.Seconds }

// intervals sweeps the length of the periods (Figure 6).
func (f *dialFigures) intervals(ctx context.Context) error {
	f.Intervals = nil
	for _, seconds := range []float64{1, 2, 5, 10, 20, 30} {
		period := time.Duration(seconds * float64(time.Second))
		row := intervalRow{Seconds: seconds}
		rows, err := f.detect(ctx, period)
		if err != nil {
			return err
		}
		row.Right = f.RightOf(rows)
		for _, r := range rows[:4] {
			row.Periods += r.Periods.Mean / 4
		}
		if row.Error, row.False, err = f.foretell(ctx, period); err != nil {
			return err
		}
		f.Intervals = append(f.Intervals, row)
	}
	return nil
}

// foretell plays calm runs whose load varies, and returns by how much the expected user time of a window is wrong, and in which share of
// windows an instance is taken for a disturbed or overloaded one.
func (f *dialFigures) foretell(ctx context.Context, period time.Duration) (wrong estimate, taken float64, err error) {
	models, err := f.seeded(ctx)
	if err != nil {
		return wrong, 0, err
	}
	sc, err := varying()
	if err != nil {
		return wrong, 0, err
	}
	sc.Service.Sampling = period
	var means []float64
	var windows, named int
	for trial := range dialTrials {
		expected := models[trial%len(models)].Dial().Expected["cpu_user"]
		var offs []float64
		_, err := sim.Run(ctx, sim.Options{Scenario: sc, Models: models[trial%len(models)], Seed: uint64(trial) + 301,
			Run: scenario.Run{Policy: quell.Policy{Name: "dial"}, Scheduling: quell.RoundRobin},
			Snapshots: func(s *quell.Snapshot) {
				for _, in := range s.Instances {
					if o := in.Observation; o != nil && o.CPU != nil && o.CPU.User > 0 && o.RequestRate != nil {
						offs = append(offs, math.Abs(expected.At(*o.RequestRate, o.RequestRates)-o.CPU.User)/o.CPU.User)
					}
				}
			},
			Plans: func(p *quell.Plan) {
				for _, r := range p.Reasons {
					if r.Code == "interference" || r.Code == "own_load" {
						named++
					}
				}
				windows += 3
			}})
		if err != nil {
			return wrong, 0, err
		}
		means = append(means, stat.Mean(offs, nil))
	}
	return estimateOf(means), float64(named) / float64(windows), nil
}

// calm plays a load that varies threefold without neighbours, and counts in how many periods weights move.
func (f *dialFigures) calm(ctx context.Context) error {
	models, err := f.seeded(ctx)
	if err != nil {
		return err
	}
	sc, err := varying()
	if err != nil {
		return err
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
	f.CalmPlans, f.CalmMoves, f.CalmAbove = plans, float64(moved)/float64(plans), float64(above)/float64(3*plans)
	return nil
}

// shareRow compares PRIMA's two divisions of the load in a scenario: the differences between tail and proportional, seed by seed.
type shareRow struct {
	Scenario      string           `json:"scenario"`
	Scheduling    quell.Scheduling `json:"scheduling"`
	Violation     estimate         `json:"violation"` // with proportional shares
	Over          estimate         `json:"over"`
	MoreViolation estimate         `json:"more_violation"` // what tail shares add
	MoreOver      estimate         `json:"more_over"`
	MoreCost      estimate         `json:"more_cost"` // as a fraction

	violations, overs, costs  []float64
	moreViolations, moreOvers []float64
}

// notDivided are scenarios that are left out: the first has 200 machines.
var notDivided = []string{"prequal-antagonists"}

// divide plays every example scenario with both divisions of the load.
func (f *dialFigures) divide(ctx context.Context) error {
	f.Shares = nil
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
