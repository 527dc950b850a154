package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/testbed/kernel"
)

// How a neighbour's use is measured.
const (
	useRepeats = 3
	useSettles = time.Second     // after a neighbour has started
	useCounted = 3 * time.Second // by counters
	useBench   = 4 * time.Second // by a benchmark
)

// useHost is the machine: a core, and a disk with a limit.
var useHost = kernel.Host{ID: "h1", Cores: 1, DiskIOPS: 400}

// coresWanted is how many processors instance and neighbour may use together: each has as many as the machine.
var coresWanted = 2 * math.Ceil(useHost.Cores)

// useWanted are the uses that the neighbour is told.
var useWanted = []float64{0.2, 0.4, 0.6, 0.8}

// useRow is a neighbour's use of a resource, as parts of the machine's. Each value is of one repetition.
type useRow struct {
	Resource  quell.Resource `json:"resource"`
	Told      float64        `json:"told"`
	Counted   []float64      `json:"counted"`   // by counters, beside an idle instance
	Beside    []float64      `json:"beside"`    // by counters, beside the benchmark
	Available []float64      `json:"available"` // rate of the benchmark beside the neighbour
	Peak      []float64      `json:"peak"`      // its rate alone
}

// ByBenchmark is the use as DIAL has it (section III-D): what is missing to the benchmark's peak, over the peak.
func (r useRow) ByBenchmark() (uses []float64) {
	for i, available := range r.Available {
		uses = append(uses, math.Max(0, 1-available/r.Peak[i]))
	}
	return uses
}

// ByCores is the use of the processors over the larger of the cores that are there and the cores that instance and neighbour may use
// together, as DIAL has it.
func (r useRow) ByCores() (uses []float64) {
	if r.Resource != quell.CPU {
		return nil
	}
	for _, u := range r.Counted {
		uses = append(uses, u*useHost.Cores/max(coresWanted, useHost.Cores))
	}
	return uses
}

// useFigures are what the page has of it.
type useFigures struct {
	Machine string   `json:"machine"`
	Rows    []useRow `json:"rows"`
}

// measureUse measures how much a neighbour uses, by counters and by what a benchmark still gets.
func (f *dialFigures) measureUse(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "qu-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	lab, err := kernel.New(kernel.Options{Prefix: fmt.Sprintf("qu%d", os.Getpid()), Dir: filepath.Join(dir, "lab"),
		Hosts: []kernel.Host{useHost}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	var rows []useRow
	for range useRepeats {
		for _, r := range []quell.Resource{quell.CPU, quell.Memory, quell.Disk} {
			if rows, err = repeatUse(ctx, lab.Machine(useHost.ID), r, rows); err != nil {
				return fmt.Errorf("%s: %w", r, err)
			}
		}
	}
	f.Use = &useFigures{here().Machine, rows}
	return nil
}

// repeatUse adds a repetition of a resource to the rows.
func repeatUse(ctx context.Context, m *kernel.Machine, r quell.Resource, rows []useRow) ([]useRow, error) {
	peak, err := m.Benchmark(ctx, r, useBench)
	if err != nil {
		return nil, err
	}
	for _, told := range useWanted {
		i := slices.IndexFunc(rows, func(u useRow) bool { return u.Resource == r && u.Told == told })
		if i < 0 {
			i, rows = len(rows), append(rows, useRow{Resource: r, Told: told})
		}
		if err := rows[i].measure(ctx, m, peak); err != nil {
			return nil, errors.Join(err, m.Interfere(nil))
		}
	}
	return rows, m.Interfere(nil)
}

func (u *useRow) measure(ctx context.Context, m *kernel.Machine, peak float64) error {
	if err := m.Interfere(map[quell.Resource]float64{u.Resource: u.Told}); err != nil {
		return err
	}
	if err := wait(ctx, useSettles); err != nil {
		return err
	}
	counted, err := used(m, u.Resource, func() error { return wait(ctx, useCounted) })
	if err != nil {
		return err
	}
	var available float64
	beside, err := used(m, u.Resource, func() (err error) {
		available, err = m.Benchmark(ctx, u.Resource, useBench)
		return err
	})
	u.Counted, u.Beside = append(u.Counted, counted), append(u.Beside, beside)
	u.Available, u.Peak = append(u.Available, available), append(u.Peak, peak)
	fmt.Fprintf(os.Stderr, "dial: %s told %.2f: counted %.2f, beside the benchmark %.2f, which gets %.0f of %.0f\n", u.Resource, u.Told,
		counted, beside, available, peak)
	return err
}

// used is the neighbour's use while something is done, by the counters of its group.
func used(m *kernel.Machine, r quell.Resource, do func() error) (float64, error) {
	carried := map[quell.Resource]func() (own, neighbour float64, err error){
		quell.CPU: m.CPUCarried, quell.Memory: m.MemoryCarried, quell.Disk: m.DiskCarried,
	}[r]
	began := time.Now()
	_, before, err := carried()
	if err == nil {
		err = do()
	}
	if err != nil {
		return 0, err
	}
	_, after, err := carried()
	return (after - before) / time.Since(began).Seconds(), err
}

// useTable is the page's table.
type useTable struct {
	Machine  string
	Cores    float64
	DiskIOPS float64
	Wanted   float64
	Repeats  int
	Rows     []useCells
	Off      []useOff
}

type useCells struct {
	Resource                              quell.Resource
	Told                                  float64
	Counted, Beside, ByBenchmark, ByCores string
}

// useOff is the mean difference between the benchmark's use and that of the counters beside an idle instance.
type useOff struct {
	Resource quell.Resource
	Mean     float64
}

// UseTable is what the template shows; nil if nothing was measured.
func (f dialFigures) UseTable() *useTable {
	if f.Use == nil {
		return nil
	}
	t := &useTable{Machine: f.Use.Machine, Cores: useHost.Cores, DiskIOPS: useHost.DiskIOPS, Wanted: coresWanted, Repeats: useRepeats}
	off := map[quell.Resource][]float64{}
	for _, r := range f.Use.Rows {
		benchmark := r.ByBenchmark()
		t.Rows = append(t.Rows, useCells{r.Resource, r.Told, ranged(r.Counted), ranged(r.Beside), ranged(benchmark), ranged(r.ByCores())})
		for i, u := range benchmark {
			off[r.Resource] = append(off[r.Resource], u-r.Counted[i])
		}
	}
	for _, r := range []quell.Resource{quell.CPU, quell.Memory, quell.Disk} {
		if len(off[r]) > 0 {
			t.Off = append(t.Off, useOff{r, stat.Mean(off[r], nil)})
		}
	}
	return t
}

// ranged is a mean with the smallest and the largest value; "-" without values.
func ranged(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", stat.Mean(values, nil), slices.Min(values), slices.Max(values))
}
