package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
)

// Probing is how a machine is probed: in each Period by Count downloads of Bytes each, not counting headers.
type Probing struct {
	Period time.Duration
	Count  int
	Bytes  int64
}

// Share is the share of a link, in bit/s, that the downloads use.
func (p Probing) Share(bitsPerSecond float64) float64 {
	return 8 * float64(p.Count) * float64(p.Bytes) / p.Period.Seconds() / bitsPerSecond
}

// Spacing is the mean time between two downloads.
func (p Probing) Spacing() time.Duration { return p.Period / time.Duration(p.Count) }

// ProbedMachine is a machine on which the probing can be chosen. Probes makes a run and returns the times of its single
// probes in milliseconds, in order.
type ProbedMachine interface {
	Probes(ctx context.Context, r RunRequest, p Probing) ([]float64, error)
}

// ProbingStudy measures, for each of several ways to probe, the error of the severity that one period's probes give.
type ProbingStudy struct {
	Probings []Probing
	Resource quell.Resource
	Cells    []Cell // cells with interference; each of their levels is also run without
	Run      time.Duration
	WarmUp   time.Duration
	Machines []ProbedMachine // machines, used at the same time
	Seed     uint64          // the same for all probings, which so get the same load and interference
}

// ProbingScore is the result of one probing.
type ProbingScore struct {
	Probing
	Windows  int     `json:"windows"`  // number of periods measured
	Severity float64 `json:"severity"` // mean
	Error    float64 `json:"error"`    // error of one period's severity: root mean square over all cells
	Alone    float64 `json:"alone"`    // the same error without interference: the noise that a test must tolerate
}

// Study makes the runs and returns a score for each probing, in order. The error of a period's severity is its difference from the
// severity of the whole run. So an error that all probes of one kind have in common does not count.
func (s ProbingStudy) Study(ctx context.Context) ([]ProbingScore, error) {
	if len(s.Machines) == 0 {
		return nil, errors.New("a study of probing needs at least one machine")
	}
	jobs, singles := s.jobs(), make([][]float64, len(s.Probings)*len(s.cells()))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	for _, machine := range s.Machines {
		workers.Go(func() {
			for job := range jobs {
				p, c := s.Probings[job/len(s.cells())], s.cells()[job%len(s.cells())]
				var err error
				singles[job], err = machine.Probes(ctx, RunRequest{Resource: s.Resource, Cell: c, WarmUp: s.WarmUp, Run: s.Run,
					Seed: s.Seed + uint64(job%len(s.cells()))}, p)
				if err != nil {
					cancel(fmt.Errorf("probing %d times %d bytes at utilisation %.2f, interference %.2f: %w", p.Count, p.Bytes, c.Level, c.Interference,
						err))
					return
				}
			}
		})
	}
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	var scores []ProbingScore
	for i, p := range s.Probings {
		score, err := s.score(p, singles[i*len(s.cells()):][:len(s.cells())])
		if err != nil {
			return nil, err
		}
		scores = append(scores, score)
	}
	return scores, nil
}

// jobs gives the numbers of the runs: one for each cell with each probing.
func (s ProbingStudy) jobs() <-chan int {
	n := len(s.Probings) * len(s.cells())
	jobs := make(chan int, n)
	for i := range n {
		jobs <- i
	}
	close(jobs)
	return jobs
}

// cells lists every cell, each after a cell with its level and no interference.
func (s ProbingStudy) cells() []Cell {
	var out []Cell
	for _, c := range s.Cells {
		out = append(out, Cell{Level: c.Level}, c)
	}
	return out
}

func (s ProbingStudy) score(p Probing, singles [][]float64) (ProbingScore, error) {
	out := ProbingScore{Probing: p}
	var squares, alone float64
	for i := 0; i < len(singles); i += 2 {
		base := stat.Mean(singles[i], nil)
		quiet, felt := windows(singles[i], p.Count), windows(singles[i+1], p.Count)
		if len(quiet) < 2 || len(felt) < 2 {
			return out, fmt.Errorf("probing %d times %d bytes: a run of %v holds too few periods of %v: %w", p.Count, p.Bytes, s.Run, p.Period,
				quell.ErrNoData)
		}
		mean, deviation := stat.MeanStdDev(felt, nil)
		out.Severity += (mean/base - 1) / float64(len(s.Cells))
		squares += math.Pow(deviation/base, 2) / float64(len(s.Cells))
		alone += math.Pow(stat.StdDev(quiet, nil)/base, 2) / float64(len(s.Cells))
		out.Windows += len(felt)
	}
	out.Error, out.Alone = math.Sqrt(squares), math.Sqrt(alone)
	return out, nil
}

// windows returns the mean of every n values.
func windows(values []float64, n int) []float64 {
	var out []float64
	for ; len(values) >= n; values = values[n:] {
		out = append(out, stat.Mean(values[:n], nil))
	}
	return out
}
