package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/stats"
)

// Machine makes training runs, one at a time: each loads, disturbs and probes a machine, and then ends load and interference.
type Machine interface {
	Measure(ctx context.Context, r RunRequest) (model.TrainingRow, error)
}

// RunRequest asks for one run.
type RunRequest struct {
	Resource quell.Resource // resource that the service and the interferer use
	Disturb  quell.Resource // resource that the interferer uses instead; "": the same
	Cell
	WarmUp time.Duration // time with load and interference before measuring starts
	Run    time.Duration // time that is measured
	Seed   uint64
	// Alternate makes the interferer come and go; the row then has windows. nil: it stays.
	Alternate *Alternation
}

// disturbed is the resource that the interferer uses.
func (r RunRequest) disturbed() quell.Resource { return cmp.Or(r.Disturb, r.Resource) }

// Options of a training. Plan, Resource and Machines are required.
type Options struct {
	Plan     Plan
	Resource quell.Resource      // resource that is loaded, disturbed and probed
	Machines []Machine           // machines, used at the same time
	Rows     []model.TrainingRow // rows made before with the same plan and seed; their runs are not repeated
	Save     func(model.TrainingRow) error
	Progress func(Progress)
	Off      func(Cell, *OffError) // called for a cell that gets no row, because it was loaded otherwise than wanted; may be nil
	Seed     uint64
}

// Progress is how far a training has come.
type Progress struct {
	Cells, CellsDone int           // an adaptive plan may finish before all its cells are measured
	Runs             int           // runs made so far, including those of earlier calls
	Kept             int           // of these, the runs of earlier calls
	Left             time.Duration // estimated time to the end
}

// Run is the only way to train, on all kinds of machines. It makes every run of the plan that Options.Rows lacks, saves each row
// when it is done, and returns all rows in order of their seeds. The first error ends it; saved rows are kept. If Options.Rows has
// rows that do not belong to the plan, the error is a *quell.UserError.
func Run(ctx context.Context, o Options) ([]model.TrainingRow, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	t := &training{Options: o, saved: map[uint64]model.TrainingRow{}}
	if err := t.remember(); err != nil {
		return nil, err
	}
	for round := 0; ; round++ {
		cells, err := o.Plan.Round(round, t.rows, o.Seed)
		if err != nil {
			return nil, err
		}
		if len(cells) == 0 {
			return t.rows, cmp.Or(t.forgotten(), t.incomplete())
		}
		if err := t.round(ctx, cells); err != nil {
			return nil, err
		}
	}
}

func (o *Options) check() error {
	if err := o.Plan.Validate(); err != nil {
		return &quell.UserError{Err: err}
	}
	if !slices.Contains(quell.Resources, o.Resource) {
		return fmt.Errorf("training needs a resource, not %q", o.Resource)
	}
	if len(o.Machines) == 0 {
		return errors.New("training needs at least one machine")
	}
	return nil
}

// training is one call of Run.
type training struct {
	Options
	saved map[uint64]model.TrainingRow // rows made before, by seed
	cells []Cell                       // of all rounds so far

	mu   sync.Mutex // guards what follows
	next int        // in cells
	rows []model.TrainingRow
	done int // cells
	kept int // rows
	off  int // cells that were loaded otherwise than wanted
}

// remember takes the rows made before. A run's seed contains its number (see cell), so most rows that do not belong to the plan are
// recognised at once.
func (t *training) remember() error {
	cells, repeats := uint64(t.Plan.mostCells()), uint64(t.Plan.MaxRepeat)
	for _, row := range t.Rows {
		if row.Resource != t.Resource {
			return &quell.UserError{Err: fmt.Errorf("the rows are of %s, this training is of %s: name another file, or give --fresh, which sets "+
				"them aside", row.Resource, t.Resource)}
		}
		if _, twice := t.saved[row.Seed]; twice {
			return foreign("two rows have seed %d", row.Seed)
		}
		if number := row.Seed - t.Seed; number>>16 >= cells || number&0xffff >= repeats {
			return foreign("this plan makes no run with seed %d", row.Seed)
		}
		t.saved[row.Seed] = row
	}
	return nil
}

// forgotten returns an error if, at the end, some rows of an earlier training were not used.
func (t *training) forgotten() error {
	if t.kept == len(t.saved) {
		return nil
	}
	for _, row := range t.rows {
		delete(t.saved, row.Seed)
	}
	return foreign("this plan makes no run with seed %d", slices.Min(slices.Collect(maps.Keys(t.saved))))
}

// incomplete returns an error if some cells have no row, or fewer than wanted.
func (t *training) incomplete() error {
	if t.off == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d cells were loaded otherwise than wanted: their runs are left out; the same command makes them", t.off,
		len(t.cells))
}

// foreign is the error if rows do not belong to a training with these settings.
func foreign(format string, args ...any) error {
	return &quell.UserError{Err: fmt.Errorf(format+": the rows were changed, or made by another version; give --fresh, or name another file",
		args...)}
}

// round measures a round's cells on all machines, and sorts the rows by their seeds, so that the next round does not depend on
// which machine was first.
func (t *training) round(ctx context.Context, cells []Cell) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.cells = append(t.cells, cells...)
	var workers sync.WaitGroup
	for _, machine := range t.Machines {
		workers.Go(func() {
			if err := t.work(ctx, machine); err != nil {
				cancel(err)
			}
		})
	}
	workers.Wait()
	slices.SortFunc(t.rows, func(a, b model.TrainingRow) int { return cmp.Compare(a.Seed-t.Seed, b.Seed-t.Seed) })
	return context.Cause(ctx)
}

// work measures one cell after the other on one machine until none is left.
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
	if t.next == len(t.cells) {
		return 0, false
	}
	t.next++
	return t.next - 1, true
}

// cell repeats a run until a mean is precise enough: that of the probe time without load or interference, that of the response time
// otherwise. If the mean never becomes precise enough, the row is kept and marked. A run that was loaded otherwise than wanted ends the
// cell; with an adaptive plan, which chooses cells by the rows before, it ends the training.
func (t *training) cell(ctx context.Context, number int, machine Machine) error {
	cell := t.cells[number]
	var means []float64
	for n := range t.Plan.MaxRepeat {
		row, old, err := t.run(ctx, cell, t.Seed+uint64(number)<<16+uint64(n), machine)
		if off, ok := errors.AsType[*OffError](err); ok && t.Plan.Adaptive == nil {
			t.leaveOut(cell, off)
			return nil
		}
		if err != nil {
			return err
		}
		means = append(means, t.judged(cell, &row))
		stop := t.settle(&row, means)
		if err := t.keep(row, old, stop || n+1 == t.Plan.MaxRepeat); err != nil {
			return err
		}
		if stop {
			return nil
		}
	}
	return nil
}

// run makes a run, unless it was made before.
func (t *training) run(ctx context.Context, cell Cell, seed uint64, machine Machine) (row model.TrainingRow, old bool, err error) {
	row, old = t.saved[seed]
	if !old {
		row, err = machine.Measure(ctx, RunRequest{Resource: t.Resource, Cell: cell, WarmUp: t.Plan.WarmUp, Run: t.Plan.Run, Seed: seed,
			Alternate: t.Plan.Alternate})
		if err != nil {
			err = fmt.Errorf("training at utilisation %.2f, interference %.2f: %w", cell.Level, cell.Interference, err)
		}
		return row, false, err
	}
	if row.Level != cell.Level || row.InterferingLevel == nil || *row.InterferingLevel != cell.Interference {
		return row, true, foreign("the row with seed %d is of utilisation %v, where this plan has %v under interference %v", seed, row.Level,
			cell.Level, cell.Interference)
	}
	return row, true, nil
}

// leaveOut counts a cell whose run is not kept.
func (t *training) leaveOut(cell Cell, off *OffError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.off++
	t.done++
	if t.Off != nil {
		t.Off(cell, off)
	}
}

func (t *training) judged(cell Cell, row *model.TrainingRow) float64 {
	if cell.Interference == 0 || cell.Level == 0 {
		return row.ProbeMS.Mean
	}
	mean, _ := row.LatencyMS.Of(quell.Mean)
	return mean
}

// settle records in the row how precise the mean is, and returns whether that is enough.
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

// keep counts a row, and saves it unless it was made before.
func (t *training) keep(row model.TrainingRow, old, cellDone bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old {
		t.kept++
	} else if t.Save != nil {
		if err := t.Save(row); err != nil {
			return err
		}
	}
	t.rows = append(t.rows, row)
	if cellDone {
		t.done++
	}
	if t.Progress != nil {
		t.Progress(t.progress())
	}
	return nil
}

// progress estimates the time left from how many runs a cell has taken on average.
func (t *training) progress() Progress {
	cells, runs := t.Plan.mostCells(), len(t.rows)
	perCell := float64(t.Plan.Repeat)
	if t.done > 0 {
		perCell = float64(runs) / float64(t.done)
	}
	runsLeft := math.Max(0, perCell*float64(cells)-float64(runs))
	rounds := math.Ceil(runsLeft / float64(len(t.Machines)))
	return Progress{
		Cells: cells, CellsDone: t.done, Runs: runs, Kept: t.kept,
		Left: time.Duration(rounds) * (t.Plan.WarmUp + t.Plan.Run),
	}
}
