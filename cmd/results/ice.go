package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/train"
)

// What the page of ICE is made of.
const (
	iceSeeds    = 5  // runs of each kind
	iceOnsets   = 30 // of neighbours, for reactions
	iceDistance = 2 * time.Minute
)

// icePage simulates the scenarios of ICE: its training, its detector on runs that it was not trained with, its reactions, calm hours, and
// it alone and beside PRIMA compared with other policies.
func icePage(ctx context.Context, dir string) error {
	f := iceFigures{Seeds: iceSeeds, Onsets: iceOnsets}
	for _, part := range []struct {
		name    string
		measure func(context.Context) error
	}{{"training", f.train}, {"accuracy", f.accuracy}, {"reactions", f.reactions}, {"calm", f.calmHours}, {"hour", f.hour},
		{"beside", f.beside}, {"sticky", f.sticky}} {
		if err := part.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Fprintf(os.Stderr, "ice: %s done\n", part.name)
	}
	return writePage(dir, "ice", &f)
}

// iceFigures are the figures of the page.
type iceFigures struct {
	Seeds, Onsets int
	Trainings     []iceTraining
	Accuracies    []iceAccuracy
	Reactions     []iceReaction
	Calm          []iceCalm
	Hours         []iceHour
	Beside        []iceBeside
	Sticky        []iceSticky

	models *model.Models // trained on the machines of ice-hour
}

// iceTraining is a training with neighbours at one resource.
type iceTraining struct {
	Machines  string // the scenario whose machines were used
	Resource  quell.Resource
	Runs      int
	Windows   int
	Right     float64 // share of windows that a tree fitted to others classifies right
	Detector  string
	Signal    string
	Fits      []model.EstimatorFit
	Estimator *model.Estimator
}

// alternating makes the rows of a plan on a scenario's machines.
func alternating(
	ctx context.Context, sc *scenario.Scenario, r quell.Resource, plan train.Plan, seed uint64,
) ([]model.TrainingRow, error) {
	machines := make([]train.Machine, runtime.GOMAXPROCS(0))
	for i := range machines {
		machines[i] = &sim.Trainer{Scenario: sc, Probing: sim.Probing(sc.Probing)}
	}
	return train.Run(ctx, train.Options{Plan: plan, Resource: r, Machines: machines, Seed: seed})
}

// train makes the models of the processor, and for comparison those of caches, where cycles per instruction say what happens.
func (f *iceFigures) train(ctx context.Context) error {
	for _, of := range []struct {
		name     string
		resource quell.Resource
	}{{"ice-hour", quell.CPU}, {"ice-periodic", quell.Memory}} {
		sc, err := exampleScenario(of.name)
		if err != nil {
			return err
		}
		rows, err := alternating(ctx, sc, of.resource, train.Alternating(), 1)
		if err != nil {
			return err
		}
		models, _, err := model.Fit(rows, model.FitOptions{Service: sc.Name, Metric: sc.Service.SLO.Metric})
		if err != nil {
			return err
		}
		ice := models.ICE()
		t := iceTraining{Machines: of.name, Resource: of.resource, Runs: len(rows), Detector: ice.Classifier.String(), Signal: ice.Signal,
			Fits: ice.Fits, Estimator: ice.Estimator}
		n, right := ice.Validated.Total()
		t.Windows, t.Right = n, float64(right)/float64(n)
		f.Trainings = append(f.Trainings, t)
		if of.resource == quell.CPU {
			f.models = models
		}
	}
	return nil
}

// iceAccuracy counts the windows of runs that were not used in training.
type iceAccuracy struct {
	Use           float64 // of the neighbours
	Level         float64 // of the service
	Windows       int
	Right, Missed float64 // shares: of all windows; of those with neighbours
	False         float64 // share of windows without neighbours
	Trained       bool    // this strength was trained
}

// accuracy lets neighbours come and go in intervals of 4 minutes, of trained strength and of others, one of them weaker than any trained.
func (f *iceFigures) accuracy(ctx context.Context) error {
	sc, err := exampleScenario("ice-hour")
	if err != nil {
		return err
	}
	trained := train.Alternating().Interference
	plan := train.Alternating()
	plan.Levels, plan.Interference = []float64{0.15, 0.25, 0.33}, []float64{0.5, 0.45, 0.6, 0.35, 0.25}
	plan.Alternate = &train.Alternation{Away: 4 * time.Minute, There: 4 * time.Minute, Window: time.Second}
	plan.Run = 16 * time.Minute
	rows, err := alternating(ctx, sc, quell.CPU, plan, 5000)
	if err != nil {
		return err
	}
	for _, row := range rows {
		a := newIceAccuracy(f.models.ICE(), row.Windows)
		a.Use, a.Level, a.Trained = *row.InterferingLevel, row.Level, slices.Contains(trained, *row.InterferingLevel)
		f.Accuracies = append(f.Accuracies, a)
	}
	slices.SortFunc(f.Accuracies, func(a, b iceAccuracy) int { return cmp.Or(cmp.Compare(b.Use, a.Use), cmp.Compare(a.Level, b.Level)) })
	return nil
}

func newIceAccuracy(ice *model.ICE, windows []model.TrainingWindow) (a iceAccuracy) {
	var with, missed, wrong float64
	for i := range windows {
		found, _ := ice.Disturbed(model.ICESignals(&windows[i].Observation))
		there := windows[i].Interfering > 0
		if there {
			with++
		}
		switch {
		case there && !found:
			missed++
		case found && !there:
			wrong++
		}
	}
	n := float64(len(windows))
	a.Windows, a.Right, a.Missed, a.False = len(windows), 1-(missed+wrong)/n, missed/with, wrong/(n-with)
	return a
}

// icePolicy returns ICE with a floor.
func icePolicy(floor float64) quell.Policy {
	p := policy.Whole(quell.Policy{Name: "ice"})
	settings := p.Settings.(policy.ICESettings)
	settings.Floor = floor
	p.Settings = settings
	return p
}

// iceBesides returns a policy with ICE beside it.
func iceBesides(main quell.Policy, floor float64) quell.Policy {
	main.Fast = quell.Fast{Name: "ice", Settings: icePolicy(floor).Settings, Sampling: time.Second}
	return main
}

// iceFloor is the floor of the settings' defaults.
func iceFloor() float64 {
	return policy.Whole(quell.Policy{Name: "ice"}).Settings.(policy.ICESettings).Floor
}

// iceReaction is how long after onsets the weights change.
type iceReaction struct {
	Title       string
	Use         float64
	Noticed     int
	Median, Max float64 // seconds
}

// reactions lets a neighbour come to each server in turn, iceOnsets times and each time for half of iceDistance, at moments that do not
// agree with periods.
func (f *iceFigures) reactions(ctx context.Context) error {
	for _, use := range []float64{0.6, 0.5} {
		for _, trained := range []bool{false, true} {
			sc, err := exampleScenario("ice-hour")
			if err != nil {
				return err
			}
			sc.Service.Sampling, sc.Timeline, sc.Duration = 10*time.Second, nil, (iceOnsets+1)*iceDistance
			var onsets []time.Duration
			for i := range iceOnsets {
				at := time.Duration(i)*iceDistance + time.Minute + time.Duration(i*377%1000)*10*time.Millisecond
				host := sc.Hosts[i%len(sc.Hosts)].ID
				onsets = append(onsets, at)
				sc.Timeline = append(sc.Timeline, scenario.Event{At: at, Interfere: &scenario.Interference{Host: host, Resource: quell.CPU, Use: use}},
					scenario.Event{At: at + iceDistance/2, Interfere: &scenario.Interference{Host: host, Resource: quell.CPU}})
			}
			o := sim.Options{Scenario: sc, Run: scenario.Run{Policy: iceBesides(policy.Whole(quell.Policy{Name: policy.Plain}), iceFloor()),
				Scheduling: quell.RoundRobin}, Seed: 1}
			if trained {
				o.Models = f.models
			}
			row := iceReaction{Title: titleOfTraining(trained), Use: use}
			var delays []float64
			next := 0
			o.Glances = func(at time.Duration, _ *quell.Snapshot, p *quell.Plan) {
				for next < len(onsets) && at > onsets[next]+iceDistance/2 {
					next++ // it was not noticed
				}
				if next == len(onsets) || at < onsets[next] {
					return
				}
				if _, cut := p.Factor[fmt.Sprintf("i%d", next%len(sc.Hosts)+1)]; cut {
					delays = append(delays, (at - onsets[next]).Seconds())
					next++
				}
			}
			if _, err := sim.Run(ctx, o); err != nil {
				return err
			}
			if row.Noticed = len(delays); row.Noticed > 0 {
				slices.Sort(delays)
				row.Median, row.Max = (delays[(row.Noticed-1)/2]+delays[row.Noticed/2])/2, delays[row.Noticed-1]
			}
			f.Reactions = append(f.Reactions, row)
		}
	}
	return nil
}

func titleOfTraining(trained bool) string {
	if trained {
		return "trained"
	}
	return "without training"
}

// iceCalm counts cuts in hours without neighbours.
type iceCalm struct {
	Title   string
	Hours   int
	Cuts    int     // instances that were cut
	Seconds float64 // for which some instance was cut, in all hours
}

// calmHours plays hours in which the load varies threefold and no neighbour comes.
func (f *iceFigures) calmHours(ctx context.Context) error {
	for _, scheduling := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn} {
		for _, trained := range []bool{false, true} {
			row := iceCalm{Title: fmt.Sprintf("%s, %s", titleOfTraining(trained), scheduling), Hours: iceSeeds}
			for seed := range uint64(iceSeeds) {
				sc, err := exampleScenario("ice-hour")
				if err != nil {
					return err
				}
				sc.Service.Sampling, sc.Timeline = 10*time.Second, nil
				const least, most = 0.5, 1.5
				sc.Workload.Load = least
				for at := 5 * time.Minute; at < sc.Duration; at += 5 * time.Minute {
					load := least + (most-least)*(1-math.Cos(at.Minutes()/15*math.Pi))/2
					sc.Timeline = append(sc.Timeline, scenario.Event{At: at, Load: &load})
				}
				o := sim.Options{Scenario: sc, Run: scenario.Run{Policy: iceBesides(policy.Whole(quell.Policy{Name: policy.Plain}), iceFloor()),
					Scheduling: scheduling}, Seed: seed + 1}
				if trained {
					o.Models = f.models
				}
				before := map[string]quell.Factor{}
				o.Glances = func(_ time.Duration, _ *quell.Snapshot, p *quell.Plan) {
					for id := range p.Factor {
						if _, was := before[id]; !was {
							row.Cuts++
						}
					}
					if before = p.Factor; len(p.Factor) > 0 {
						row.Seconds++
					}
				}
				if _, err := sim.Run(ctx, o); err != nil {
					return err
				}
			}
			f.Calm = append(f.Calm, row)
		}
	}
	return nil
}

// iceHour is the row of a policy in the hour of 4 minutes with and 4 minutes without a neighbour.
type iceHour struct {
	Title   string
	Median  estimate // response time at the disturbed server while the neighbour is there, in ms
	All     estimate // over all requests and the whole hour
	Over    estimate // share of requests over the threshold
	Changes estimate // plans that changed something
	Versus  string   // the median, compared with equal weights under the same scheduling
}

// hour compares policies for a group of fixed size.
func (f *iceFigures) hour(ctx context.Context) error {
	sc, err := exampleScenario("ice-hour")
	if err != nil {
		return err
	}
	plain := policy.Whole(quell.Policy{Name: policy.Plain})
	cutting := plain
	cutting.Fast = quell.Fast{Name: "outlier"}
	for _, scheduling := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn} {
		still := 0.0
		for _, run := range []struct {
			title   string
			policy  quell.Policy
			trained bool
		}{
			{policy.Plain, plain, false}, {"outlier beside static", policy.Whole(cutting), false},
			{"ice without training, floor 60%", icePolicy(0.6), false}, {"ice without training, floor 20%", icePolicy(0.2), false},
			{"ice trained, floor 60%", icePolicy(0.6), true}, {"ice trained, floor 20%", icePolicy(0.2), true},
		} {
			row := iceHour{Title: fmt.Sprintf("%s, %s", run.title, scheduling)}
			var medians, all, over, changes []float64
			for seed := range uint64(iceSeeds) {
				o := sim.Options{Scenario: sc, Run: scenario.Run{Policy: run.policy, Scheduling: scheduling}, Seed: seed + 1}
				if run.trained {
					o.Models = f.models
				}
				var disturbed []float64
				o.Windows = func(w sim.Window) {
					const each = 8 * time.Minute
					if ms, there := w.ByMS[1]; there && w.Start%each >= each/2 {
						disturbed = append(disturbed, ms)
					}
				}
				r, err := sim.Run(ctx, o)
				if err != nil {
					return err
				}
				slices.Sort(disturbed)
				ms, _ := r.LatencyMS.Of(quell.P50)
				medians, all = append(medians, disturbed[len(disturbed)/2]), append(all, ms)
				over, changes = append(over, float64(r.SLO.RequestsOver)/float64(r.Requests)), append(changes, float64(r.Decisions))
			}
			row.Median, row.All, row.Over, row.Changes = estimateOf(medians), estimateOf(all), estimateOf(over), estimateOf(changes)
			if still == 0 {
				still = row.Median.Mean
			} else {
				row.Versus = fmt.Sprintf("%+.0f%%", 100*(row.Median.Mean/still-1))
			}
			f.Hours = append(f.Hours, row)
		}
	}
	return nil
}

// iceBeside is the row of a policy in the timeline of changing interference.
type iceBeside struct {
	Resource               quell.Resource
	Scheduling             quell.Scheduling
	Title                  string
	Over, Violation, Cost  estimate
	Early                  estimate // share of requests over the threshold in the two periods after an onset
	Reaction               string
	VersusOver, VersusCost string // compared with PRIMA alone
	VersusEarly            string
}

// soonAfterOnset returns whether a window overlaps the two periods of PRIMA after a neighbour came.
func soonAfterOnset(sc *scenario.Scenario, w sim.Window) bool {
	return slices.ContainsFunc(sc.Timeline, func(e scenario.Event) bool {
		return e.Interfere != nil && e.Interfere.Use > 0 && w.Start+w.Length > e.At && w.Start < e.At+2*sc.Service.Sampling
	})
}

// beside plays the timeline of changing interference at T = 10 s, with neighbours at the processor and at the network.
func (f *iceFigures) beside(ctx context.Context) error {
	for _, resource := range []quell.Resource{quell.CPU, quell.Network} {
		sc, err := exampleScenario("changing-cpu-10s")
		if err != nil {
			return err
		}
		for i, e := range sc.Timeline {
			if e.Interfere != nil {
				sc.Timeline[i].Interfere.Resource = resource
			}
		}
		models, err := simulatedModels(ctx, sc, 1)
		if err != nil {
			return err
		}
		trained, err := f.trainedFor(ctx, sc, models)
		if err != nil {
			return err
		}
		for _, s := range []quell.Scheduling{quell.LeastConn, quell.RoundRobin} {
			if err := f.besideAt(ctx, sc, iceBeside{Resource: resource, Scheduling: s}, models, trained); err != nil {
				return err
			}
		}
	}
	return nil
}

// trainedFor adds ICE's section, trained on the scenario's machines with neighbours at the processor, to models.
func (f *iceFigures) trainedFor(ctx context.Context, sc *scenario.Scenario, models *model.Models) (*model.Models, error) {
	rows, err := alternating(ctx, sc, quell.CPU, train.Alternating(), 1)
	if err != nil {
		return nil, err
	}
	more, _, err := model.Fit(rows, model.FitOptions{Service: sc.Name, Metric: sc.Service.SLO.Metric, Unscored: true})
	if err != nil {
		return nil, err
	}
	both := *models
	both.Sections = append(slices.Clone(models.Sections), more.ICE())
	return &both, nil
}

func (f *iceFigures) besideAt(
	ctx context.Context, sc *scenario.Scenario, part iceBeside, models, trained *model.Models,
) error {
	prima := sc.PolicyOf(scenario.Run{Policy: quell.Policy{Name: policy.Default()}})
	cutting := prima
	cutting.Fast = quell.Fast{Name: "outlier"}
	plain := policy.Whole(quell.Policy{Name: policy.Plain})
	var alone iceBeside
	for _, run := range []struct {
		title  string
		policy quell.Policy
		models *model.Models
		fixed  int
	}{
		{"prima", prima, models, 0},
		{"prima, fast: ice, floor 60%, without training", iceBesides(prima, 0.6), models, 0},
		{"prima, fast: ice, floor 20%, without training", iceBesides(prima, 0.2), models, 0},
		{"prima, fast: ice, floor 60%, trained", iceBesides(prima, 0.6), trained, 0},
		{"prima, fast: ice, floor 20%, trained", iceBesides(prima, 0.2), trained, 0},
		{"prima, fast: outlier", policy.Whole(cutting), models, 0},
		{"static, 3 servers", plain, models, 3}, {"static, 4 servers", plain, models, 4},
	} {
		row := part
		row.Title = run.title
		var over, early, violation, cost, reactions []float64
		for seed := range uint64(iceSeeds) {
			var after sim.Window
			r, err := sim.Run(ctx, sim.Options{Scenario: sc, Models: run.models, Seed: seed + 1,
				Run: scenario.Run{Policy: run.policy, Scheduling: part.Scheduling, Fixed: run.fixed},
				Windows: func(w sim.Window) {
					if soonAfterOnset(sc, w) {
						after.Requests, after.Over = after.Requests+w.Requests, after.Over+w.Over
					}
				}})
			if err != nil {
				return fmt.Errorf("%s: %w", run.title, err)
			}
			early = append(early, float64(after.Over)/float64(after.Requests))
			over = append(over, float64(r.SLO.RequestsOver)/float64(r.Requests))
			violation, cost = append(violation, r.SLO.ViolationShare), append(cost, r.InstanceSeconds)
			if r.ReactionS != nil {
				reactions = append(reactions, r.ReactionS.Median)
			}
		}
		row.Early = estimateOf(early)
		row.Over, row.Violation, row.Cost, row.Reaction = estimateOf(over), estimateOf(violation), estimateOf(cost), spreadOf(reactions, "%.1f")
		if alone.Title == "" {
			alone = row
		} else {
			row.VersusOver = fmt.Sprintf("%+.0f%%", 100*(row.Over.Mean/alone.Over.Mean-1))
			row.VersusEarly = fmt.Sprintf("%+.0f%%", 100*(row.Early.Mean/alone.Early.Mean-1))
			row.VersusCost = fmt.Sprintf("%+.1f%%", 100*(row.Cost.Mean/alone.Cost.Mean-1))
		}
		f.Beside = append(f.Beside, row)
	}
	return nil
}

// iceSticky is how long the requests of a disturbed server take to follow its weight, if users stay with a server.
type iceSticky struct {
	Requests int      // mean number of requests for which a user stays
	Cut      estimate // seconds from the onset to the cut
	Followed estimate // seconds from the onset until the server's requests have followed the cut
	Never    int      // runs in which they have not in stickyTime
}

// What stickiness is measured with.
const (
	stickyUsers  = 200
	stickyOnset  = 3 * time.Minute
	stickyTime   = 6 * time.Minute
	stickyWindow = 10  // seconds over which a server's part of the requests is averaged
	stickyPart   = 0.1 // the part has followed if this share of the change is left
)

// sticky lets users that request once per second stay with a server for some of their requests.
func (f *iceFigures) sticky(ctx context.Context) error {
	for _, requests := range []int{0, 10, 60} {
		row := iceSticky{Requests: requests}
		var cuts, followed []float64
		for seed := range uint64(iceSeeds) {
			cut, follows, err := stickyOnce(ctx, requests, seed+1)
			if err != nil {
				return err
			}
			if cuts = append(cuts, cut); follows == 0 {
				row.Never++
			} else {
				followed = append(followed, follows)
			}
		}
		row.Cut = estimateOf(cuts)
		if len(followed) > 0 {
			row.Followed = estimateOf(followed)
		}
		f.Sticky = append(f.Sticky, row)
	}
	return nil
}

// stickyOnce returns when the disturbed server is cut and when its requests have followed, in seconds since the onset; 0: never.
func stickyOnce(ctx context.Context, requests int, seed uint64) (cut, followed float64, err error) {
	sc, err := exampleScenario("ice-hour")
	if err != nil {
		return 0, 0, err
	}
	sc.Workload.Kind, sc.Workload.Users, sc.Workload.Think, sc.Workload.Arrivals = scenario.Users, stickyUsers, time.Second, ""
	sc.Duration = stickyOnset + stickyTime
	sc.Timeline = []scenario.Event{{At: stickyOnset, Interfere: &scenario.Interference{Host: sc.Hosts[1].ID, Resource: quell.CPU, Use: 0.6}}}
	equal := 1 / float64(len(sc.Hosts))
	var parts []float64
	_, err = sim.Run(ctx, sim.Options{Scenario: sc, Seed: seed, Sticky: requests,
		Run: scenario.Run{Policy: iceBesides(policy.Whole(quell.Policy{Name: policy.Plain}), iceFloor()), Scheduling: quell.RoundRobin},
		Glances: func(at time.Duration, s *quell.Snapshot, p *quell.Plan) {
			factor, is := p.Factor["i2"]
			if at < stickyOnset || followed > 0 || cut == 0 && !is {
				return
			}
			since := (at - stickyOnset).Seconds()
			if cut == 0 {
				cut = since
			}
			all, own := 0.0, 0.0
			for _, in := range s.Instances {
				if o := in.Observation; o != nil && o.RequestRate != nil {
					if all += *o.RequestRate; in.ID == "i2" {
						own = *o.RequestRate
					}
				}
			}
			if parts = append(parts, own/math.Max(all, 1)); len(parts) < stickyWindow || !is {
				return
			}
			mean := 0.0
			for _, part := range parts[len(parts)-stickyWindow:] {
				mean += part / stickyWindow
			}
			wanted := factor.Value * equal / (1 - equal + factor.Value*equal)
			if mean <= wanted+stickyPart*(equal-wanted) {
				followed = since
			}
		}})
	return cut, followed, err
}
