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
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/stats"
)

// WatchedMachine is a machine that can be watched period by period. Watch makes a run, and returns the measurements of each period
// after the warm-up.
type WatchedMachine interface {
	Watch(ctx context.Context, r RunRequest, period time.Duration) ([]quell.Observation, error)
}

// Neighbour is a load that uses a share of a resource.
type Neighbour struct {
	Resource quell.Resource `json:"resource,omitempty"`
	Use      float64        `json:"use,omitempty"` // 0: none
}

// CrosstalkStudy measures which probes feel which neighbour. All machines have the same neighbour at the same time, so that no
// machine disturbs the cell of another.
type CrosstalkStudy struct {
	Resource   quell.Resource // resource that the service uses at Level
	Level      float64        // the service's utilisation while there are neighbours
	Baseline   []float64      // utilisations at which the probes alone are measured, as shares of Level
	Neighbours []Neighbour    // one cell each
	Period     time.Duration
	Periods    int // least number of periods of a cell, over all machines
	WarmUp     time.Duration
	Confidence float64 // confidence of the test of severity
	Machines   []WatchedMachine
	Seed       uint64
	Progress   func(string) // nil: none
}

// Crosstalk is the result of a CrosstalkStudy.
type Crosstalk struct {
	Level      float64                              `json:"level"`
	PeriodS    float64                              `json:"period_s"`
	Confidence float64                              `json:"confidence"`
	Isolation  map[quell.Resource][]model.Isolation `json:"isolation"`
	Cells      []CrosstalkCell                      `json:"cells"`
}

// CrosstalkCell is one neighbour, and how each kind of probe felt it.
type CrosstalkCell struct {
	Neighbour
	Felt   map[quell.Resource]Felt `json:"felt"`
	Waited *Waited                 `json:"waited,omitempty"` // nil: the machines do not say how long tasks waited
}

// Waited sums up the periods of a cell in which the waiting of an instance's own tasks told how much of its processors neighbours use.
type Waited struct {
	Periods     int     `json:"periods"`
	Significant int     `json:"significant"` // of these periods, those with at least model.SignificantUse
	Use         float64 `json:"use"`         // mean inferred use, a fraction
}

// Share is the part of the periods with a significant use.
func (w Waited) Share() float64 { return float64(w.Significant) / float64(max(1, w.Periods)) }

// Felt sums up the periods of one kind of probe in a cell.
type Felt struct {
	Periods     int     `json:"periods"`     // periods with probes
	Significant int     `json:"significant"` // of these periods, those with a significant severity
	Severity    float64 `json:"severity"`    // severity of the mean probe of all periods, without a test
	Utilization float64 `json:"utilization"` // mean
	Probes      float64 `json:"probes"`      // mean number in a period
}

// Share is the part of the periods that had a significant severity.
func (f Felt) Share() float64 { return float64(f.Significant) / float64(max(1, f.Periods)) }

// Periods is the number of periods in which the kind of probe that has fewest periods was measured.
func (c CrosstalkCell) Periods() int {
	least := math.MaxInt
	for _, f := range c.Felt {
		least = min(least, f.Periods)
	}
	return least
}

// Study measures the probes first without neighbours at the Baseline's loads, then at Level without and beside each neighbour. It
// judges a period's severity as policies do: by PRIMA's Eq. 1 against the first measurement, with the policies' hysteresis.
func (s CrosstalkStudy) Study(ctx context.Context) (Crosstalk, error) {
	out := Crosstalk{Level: s.Level, PeriodS: s.Period.Seconds(), Confidence: s.Confidence, Isolation: map[quell.Resource][]model.Isolation{}}
	if len(s.Machines) == 0 {
		return out, errors.New("a study of cross-talk needs at least one machine")
	}
	for i, share := range s.Baseline {
		seen, err := s.watch(ctx, Neighbour{}, share*s.Level, uint64(i))
		if err != nil {
			return out, err
		}
		for _, r := range quell.Resources {
			if alone, ok := isolation(seen, r); ok {
				out.Isolation[r] = append(out.Isolation[r], alone)
			}
		}
	}
	models := &model.Models{Sections: []model.Section{&model.Prima{Isolation: out.Isolation}}}
	for i, n := range append([]Neighbour{{}}, s.Neighbours...) {
		seen, err := s.watch(ctx, n, s.Level, uint64(len(s.Baseline)+i))
		if err != nil {
			return out, err
		}
		cell := CrosstalkCell{Neighbour: n, Felt: map[quell.Resource]Felt{}}
		for r := range out.Isolation {
			if cell.Felt[r], err = s.felt(models, r, seen); err != nil {
				return out, err
			}
		}
		cell.Waited = s.waited(models, seen)
		out.Cells = append(out.Cells, cell)
	}
	return out, nil
}

// watch makes the same run on all machines at once.
func (s CrosstalkStudy) watch(ctx context.Context, n Neighbour, level float64, number uint64) ([][]quell.Observation, error) {
	each := (s.Periods + len(s.Machines) - 1) / len(s.Machines)
	if s.Progress != nil {
		s.Progress(fmt.Sprintf("utilisation %.2f beside %s for %s", level, n, time.Duration(each)*s.Period))
	}
	seen, errs := make([][]quell.Observation, len(s.Machines)), make([]error, len(s.Machines))
	var all sync.WaitGroup
	for i, m := range s.Machines {
		all.Go(func() {
			seen[i], errs[i] = m.Watch(ctx, RunRequest{
				Resource: s.Resource, Disturb: n.Resource, Cell: Cell{Level: level, Interference: n.Use}, WarmUp: s.WarmUp,
				Run: time.Duration(each) * s.Period, Seed: s.Seed + number<<16 + uint64(i),
			}, s.Period)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("at utilisation %.2f beside %s: %w", level, n, err)
	}
	return seen, nil
}

// String names a neighbour for people.
func (n Neighbour) String() string {
	if n.Use == 0 {
		return "no neighbour"
	}
	return fmt.Sprintf("a neighbour that uses %.0f%% of the %s", 100*n.Use, n.Resource)
}

// isolation pools the probes of a resource over all machines and periods; false if there were none.
func isolation(seen [][]quell.Observation, r quell.Resource) (alone model.Isolation, ok bool) {
	var parts []stats.Moments
	var waits []float64
	periods := 0
	for _, machine := range seen {
		for _, o := range machine {
			u, known := o.Utilization[r]
			if p := o.Probe[r]; known && p.N > 0 {
				parts = append(parts, stats.Moments{Mean: p.MeanMS, Stddev: p.StddevMS, N: p.N})
				alone.Utilization += u
				periods++
			}
			if r != quell.CPU {
				continue
			}
			if inferred, told := model.NeighboursUse(&o); told {
				waits = append(waits, inferred)
			}
		}
	}
	if periods == 0 {
		return alone, false
	}
	all := stats.Pool(parts)
	alone.Utilization /= float64(periods)
	alone.ProbeMS, alone.StddevMS, alone.N, alone.Runs = all.Mean, all.Stddev, all.N, periods
	if len(waits) > 0 {
		alone.Waits = new(stat.Mean(waits, nil))
	}
	return alone, true
}

// waited judges the periods by how long the instances' own tasks waited for processors. It returns nil if they do not say so.
func (s CrosstalkStudy) waited(models *model.Models, seen [][]quell.Observation) *Waited {
	baseline, err := model.CompileBaseline(models, quell.CPU, s.Confidence)
	if err != nil {
		return nil // nobody probed the processors, so there is no calm to compare with
	}
	var w Waited
	for _, machine := range seen {
		for _, o := range machine {
			use, told := baseline.NeighboursUse(o.Utilization[quell.CPU], &o)
			if !told {
				continue
			}
			w.Periods++
			w.Use += use
			if use >= model.SignificantUse {
				w.Significant++
			}
		}
	}
	if w.Periods == 0 {
		return nil
	}
	w.Use /= float64(w.Periods)
	return &w
}

// felt judges the periods of one kind of probe.
func (s CrosstalkStudy) felt(models *model.Models, r quell.Resource, seen [][]quell.Observation) (f Felt, err error) {
	baseline, err := model.CompileBaseline(models, r, s.Confidence)
	if err != nil {
		return f, err
	}
	for _, machine := range seen {
		significant := false
		for _, o := range machine {
			u, known := o.Utilization[r]
			p := o.Probe[r]
			if !known || p.N == 0 {
				continue
			}
			if _, significant = baseline.Severity(u, p, significant); significant {
				f.Significant++
			}
			f.Periods++
			f.Probes += float64(p.N)
			f.Utilization += u
		}
	}
	if f.Periods == 0 {
		return f, fmt.Errorf("no probe of the %s came back: %w", r, quell.ErrNoData)
	}
	if all, ok := isolation(seen, r); ok {
		alone, _, _ := baseline.Isolation(all.Utilization)
		f.Severity = all.ProbeMS/alone - 1
	}
	f.Probes /= float64(f.Periods)
	f.Utilization /= float64(f.Periods)
	return f, nil
}
