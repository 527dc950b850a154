package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/train"
)

// probingPeriod is long enough for a download of 1 MB to be 5% of the link.
const (
	probingPeriod = 4 * time.Second
	bigProbe      = 1_000_000
)

// probedCells are loads and interferences in which severity is estimated.
var probedCells = []train.Cell{{Level: 0.2, Interference: 0.3}, {Level: 0.4, Interference: 0.1}, {Level: 0.4, Interference: 0.3}, {Level: 0.6, Interference: 0.1}}

// probings are budgets of the link, spent on one download a period or on many.
func probings(budgets []float64, counts []int) []train.Probing {
	all := []train.Probing{{Period: probingPeriod, Count: 1, Bytes: bigProbe}}
	for _, budget := range budgets {
		for _, count := range counts {
			all = append(all, train.Probing{Period: probingPeriod, Count: count, Bytes: int64(budget * linkBits / 8 * probingPeriod.Seconds() / float64(count))})
		}
	}
	return all
}

// probingPage measures what a probe budget buys.
func probingPage(ctx context.Context, dir string) error {
	sc, err := simulatedService()
	if err != nil {
		return err
	}
	study := train.ProbingStudy{
		Probings: probings([]float64{0.01, 0.02, 0.03, 0.05}, []int{1, 8, 20, 40, 80}),
		Cells:    probedCells, Run: 40 * time.Minute, WarmUp: 10 * time.Second, Seed: 1,
	}
	for range runtime.GOMAXPROCS(0) {
		study.Machines = append(study.Machines, &sim.Trainer{Scenario: sc})
	}
	simulated, err := study.Study(ctx)
	if err != nil {
		return err
	}
	emulated, err := probedForReal(ctx)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# What a probe budget buys\n\nWritten by `go run ./cmd/results probing`.\n\n")
	fmt.Fprintf(&b, "A link of %.0f Mbit/s is probed with so many downloads per period of %v. The error is how far one period's severity lies from the long run's, root mean square over %d loads and interferences; alone: the same without interference, the noise that a test for interference must stay above. Error² x MB is what a byte buys: the smaller, the better spent.\n", linkBits/1e6, probingPeriod, len(probedCells))
	fmt.Fprintf(&b, "\n## Simulated\n\n%s", probingTable(simulated))
	fmt.Fprintf(&b, "\n## On emulated hosts\n\n%d of the loads, %v each, on %s.\n\n%s", len(emulatedCells), emulatedProbing, machine(), probingTable(emulated))
	fmt.Fprintf(&b, "\n%s\n", probingLesson)
	return os.WriteFile(filepath.Join(dir, "probing.md"), b.Bytes(), 0o644)
}

// probingLesson is what the tables say.
const probingLesson = "Many small downloads beat one large one: they meet the link at more moments, and what one moment shows is mostly its own queue, however large the download. From 20 downloads a period on, 2% of the link, and even 1%, err less than one download of 1 MB at 5%; with 8 they come close to it. Beyond 40 little is gained, and bytes hardly matter: what is left is how much the queue itself varies from one period to the next. `probe.count` sets the number; the budget may then be small."

// The check on real connections is shorter: it takes real time.
const emulatedProbing = 150 * time.Second

var emulatedCells = []train.Cell{{Level: 0.4, Interference: 0.3}}

func probedForReal(ctx context.Context) (scores []train.ProbingScore, err error) {
	study := train.ProbingStudy{Probings: probings([]float64{0.02}, []int{8, 20, 40}), Cells: emulatedCells, Run: emulatedProbing, WarmUp: 2 * time.Second, Seed: 1}
	err = experiment.Training{Hosts: 4, Bandwidth: linkBits, Workload: fileWorkload, Budget: 0.02, Seed: 1}.On(ctx, func(ctx context.Context, machines []train.Machine) error {
		for _, m := range machines {
			study.Machines = append(study.Machines, m.(train.ProbedMachine))
		}
		scores, err = study.Study(ctx)
		return err
	})
	return scores, err
}

func probingTable(scores []train.ProbingScore) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "| downloads | bytes each | share of the link | severity | error | alone | error² x MB | against 1 x 1 MB |\n|---|---|---|---|---|---|---|---|\n")
	for _, s := range scores {
		megabytes := float64(s.Count) * float64(s.Bytes) / 1e6
		fmt.Fprintf(&b, "| %d | %d | %.1f%% | %.2f | %.3f | %.3f | %.4f | %.2f |\n", s.Count, s.Bytes, 100*s.Share(linkBits), s.Severity, s.Error, s.Alone, math.Pow(s.Error, 2)*megabytes, s.Error/scores[0].Error)
	}
	return b.Bytes()
}
