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
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/stats"
)

// Target is a machine that training can load and disturb.
type Target interface {
	// Service is the URL of the service, Probe the address of the probe server.
	Service() string
	Probe() string
	// Interfere sets the share of the resource that an interferer asks for.
	Interfere(use float64) error
	// Carried returns what the service and the interferer have carried since the target's beginning, in seconds of
	// the whole resource: a difference over a run, divided by its length, is a utilisation.
	Carried() Carried
}

// Carried is accumulated use, in seconds of the whole resource.
type Carried struct{ Own, Interfering float64 }

// Options of a training. All but Progress and Seed are required.
type Options struct {
	Plan       Plan
	Targets    []Target // worked on at once, each by one run at a time
	Resource   quell.Resource
	PerSecond  float64 // requests per second that fill the resource: turns a level into a rate
	Process    loadgen.Process
	Probe      probe.Options // Targets and Publish are not used
	Save       func(model.TrainingRow) error
	Progress   func(Progress)
	Seed       uint64
	MaxLatency time.Duration // a request that takes longer counts as failed; 0: 30 s
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
	for i, target := range o.Targets {
		workers.Go(func() {
			if err := t.work(ctx, i, target); err != nil {
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
	if len(o.Targets) == 0 {
		return errors.New("training needs at least one target")
	}
	if !(o.PerSecond > 0) {
		return errors.New("training needs the request rate that fills the resource")
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

// work makes cell after cell on one target until none is left.
func (t *training) work(ctx context.Context, index int, target Target) error {
	defer func() { _ = target.Interfere(0) }()
	options := t.Probe
	options.Seed = t.Seed + uint64(index)
	options.Targets = func() []probe.Target { return nil }
	options.Publish = func(context.Context, quell.Reading) error { return nil }
	prober, err := probe.NewProber(options)
	if err != nil {
		return err
	}
	for {
		number, ok := t.take()
		if !ok {
			return nil
		}
		if err := t.cell(ctx, number, target, prober); err != nil {
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
func (t *training) cell(ctx context.Context, number int, target Target, prober *probe.Prober) error {
	cell := t.cells[number]
	var means []float64
	for n := 0; n < t.Plan.MaxRepeat; n++ {
		row, err := t.run(ctx, cell, t.Seed+uint64(number)<<16+uint64(n), target, prober)
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

// run loads, disturbs and probes one target for one run.
func (t *training) run(ctx context.Context, cell Cell, seed uint64, target Target, prober *probe.Prober) (model.TrainingRow, error) {
	if err := target.Interfere(cell.Interference); err != nil {
		return model.TrainingRow{}, err
	}
	length := t.Plan.WarmUp + t.Plan.Run
	arrivals, err := loadgen.NewArrivals(loadgen.ArrivalOptions{
		Process: t.Process, Rate: []loadgen.Step{{PerSecond: cell.Level * t.PerSecond}}, Duration: length, Seed: seed,
	})
	if err != nil {
		return model.TrainingRow{}, err
	}
	recorder := loadgen.NewRecorder()
	runner, err := loadgen.New(loadgen.Options{URL: target.Service(), Arrivals: arrivals, Path: "/file", Timeout: t.MaxLatency, Report: func(s loadgen.Sample) {
		if s.Intended >= t.Plan.WarmUp {
			recorder.Record(s)
		}
	}})
	if err != nil {
		return model.TrainingRow{}, err
	}
	var load sync.WaitGroup
	load.Go(func() { runner.Run(ctx) })
	row, err := t.measure(ctx, target, prober)
	load.Wait()
	if err != nil {
		return row, err
	}
	if err := ctx.Err(); err != nil {
		return row, err
	}
	return t.fill(row, cell, seed, recorder.Total())
}

// measure probes through the part of a run that counts, and accounts what was carried meanwhile.
func (t *training) measure(ctx context.Context, target Target, prober *probe.Prober) (model.TrainingRow, error) {
	select {
	case <-ctx.Done():
		return model.TrainingRow{}, ctx.Err()
	case <-time.After(t.Plan.WarmUp):
	}
	before, began := target.Carried(), time.Now()
	p, _, err := prober.Collect(ctx, probe.Target{Instance: "training", Address: target.Probe()}, t.Plan.Run)
	if err != nil {
		return model.TrainingRow{}, err
	}
	after, seconds := target.Carried(), time.Since(began).Seconds()
	return model.TrainingRow{
		Resource:    t.Resource,
		Utilization: (after.Own - before.Own) / seconds,
		Interfering: (after.Interfering - before.Interfering) / seconds,
		ProbeMS:     model.ProbeRun{Mean: p.MeanMS, Stddev: p.StddevMS, N: p.N},
		DurationS:   seconds,
	}, nil
}

func (t *training) fill(row model.TrainingRow, cell Cell, seed uint64, total loadgen.Stats) (model.TrainingRow, error) {
	if total.Requests == 0 || total.LatencyMS.N == 0 {
		return row, fmt.Errorf("no request succeeded: %d of %d failed", total.Errors, total.Requests)
	}
	row.Level, row.InterferingLevel, row.Seed = cell.Level, &cell.Interference, seed
	row.LatencyMS, row.Requests, row.Errors = total.LatencyMS, total.Requests, total.Errors
	row.RequestRate = float64(total.Requests) / t.Plan.Run.Seconds()
	if cell.Interference == 0 {
		row.Interfering = 0
	}
	row.Utilization = math.Min(row.Utilization, 1)
	return row, nil
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
	rounds := math.Ceil(runsLeft / float64(len(t.Targets)))
	return Progress{
		Cells: len(t.cells), CellsDone: t.done, Runs: t.runs, Elapsed: time.Since(t.began), Last: row,
		Left: time.Duration(rounds) * (t.Plan.WarmUp + t.Plan.Run),
	}
}
