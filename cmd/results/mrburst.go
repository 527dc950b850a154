package main

import (
	"context"
	"fmt"
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
	"github.com/quellhq/quell/policy/prima"
	"github.com/quellhq/quell/policy/table"
)

// mrburstSeeds is how many seeds each run is played with.
const mrburstSeeds = 3

// mrburstDay is how much longer the page's scenario is than the example that it comes from, and by how much its balances are larger.
const mrburstDay = 12

// mrburstRun is one way to share the load of a group of burstable instances.
type mrburstRun struct {
	Title  string
	run    scenario.Run
	shown  bool      // the provider shows the balances
	Held   []float64 // hours for which the objective was kept, by seed
	Missed []float64 // hours in judge windows that miss it, by seed
	Pooled float64   // hours that all credits last together
}

// Share is the mean time for which the objective was kept, as a fraction of the pooled bound.
func (r mrburstRun) Share() float64 { return r.MeanHeld() / r.Pooled }

// MeanHeld and MeanMissed are means over the seeds, in hours.
func (r mrburstRun) MeanHeld() float64   { return stat.Mean(r.Held, nil) }
func (r mrburstRun) MeanMissed() float64 { return stat.Mean(r.Missed, nil) }

// Least is the shortest time for which the objective was kept, in hours.
func (r mrburstRun) Least() float64 { return slices.Min(r.Held) }

// mrburstForecast is what was said, at some time, of when one instance's credits run out.
type mrburstForecast struct {
	AtH, SaidH, TrueH float64 // hours since measuring started
	SoonestH, LatestH float64
}

// Off is the error of the forecast: |estimated - real| / real, as in MRburst, Table 2.
func (f mrburstForecast) Off() float64 { return math.Abs(f.SaidH-f.TrueH) / f.TrueH }

type mrburstFigures struct {
	Instances, Seeds     int
	Use, Baseline, Hours float64 // cores that the load uses and that are always there, of the group; length of a run
	Credits              float64
	Runs                 []mrburstRun
	Price                float64 // dollars for an hour of a core
	Bills                []mrburstBill
	Forecasts            []mrburstForecast
}

// burstData has all measured figures of the page, as they are in mrburst.json.
type burstData struct {
	Simulated *mrburstFigures `json:"simulated,omitempty"`
	Table2    []burstResource `json:"table_2,omitempty"`
	Live      *burstLiveData  `json:"live,omitempty"`
	Store     *burstLiveData  `json:"store,omitempty"`
}

// collect replaces live figures by those of the records, if there are any.
func (d *burstData) collect() error {
	for _, e := range burstExperiments() {
		of := &d.Live
		if e.set.Service == burstStore {
			of = &d.Store
		}
		live, err := e.collect(*of)
		if err != nil {
			return err
		}
		*of = live
	}
	return nil
}

// mrburstPage plays the simulated part.
func mrburstPage(ctx context.Context, dir string) error {
	return mrburstPagePart(ctx, dir, "simulated")
}

// mrburstPagePart plays a part: simulated, or pieces of a live part, as live-default, live, or store. The part page only writes the page.
func mrburstPagePart(ctx context.Context, dir, part string) error {
	var d burstData
	path := filepath.Join(dir, "mrburst.json")
	if _, err := readJSON(path, &d); err != nil {
		return err
	}
	work, live := burstWorkOf(part)
	var err error
	switch {
	case live:
		if err = work.play(ctx); err == nil {
			err = d.collect()
		}
	case part == "simulated":
		if d.Simulated, err = simulateMRburst(ctx); err == nil {
			d.Table2, err = playTable2()
		}
	case part == "table-2":
		d.Table2, err = playTable2()
	case part == "page":
		err = d.collect()
	default:
		err = fmt.Errorf("the mrburst page has no part %q", part)
	}
	if err == nil {
		err = writeJSON(path, d)
	}
	if err == nil && d.Live != nil {
		err = d.Live.plot(filepath.Join(dir, "mrburst-live.png"))
	}
	if err == nil && d.Store != nil {
		err = d.Store.plot(filepath.Join(dir, "mrburst-store.png"))
	}
	if err != nil {
		return err
	}
	return writePage(dir, "mrburst", newMRburstPage(d))
}

// burstPage has the figures of all parts of the page; what was not measured is nil.
type burstPage struct {
	Simulated   *mrburstFigures
	Table2      []burstResource
	Parts       []float64
	Live, Store *burstFigures
}

func newMRburstPage(d burstData) burstPage {
	return burstPage{d.Simulated, d.Table2, burstParts, newBurstFigures("live", d.Live), newBurstFigures("store", d.Store)}
}

// simulateMRburst plays a group of burstable instances over a day in the simulator.
func simulateMRburst(ctx context.Context) (*mrburstFigures, error) {
	sc, err := mrburstScenario()
	if err != nil {
		return nil, err
	}
	rows, err := sim.Train(ctx, sc, sim.Plan(), sc.Seed)
	if err != nil {
		return nil, err
	}
	models, _, err := model.Fit(rows, model.FitOptions{Service: sc.Name, Metric: sc.Service.SLO.Metric})
	if err != nil {
		return nil, err
	}
	f := newMRburstFigures(sc)
	f.Runs = mrburstRuns(sc, f)
	if err := playMRburst(ctx, sc, models, f.Runs); err != nil {
		return nil, err
	}
	if f.Bills, err = mrburstBills(ctx, sc, models, f); err != nil {
		return nil, err
	}
	f.Forecasts, err = mrburstForecasts(ctx, sc, models)
	return &f, err
}

// mrburstScenario is examples/scenarios/burstable-group.yaml, stretched to most of a day.
func mrburstScenario() (*scenario.Scenario, error) {
	sc, err := scenario.Load(filepath.Join("examples", "scenarios", "burstable-group.yaml"))
	if err != nil {
		return nil, err
	}
	sc.Duration *= mrburstDay
	c := sc.Instances.Credits
	c.Cap *= mrburstDay
	for i := range c.Balance {
		c.Balance[i] *= mrburstDay
	}
	return sc, nil
}

// mrburstProbes is the part of a processor that its probes use.
const mrburstProbes = 0.0025

func newMRburstFigures(sc *scenario.Scenario) mrburstFigures {
	f := mrburstFigures{Instances: len(sc.Hosts), Seeds: mrburstSeeds, Hours: sc.Duration.Hours()}
	f.Price = mrburstPrice
	f.Use = sc.Workload.Load * sc.Hosts[0].Cores
	for i, h := range sc.Hosts {
		f.Use += mrburstProbes * h.Cores
		f.Baseline += sc.Instances.Credits.Baseline * h.Cores
		f.Credits += sc.Instances.Credits.Balance[i]
	}
	return f
}

// Pooled is the time in hours for which all credits last together: sum of credits / (use - earned).
func (f mrburstFigures) Pooled() float64 { return f.Credits / (f.Use - f.Baseline) / 60 }

// After is how long a run goes on after that, in hours.
func (f mrburstFigures) After() float64 { return math.Max(0, f.Hours-f.Pooled()) }

// mrburstRuns are the contenders of the page.
func mrburstRuns(sc *scenario.Scenario, f mrburstFigures) []mrburstRun {
	prima := func(c policy.CreditSettings) quell.Policy {
		p := sc.PolicyOf(sc.Runs[0])
		settings := p.Settings.(prima.Settings)
		settings.Credits = c
		p.Settings = settings
		return p
	}
	static := quell.Policy{Name: table.All.Plain()}
	list := []mrburstRun{
		{Title: "PRIMA, balances shown, earning and spending learned", run: scenario.Run{Policy: prima(policy.CreditSettings{Last: time.Hour})},
			shown: true},
		{Title: "PRIMA, balances not shown, type configured",
			run: scenario.Run{Policy: prima(policy.CreditSettings{Last: time.Hour, Type: "t3.small", Unlimited: new(false)})}},
		{Title: "PRIMA without credits", run: scenario.Run{Policy: prima(policy.CreditSettings{})}},
		{Title: "equal weights, round robin", run: scenario.Run{Policy: static, Scheduling: quell.RoundRobin}},
		{Title: "equal weights, least connections", run: scenario.Run{Policy: static}},
	}
	for i := range list {
		r := &list[i]
		r.run.Fixed, r.Pooled = len(sc.Hosts), f.Pooled()
		if r.run.Scheduling == "" {
			r.run.Scheduling = quell.LeastConn
		}
		r.Held, r.Missed = make([]float64, mrburstSeeds), make([]float64, mrburstSeeds)
	}
	return list
}

// playMRburst plays every run with every seed, as many plays at once as there are processors.
func playMRburst(ctx context.Context, sc *scenario.Scenario, models *model.Models, runs []mrburstRun) error {
	return playAll(len(runs)*mrburstSeeds, func(i int) (err error) {
		r, seed := &runs[i/mrburstSeeds], i%mrburstSeeds
		r.Held[seed], r.Missed[seed], err = playBurstable(ctx, sc, models, r, uint64(seed+1))
		fmt.Fprintf(os.Stderr, "mrburst: %s, seed %d: %.1f h of %.1f h\n", r.Title, seed+1, r.Held[seed], r.Pooled)
		return err
	})
}

// playBurstable plays one run. held is how long it keeps the objective, until three judge windows in a row miss it, and missed is the time
// in windows that miss it, in hours.
func playBurstable(ctx context.Context, sc *scenario.Scenario, models *model.Models, r *mrburstRun, seed uint64) (held, missed float64,
	err error) {
	own, credits := *sc, *sc.Instances.Credits
	if own.Instances.Credits = &credits; !r.shown {
		credits.Shown = 0
	}
	held = sc.Duration.Hours()
	inRow := 0
	result, err := sim.Run(ctx, sim.Options{Scenario: &own, Run: r.run, Models: models, Seed: seed, Windows: func(w sim.Window) {
		if inRow++; !w.Violated {
			inRow = 0
		}
		if inRow == 3 {
			held = math.Min(held, (w.Start - 2*w.Length).Hours())
		}
	}})
	return held, result.SLO.ViolationS / 3600, err
}

// mrburstPrice is AWS's price of an hour of a processor of a t3.small beyond its credits, in dollars.
const mrburstPrice = 0.05

// mrburstBill is what the group costs beyond its credits if that is sold instead of refused.
type mrburstBill struct {
	Title         string
	Dollars, Held float64 // mean over the seeds; Held is the share of the time in which the objective is kept
	Least         float64 // the least that is possible, in dollars
}

// More is by how much the bill exceeds the least one, as a fraction.
func (b mrburstBill) More() float64 { return b.Dollars/b.Least - 1 }

// mrburstBills plays the runs over the same day in unlimited mode.
func mrburstBills(ctx context.Context, sc *scenario.Scenario, models *model.Models, f mrburstFigures) (list []mrburstBill, err error) {
	own, credits := *sc, *sc.Instances.Credits
	own.Instances.Credits = &credits
	credits.Surplus = mrburstPrice
	for _, r := range mrburstRuns(sc, f) {
		if settings, ok := r.run.Policy.Settings.(prima.Settings); ok {
			settings.Credits.Unlimited = new(true)
			r.run.Policy.Settings = settings
		}
		if !r.shown && r.run.Policy.Name != table.All.Plain() {
			continue
		}
		b := mrburstBill{Title: r.Title, Least: (f.Hours - f.Pooled()) * (f.Use - f.Baseline) * mrburstPrice}
		for seed := range mrburstSeeds {
			result, err := sim.Run(ctx, sim.Options{Scenario: &own, Run: r.run, Models: models, Seed: uint64(seed + 1)})
			if err != nil {
				return nil, err
			}
			b.Dollars += *result.SurplusUSD / mrburstSeeds
			b.Held += (1 - result.SLO.ViolationShare) / mrburstSeeds
		}
		list = append(list, b)
	}
	return list, nil
}

// mrburstForecasts plays one instance alone, and compares what was said of its depletion, hour by hour, with when it came.
func mrburstForecasts(ctx context.Context, sc *scenario.Scenario, models *model.Models) (list []mrburstForecast, err error) {
	own, credits := *sc, *sc.Instances.Credits
	own.Instances.Credits, credits.Balance = &credits, []float64{360}
	own.Hosts, own.Instances.Start, own.Instances.Fixed = sc.Hosts[:1], 1, 1
	own.Service.Group.Min, own.Service.Group.Max = 1, 1
	own.Workload.Load, own.Duration = 0.5, 11*time.Hour // 360 credits at 0.6 a minute last 10 h
	own.Runs = []scenario.Run{{Policy: sc.PolicyOf(sc.Runs[0]), Scheduling: quell.LeastConn, Fixed: 1}}
	own.WarmUp = 4 * own.Service.Sampling
	trueH := 0.0
	var begin *time.Time // of the plans
	_, err = sim.Run(ctx, sim.Options{
		Scenario: &own, Run: own.Runs[0], Models: models,
		Credits: func(at time.Duration, b map[string]float64) {
			if b[own.Hosts[0].ID] == 0 && trueH == 0 {
				trueH = at.Hours()
			}
		},
		Plans: func(p *quell.Plan) {
			if begin == nil {
				begin = &p.At
			}
			b, ok := p.Credits["i1"][quell.CPU]
			at := (p.At.Sub(*begin) - own.WarmUp).Hours()
			if !ok || b.DepletedS == nil || b.SoonestS == nil || b.LatestS == nil || at < float64(len(list)+1) || at > 9.5 {
				return
			}
			list = append(list, mrburstForecast{
				AtH: at, SaidH: at + *b.DepletedS/3600, SoonestH: at + *b.SoonestS/3600, LatestH: at + *b.LatestS/3600,
			})
		},
	})
	for i := range list {
		list[i].TrueH = trueH
	}
	return list, err
}
