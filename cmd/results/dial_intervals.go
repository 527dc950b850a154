package main

import (
	"context"
	"math"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
)

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
