package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"time"

	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/lab/testbed/emulated"
	"github.com/quellhq/quell/train"
)

// probingPeriod is long enough for a download of 1 MB to be 5% of the link.
const (
	probingPeriod = 4 * time.Second
	bigProbe      = 1_000_000
)

// probedCells are the loads and interferences at which severity is estimated.
var probedCells = []train.Cell{{Level: 0.2, Interference: 0.3}, {Level: 0.4, Interference: 0.1}, {Level: 0.4, Interference: 0.3},
	{Level: 0.6, Interference: 0.1}}

// probings are ways to probe: one large download per period, and for each budget (a share of the link) each number of downloads that
// together use the budget.
func probings(budgets []float64, counts []int) []train.Probing {
	all := []train.Probing{{Period: probingPeriod, Count: 1, Bytes: bigProbe}}
	for _, budget := range budgets {
		for _, count := range counts {
			all = append(all, train.Probing{Period: probingPeriod, Count: count,
				Bytes: int64(budget * linkBits / 8 * probingPeriod.Seconds() / float64(count))})
		}
	}
	return all
}

// probingPage measures how the error of severity depends on the probe budget.
func probingPage(ctx context.Context, dir string) error {
	return errors.Join(probingPagePart(ctx, dir, "simulated"), probingPagePart(ctx, dir, "emulated"))
}

// probingPagePart measures a part, simulated or emulated, or only writes the page.
func probingPagePart(ctx context.Context, dir, part string) (err error) {
	var d probingData
	path := filepath.Join(dir, "probing.json")
	if _, err := readJSON(path, &d); err != nil {
		return err
	}
	switch part {
	case "simulated":
		if d.Simulated, err = simulateProbing(ctx, probings([]float64{0.01, 0.02, 0.03, 0.05}, []int{1, 8, 20, 40, 80})); err == nil {
			err = writeJSON(path, d)
		}
	case "emulated":
		d.Emulated, err = probedForReal(ctx)
	case "page":
	default:
		err = fmt.Errorf("the probing page has no part %q", part)
	}
	if err != nil {
		return err
	}
	return writePage(dir, "probing", probingFigures{
		place: here(), LinkBits: linkBits, Period: probingPeriod, Cells: len(probedCells), Simulated: probed(d.Simulated, linkBits),
		EmulatedCells: len(emulatedCells), EmulatedRun: emulatedProbing, Emulated: probed(d.Emulated, linkBits),
	})
}

// probingData has the simulated figures of the page, as they are in probing.json. The emulated ones are in live.json, as text.
type probingData struct {
	Simulated []train.ProbingScore `json:"simulated"`
	Emulated  []train.ProbingScore `json:"-"`
}

// simulateProbing compares ways to probe a simulated machine.
func simulateProbing(ctx context.Context, probings []train.Probing) ([]train.ProbingScore, error) {
	sc, err := simulatedService()
	if err != nil {
		return nil, err
	}
	study := train.ProbingStudy{
		Probings: probings, Resource: emulated.Shared, Cells: probedCells, Run: 40 * time.Minute, WarmUp: 10 * time.Second, Seed: 1,
	}
	for range runtime.GOMAXPROCS(0) {
		study.Machines = append(study.Machines, &sim.Trainer{Scenario: sc})
	}
	return study.Study(ctx)
}

// probingFigures are the errors with each budget, simulated and on emulated hosts.
type probingFigures struct {
	place
	LinkBits             float64
	Period, EmulatedRun  time.Duration
	Cells, EmulatedCells int // number of combinations of load and interference
	Simulated, Emulated  []probedRow
}

// probedRow is one way of probing.
type probedRow struct {
	train.ProbingScore
	OfLink       float64 // share of the link
	SquareError  float64 // squared error times megabytes
	AgainstFirst float64 // error as a share of the first row's
}

func probed(scores []train.ProbingScore, linkBits float64) (rows []probedRow) {
	for _, s := range scores {
		megabytes := float64(s.Count) * float64(s.Bytes) / 1e6
		rows = append(rows, probedRow{s, s.Share(linkBits), math.Pow(s.Error, 2) * megabytes, s.Error / scores[0].Error})
	}
	return rows
}

// The check on real connections is shorter: it takes real time.
const emulatedProbing = 150 * time.Second

var emulatedCells = []train.Cell{{Level: 0.4, Interference: 0.3}}

func probedForReal(ctx context.Context) (scores []train.ProbingScore, err error) {
	study := train.ProbingStudy{Probings: probings([]float64{0.02}, []int{8, 20, 40}), Resource: emulated.Shared, Cells: emulatedCells,
		Run: emulatedProbing, WarmUp: 2 * time.Second, Seed: 1}
	err = experiment.Training{Hosts: 4, Bandwidth: linkBits, Workload: fileWorkload, Budget: 0.02, Seed: 1}.On(ctx,
		func(ctx context.Context, machines []train.Machine) error {
			for _, m := range machines {
				study.Machines = append(study.Machines, m.(train.ProbedMachine))
			}
			scores, err = study.Study(ctx)
			return err
		})
	return scores, err
}
