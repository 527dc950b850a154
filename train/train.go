package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/stats"
)

// Machine makes training runs, one at a time: it loads, disturbs and probes a machine, and leaves it undisturbed.
type Machine interface {
	Measure(ctx context.Context, r RunRequest) (model.TrainingRow, error)
}

// RunRequest asks for one run.
type RunRequest struct {
	Cell
	WarmUp time.Duration // load and interference before the run counts
	Run    time.Duration // its length
	Seed   uint64
}

// Options of a training. All but Progress and Seed are required.
type Options struct {
	Plan     Plan
	Machines []Machine // work at once
	Save     func(model.TrainingRow) error
	Progress func(Progress)
	Seed     uint64
}

// Progress tells how far a training is.
type Progress struct {
	Cells, CellsDone int
	Runs             int           // made so far
	Left             time.Duration // estimated
	Elapsed          time.Duration
	Last             *model.TrainingRow
}

// Run makes every run of the plan and saves its row as soon as it is done. The first error ends it; what was saved
// stays.
func Run(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := &training{Options: o, cells: shuffled(o.Plan.Cells(), o.Seed), began: time.Now()}
	var workers sync.WaitGroup
	for _, machine := range o.Machines {
		workers.Go(func() {
			if err := t.work(ctx, machine); err != nil {
				cancel(err)
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// shuffled mixes the cells, so that a machine that gets slower or faster meanwhile disturbs baseline and
// interference alike and not one against the other.
func shuffled(cells []Cell, seed uint64) []Cell {
	cells = slices.Clone(cells)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	return cells
}

func (o *Options) check() error {
	if err := o.Plan.Validate(); err != nil {
		return &quell.UserError{Err: err}
	}
	if len(o.Machines) == 0 {
		return errors.New("training needs at least one machine")
	}
	return nil
}

// training is one call of Run.
type training struct {
	Options
	cells []Cell
	began time.Time

	mu   sync.Mutex // guards what follows
	next int
	done int
	runs int
}

// work makes cell after cell on one machine until none is left.
func (t *training) work(ctx context.Context, machine Machine) error {
	for {
		number, ok := t.take()
		if !ok {
			return nil
		}
		if err := t.cell(ctx, number, machine); err != nil {
			return err
		}
	}
}

func (t *training) take() (number int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	return t.next - 1, t.next <= len(t.cells)
}

// cell repeats a run until the mean it is about is known well enough: the probe's in isolation, the response time's
// under interference. A cell that never gets there is kept and marked.
func (t *training) cell(ctx context.Context, number int, machine Machine) error {
	cell := t.cells[number]
	var means []float64
	for n := 0; n < t.Plan.MaxRepeat; n++ {
		row, err := machine.Measure(ctx, RunRequest{Cell: cell, WarmUp: t.Plan.WarmUp, Run: t.Plan.Run, Seed: t.Seed + uint64(number)<<16 + uint64(n)})
		if err != nil {
			return fmt.Errorf("training at utilisation %.2f, interference %.2f: %w", cell.Level, cell.Interference, err)
		}
		means = append(means, t.judged(cell, &row))
		stop := t.settle(&row, means)
		if err := t.save(row, stop || n+1 == t.Plan.MaxRepeat); err != nil {
			return err
		}
		if stop {
			return nil
		}
	}
	return nil
}

func (t *training) judged(cell Cell, row *model.TrainingRow) float64 {
	if cell.Interference == 0 {
		return row.ProbeMS.Mean
	}
	mean, _ := row.LatencyMS.Of(quell.Mean)
	return mean
}

// settle notes in the row how well the mean is known and says whether to stop.
func (t *training) settle(row *model.TrainingRow, means []float64) (stop bool) {
	interval, ok := stats.MeanInterval(means, t.Plan.Confidence)
	if !ok {
		return false
	}
	if relative, ok := interval.Relative(); ok {
		row.Interval = &relative
	}
	converged := interval.Within(t.Plan.Interval)
	row.Converged = &converged
	return converged && len(means) >= t.Plan.Repeat
}

func (t *training) save(row model.TrainingRow, cellDone bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.Save(row); err != nil {
		return err
	}
	t.runs++
	if cellDone {
		t.done++
	}
	if t.Progress != nil {
		t.Progress(t.progress(&row))
	}
	return nil
}

// progress estimates the time left from the runs that a cell took so far.
func (t *training) progress(row *model.TrainingRow) Progress {
	perCell := float64(t.Plan.Repeat)
	if t.done > 0 {
		perCell = float64(t.runs) / float64(t.done)
	}
	runsLeft := math.Max(0, perCell*float64(len(t.cells))-float64(t.runs))
	rounds := math.Ceil(runsLeft / float64(len(t.Machines)))
	return Progress{
		Cells: len(t.cells), CellsDone: t.done, Runs: t.runs, Elapsed: time.Since(t.began), Last: row,
		Left: time.Duration(rounds) * (t.Plan.WarmUp + t.Plan.Run),
	}
}
