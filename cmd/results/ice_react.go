package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/table"
)

// What reactions are measured with.
const (
	iceOnsets   = 30 // of neighbours
	iceDistance = 2 * time.Minute
)

// iceReaction is how long after onsets the weights change.
type iceReaction struct {
	Title   string  `json:"title"`
	Use     float64 `json:"use"`
	Noticed int     `json:"noticed"`
	Median  float64 `json:"median_s"`
	Max     float64 `json:"max_s"`
}

// reactions measures how soon neighbours of two strengths are noticed.
func (f *iceFigures) reactions(ctx context.Context) error {
	models, err := f.trained(ctx)
	if err != nil {
		return err
	}
	f.Reactions = nil
	for _, use := range []float64{0.6, 0.5} {
		for _, trained := range []*model.Models{nil, models} {
			delays, err := iceDelays(ctx, use, trained)
			if err != nil {
				return err
			}
			row := iceReaction{Title: titleOfTraining(trained), Use: use, Noticed: len(delays)}
			if n := len(delays); n > 0 {
				row.Median, row.Max = (delays[(n-1)/2]+delays[n/2])/2, delays[n-1]
			}
			f.Reactions = append(f.Reactions, row)
		}
	}
	return nil
}

// iceDelays lets a neighbour come to each server in turn, iceOnsets times and each time for half of iceDistance, at moments that do not
// agree with periods. It returns, in order of length, after how many seconds the server's share was cut. models may be nil.
func iceDelays(ctx context.Context, use float64, models *model.Models) (delays []float64, err error) {
	sc, err := exampleScenario("ice-hour")
	if err != nil {
		return nil, err
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
	next := 0
	_, err = sim.Run(ctx, sim.Options{Scenario: sc, Models: models, Seed: 1, Run: besideStatic(quell.RoundRobin),
		FastPlans: func(at time.Duration, _ *quell.Snapshot, p *quell.Plan) {
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
		}})
	slices.Sort(delays)
	return delays, err
}

// besideStatic is a run with ICE beside the policy static.
func besideStatic(s quell.Scheduling) scenario.Run {
	return scenario.Run{Policy: withICE(table.All.Whole(quell.Policy{Name: table.All.Plain()}), iceFloor()), Scheduling: s}
}

func titleOfTraining(models *model.Models) string {
	if models != nil {
		return "trained"
	}
	return "without training"
}

// iceCalm counts cuts in hours without neighbours.
type iceCalm struct {
	Title   string  `json:"title"`
	Hours   int     `json:"hours"`
	Cuts    int     `json:"cuts"`    // instances that were cut
	Seconds float64 `json:"seconds"` // for which some instance was cut, in all hours
}

// calmHours plays hours in which the load varies threefold and no neighbour comes.
func (f *iceFigures) calmHours(ctx context.Context) error {
	models, err := f.trained(ctx)
	if err != nil {
		return err
	}
	f.Calm = nil
	for _, scheduling := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn} {
		for _, trained := range []*model.Models{nil, models} {
			row := iceCalm{Title: fmt.Sprintf("%s, %s", titleOfTraining(trained), scheduling), Hours: iceSeeds}
			for seed := range uint64(iceSeeds) {
				if err := row.hour(ctx, sim.Options{Run: besideStatic(scheduling), Models: trained, Seed: seed + 1}); err != nil {
					return err
				}
			}
			f.Calm = append(f.Calm, row)
		}
	}
	return nil
}

// hour plays one hour.
func (row *iceCalm) hour(ctx context.Context, o sim.Options) (err error) {
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
	before := map[string]quell.Factor{}
	o.Scenario, o.FastPlans = sc, func(_ time.Duration, _ *quell.Snapshot, p *quell.Plan) {
		for id := range p.Factor {
			if _, was := before[id]; !was {
				row.Cuts++
			}
		}
		if before = p.Factor; len(p.Factor) > 0 {
			row.Seconds++
		}
	}
	_, err = sim.Run(ctx, o)
	return err
}
