// Package profile measures the profile of a running service: it limits one resource after the other for short stretches, and records
// response times and uses. The limits are lifted after each stretch, at once if response times become too long, and at the end.
package profile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
)

// Window is what was measured of the service in one window.
type Window struct {
	Load        float64                    // 0: none
	Use         map[quell.Resource]float64 // per second: processors, bits, operations; without an entry it is not known
	LatenciesMS []float64
	Failed      int // requests that failed
}

// Source measures the service.
type Source interface {
	// Take returns what was measured since the previous call. The first call only sets the starting point.
	Take(now time.Time) (Window, error)
	// Subsample looks at what comes and goes within a window, such as connections. It is called several times in each window.
	Subsample() error
}

// Limiter limits the service.
type Limiter interface {
	// Limit makes a limit the only one in force. Without a resource it lifts all.
	Limit(r quell.Resource, value float64) error
}

// Options configure a profiler. All are required.
type Options struct {
	Plan       *credit.Sparse
	Source     Source
	Limiter    Limiter
	Window     time.Duration // length of a window, which makes one row
	Windows    int           // of a pair of limit and load
	Percentile float64       // of response times, a fraction
	Idle       time.Duration // it ends if there is nothing new to measure for this long
	Tell       func(text string)
}

// fewest is the smallest number of response times whose percentile counts.
const fewest = 5

// mostScarce is the number of windows in a row with too few response times after which the profiler gives up.
const mostScarce = 10

// Run measures until everything is known at the loads that come, or ctx ends, which is no error. Afterwards no limit is in force; if one
// cannot be lifted, that is an error. A service without response times or load is a *quell.UserError.
func Run(ctx context.Context, o Options) (err error) {
	defer func() { err = errors.Join(err, o.Limiter.Limit("", 0)) }()
	if _, err := o.Source.Take(time.Now()); err != nil {
		return err
	}
	idle := time.Duration(0)
	for idle < o.Idle {
		w, err := o.window(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		cell, ok := o.Plan.Next(w.Load)
		if !ok {
			idle += o.Window
			continue
		}
		idle = 0
		if err := o.measure(ctx, cell); err != nil {
			return ended(ctx, err)
		}
	}
	if len(o.Plan.Rows()) == 0 {
		return &quell.UserError{Err: errors.New("the service had no load: nothing was measured")}
	}
	return nil
}

// ended drops the error of a context that has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// subsamples is how often the source looks at what comes and goes within a window.
const subsamples = 10

// window waits for a window, and returns what was measured in it.
func (o *Options) window(ctx context.Context) (Window, error) {
	ticker := time.NewTicker(o.Window / subsamples)
	defer ticker.Stop()
	for looked := 1; ; looked++ {
		select {
		case <-ctx.Done():
			return Window{}, ctx.Err()
		case now := <-ticker.C:
			if err := o.Source.Subsample(); err != nil {
				return Window{}, err
			}
			if looked == subsamples {
				return o.Source.Take(now)
			}
		}
	}
}

// measure measures one cell. A cell that could not be measured because the load changed is tried again later.
func (o *Options) measure(ctx context.Context, c credit.SparseCell) (err error) {
	if c.Limited != "" {
		if err := o.Limiter.Limit(c.Limited, c.Limit); err != nil {
			o.Tell(fmt.Sprintf("%s: cannot be limited: %v", c.Limited, err))
			o.Plan.Refuse(c.Limited, err.Error())
			return nil
		}
		defer func() { err = errors.Join(err, o.Limiter.Limit("", 0)) }()
	}
	var rows []credit.ProfileRow
	settling := c.Limited != ""
	settled := time.Duration(0)
	scarce := 0
	for len(rows) < o.Windows {
		w, err := o.window(ctx)
		if err != nil {
			return err
		}
		settled += o.Window
		if !c.Same(w.Load) {
			o.Tell(fmt.Sprintf("%s: the load changed to %.4g", name(c), w.Load))
			if len(rows) > 0 {
				o.Plan.Add(c, rows)
			}
			return nil
		}
		row, ok := o.row(w)
		if why := o.tooMuch(c, w, row, settling); why != "" {
			if ok && w.Failed == 0 {
				rows = append(rows, row)
			}
			o.Tell(fmt.Sprintf("%s: lifted at once: %s", name(c), why))
			o.Plan.End(c.Limited)
			break
		}
		if settling { // until what was sent before the limit is answered
			settling = ok && settled.Seconds()*1000 < row.LatencyMS
			continue
		}
		if ok {
			rows, scarce = append(rows, row), 0
		} else if scarce++; scarce == mostScarce {
			return &quell.UserError{Err: fmt.Errorf("%s: %d response times in %v, and at least %d are needed: make windows longer, or send "+
				"more requests", name(c), len(w.LatenciesMS), o.Window, fewest)}
		}
	}
	o.Plan.Add(c, rows)
	o.Tell(told(c, rows))
	return nil
}

// row makes a row of a window; ok is false if it has too few response times.
func (o *Options) row(w Window) (row credit.ProfileRow, ok bool) {
	n := len(w.LatenciesMS)
	if n < fewest || len(w.Use) == 0 {
		return row, false
	}
	sorted := slices.Sorted(slices.Values(w.LatenciesMS))
	rank := max(0, int(math.Ceil(o.Percentile*float64(n)))-1)
	return credit.ProfileRow{Load: w.Load, LatencyMS: sorted[rank], Use: w.Use}, true
}

// tooMuch returns why a limit has to be lifted at once; "" if it need not be.
func (o *Options) tooMuch(c credit.SparseCell, w Window, row credit.ProfileRow, settling bool) string {
	switch {
	case c.Limited == "":
		return ""
	case w.Failed > 0:
		return fmt.Sprintf("%d requests failed", w.Failed)
	case row.LatencyMS > o.Plan.WorstMS():
		return fmt.Sprintf("%.4g ms", row.LatencyMS)
	case len(w.LatenciesMS) < fewest && !settling:
		return fmt.Sprintf("%d response times in %v", len(w.LatenciesMS), o.Window)
	}
	return ""
}

// name names a cell.
func name(c credit.SparseCell) string {
	if c.Limited == "" {
		return fmt.Sprintf("load %.4g, no limit", c.Load)
	}
	return fmt.Sprintf("load %.4g, %s limited to %.4g", c.Load, c.Limited, c.Limit)
}

func told(c credit.SparseCell, rows []credit.ProfileRow) string {
	if len(rows) == 0 {
		return name(c) + ": not measured"
	}
	least, most := math.Inf(1), 0.0
	for i := range rows {
		least, most = math.Min(least, rows[i].LatencyMS), math.Max(most, rows[i].LatencyMS)
	}
	return fmt.Sprintf("%s: %.4g to %.4g ms in %d windows", name(c), least, most, len(rows))
}
