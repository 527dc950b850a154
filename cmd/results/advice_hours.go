package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/report"
)

// adviceScenario is an hour of four instances. Neighbours are added by seed.
const adviceScenario = `
scenario: advice
duration: 1h
service:
  slo: {metric: mean, threshold: 40ms}
  sampling: 10s
  policy: {name: prima}
  group: {min: 4, max: 4, startup: 10s}
hosts: [{id: h, count: 4, network: 40Mbps}]
instances: {start: 4, fixed: 4, startup: 1s}
workload: {kind: file, arrivals: poisson, size: 50KB, load: %g}
timeline:%s
runs: [{policy: static, scheduling: %s, fixed: 4}, {policy: prima, scheduling: %s, fixed: 4%s}]
`

// adviceKind is a kind of simulated hours.
type adviceKind struct {
	balance     string
	firstSeed   uint64
	load        float64 // of the four links together
	least, more float64 // neighbours' use
	learns      bool    // PRIMA has no models at the beginning; else it is trained
}

// The kinds of hours. Under round robin, nothing but weights keeps requests from an instance beside neighbours.
var adviceKinds = []adviceKind{
	{balance: "leastconn", firstSeed: adviceFirstSeed, load: 1.9, least: 0.35, more: 0.35},
	{balance: "roundrobin", firstSeed: adviceFirstSeed + 100, load: 1.4, least: 0.4, more: 0.2, learns: true},
}

// hour returns the scenario of a seed. In a calm hour nobody disturbs.
func (k adviceKind) hour(seed uint64, calm bool) (*scenario.Scenario, error) {
	timeline, models := "", ""
	rng := rand.New(rand.NewPCG(seed, 44))
	for at := 60 + rng.IntN(120); !calm && at < 3500; at += 150 + rng.IntN(300) {
		host, use, lasts := 1+rng.IntN(4), k.least+k.more*rng.Float64(), 60+rng.IntN(200)
		timeline += fmt.Sprintf("\n  - {at: %ds, interfere: {host: h%d, resource: network, use: %.2f}}", at, host, use)
		timeline += fmt.Sprintf("\n  - {at: %ds, interfere: {host: h%d, resource: network, use: 0}}", min(at+lasts, 3590), host)
		at += lasts
	}
	if timeline == "" {
		timeline = fmt.Sprintf(" [{at: 1s, load: %g}]", k.load)
	}
	if k.learns {
		models = ", models: learn"
	}
	return scenario.Parse("advice.yaml", []byte(strings.TrimSpace(
		fmt.Sprintf(adviceScenario, k.load, timeline, k.balance, k.balance, models))))
}

// adviceHourResult compares what a report claims with what acting did.
type adviceHourResult struct {
	Seed    uint64          `json:"seed"`
	Calm    bool            `json:"calm"`
	Balance string          `json:"balance,omitempty"` // the balancer's rule
	MissedS float64         `json:"missed_s"`          // without acting
	ActedS  float64         `json:"acted_s"`           // with acting
	Verdict report.Verdict  `json:"verdict"`
	Claim   report.Estimate `json:"claim"`
	Looking report.Verdict  `json:"looking_back"` // of the report about the hour in which was acted
	Back    report.Estimate `json:"back"`
	Says    string          `json:"says"`
}

// Saved is what acting saved, in seconds.
func (r *adviceHourResult) Saved() float64 { return r.MissedS - r.ActedS }

// Inside returns whether that lies in the interval that the report gave.
func (r *adviceHourResult) Inside() bool {
	return r.Claim.Low <= r.Saved() && r.Saved() <= r.Claim.High
}

// Narrow returns whether the interval is at most half of the claimed saving.
func (r *adviceHourResult) Narrow() bool { return r.Claim.High-r.Claim.Low <= r.Claim.Value/2 }

func (k adviceKind) play(ctx context.Context, seed uint64, calm bool) (r adviceHourResult, err error) {
	sc, err := k.hour(seed, calm)
	if err != nil {
		return r, err
	}
	var models *model.Models
	if !k.learns {
		if models, err = simulatedModels(ctx, sc, seed); err != nil {
			return r, err
		}
	}
	advised, err := playAdvised(ctx, sc, models, seed)
	if err != nil {
		return r, err
	}
	acted, err := playActed(ctx, sc, models, seed)
	if err != nil {
		return r, err
	}
	r = adviceHourResult{Seed: seed, Calm: calm, Balance: k.balance, MissedS: advised.MissedS, ActedS: acted.MissedS, Verdict: advised.Verdict,
		Claim: advised.Advised.SavedS, Looking: acted.Verdict, Back: acted.Acted.SavedS, Says: advised.Sentence}
	return r, nil
}

func adviceCollector(service quell.Service) *report.Collector {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	until := began.Add(time.Hour)
	return report.New(report.Options{Service: service, Resource: quell.Network, Since: began, Until: until, Config: "quell.yaml"})
}

// playAdvised plays an hour with equal shares, while PRIMA only advises.
func playAdvised(ctx context.Context, sc *scenario.Scenario, models *model.Models, seed uint64) (*report.Report, error) {
	service := sc.Service
	service.Mode = quell.Advise
	engine, err := table.All.NewLearningEngine(service, nil)
	if models != nil {
		engine, err = table.All.NewEngine(service, models)
	}
	if err != nil {
		return nil, err
	}
	var state policy.State
	c := adviceCollector(service)
	_, err = sim.Run(ctx, sim.Options{Scenario: sc, Run: sc.Runs[0], Seed: seed, Snapshots: func(s *quell.Snapshot) {
		var plan quell.Plan
		plan, state = engine.Decide(s, state)
		c.Add(s, &report.Decision{Plan: &plan, Mode: quell.Advise})
	}})
	return c.Report(), err
}

// playActed plays it with PRIMA's shares in force.
func playActed(ctx context.Context, sc *scenario.Scenario, models *model.Models, seed uint64) (*report.Report, error) {
	var last *quell.Snapshot
	c := adviceCollector(sc.Service)
	_, err := sim.Run(ctx, sim.Options{Scenario: sc, Run: sc.Runs[1], Seed: seed, Models: models,
		Snapshots: func(s *quell.Snapshot) { last = s },
		Plans:     func(p *quell.Plan) { c.Add(last, &report.Decision{Plan: p, Mode: quell.Act, Applied: true}) }})
	return c.Report(), err
}
