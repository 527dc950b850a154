package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/switchback"
)

// compared is four instances in which a policy is compared with equal shares.
type compared struct {
	Name  string
	Want  switchback.Verdict
	hours int
	storm bool // neighbours come and go all the time
	harm  bool // the policy gives much too much to one machine
}

var comparisons = []compared{
	{Name: "a policy that is made worse on purpose, calm", Want: switchback.Worse, hours: 1, harm: true},
	{Name: "PRIMA, neighbours come and go", Want: switchback.Better, hours: 2, storm: true},
	{Name: "PRIMA, calm", Want: switchback.Neither, hours: 1},
}

func (c compared) scenario(seed uint64) (*scenario.Scenario, error) {
	timeline, end := "\n  - {at: 1s, load: 1.9}", 3600*c.hours-100
	rng := rand.New(rand.NewPCG(seed, 44))
	for at := 20 + rng.IntN(40); c.storm && at < end; at += 20 + rng.IntN(60) {
		host, use, lasts := 1+rng.IntN(4), 0.5+0.2*rng.Float64(), 60+rng.IntN(120)
		timeline += fmt.Sprintf("\n  - {at: %ds, interfere: {host: h%d, resource: network, use: %.2f}}", at, host, use)
		timeline += fmt.Sprintf("\n  - {at: %ds, interfere: {host: h%d, resource: network, use: 0}}", min(at+lasts, end+90), host)
		at += lasts
	}
	return scenario.Parse("compared.yaml", fmt.Appendf(nil, `scenario: compared
duration: %dh
service:
  slo: {metric: mean, threshold: 160ms}
  sampling: 10s
  policy: {name: prima}
  group: {min: 4, max: 4, startup: 10s}
hosts: [{id: h, count: 4, network: 40Mbps}]
instances: {start: 4, fixed: 4, startup: 1s}
workload: {kind: file, arrivals: poisson, size: 200KB, load: 1.9}
timeline:%s
runs: [{policy: prima, scheduling: roundrobin, fixed: 4, models: learn}]
`, c.hours, timeline))
}

// play compares in turns of a minute.
func (c compared) play(ctx context.Context, seed uint64) (*switchback.Result, error) {
	sc, err := c.scenario(seed)
	if err != nil {
		return nil, err
	}
	schedule := switchback.New(seed, time.Minute, sc.Duration)
	collector := switchback.Collect(switchback.For(sc.Service))
	var last *quell.Snapshot
	var began time.Time
	_, err = sim.Run(ctx, sim.Options{Scenario: sc, Run: sc.Runs[0], Seed: seed, Fluid: true,
		Snapshots: func(s *quell.Snapshot) {
			if began.IsZero() {
				began = s.At
			}
			s.Turn, _ = schedule.At(began, s.At.Sub(began))
			last = s
			collector.Add(s)
		},
		Plans: func(p *quell.Plan) {
			if last.Turn != nil && last.Turn.Back {
				switchback.HandBack(p, last)
			} else if c.harm {
				crowd(p)
			}
		}})
	return collector.Result(), err
}

// crowd gives one instance nearly half of the requests.
func crowd(p *quell.Plan) {
	for id := range p.Weights {
		if p.Weights[id] = 0.18; id == "i2" {
			p.Weights[id] = 0.46
		}
	}
}

// comparedResult is what a comparison of a seed found.
type comparedResult struct {
	Name  string             `json:"name"`
	Seed  uint64             `json:"seed"`
	Found *switchback.Result `json:"found"`
	Right bool               `json:"right"`
}

// compareSeeds is the number of seeds of each comparison.
const compareSeeds = 5

func playCompared(ctx context.Context, d *adviceData) error {
	d.Compared = make([]comparedResult, compareSeeds*len(comparisons))
	return playAll(len(d.Compared), func(i int) error {
		c, seed := comparisons[i/compareSeeds], uint64(adviceFirstSeed+i%compareSeeds)
		r, err := c.play(ctx, seed)
		if err != nil {
			return err
		}
		d.Compared[i] = comparedResult{Name: c.Name, Seed: seed, Found: r, Right: r.Verdict == c.Want}
		fmt.Fprintf(os.Stderr, "advice: comparison %d done: %s\n", i+1, r.Verdict)
		return nil
	})
}
