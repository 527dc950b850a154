package builtin

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/measure"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/internal/tick"
)

// reporter turns what the meters counted into readings, one window after the other.
type reporter struct {
	opts   *Options
	pool   *pool
	spare  *measure.Tally
	outage outage.Log
	period atomic.Int64 // Options.Period, or the one of a reload
}

func newReporter(o *Options, p *pool) *reporter {
	r := &reporter{opts: o, pool: p, spare: measure.New(), outage: outage.Log{Logger: o.Logger, What: "publishing readings"}}
	r.period.Store(int64(o.Period))
	return r
}

// run publishes at the end of every period until the context ends. Readings that cannot be published are lost: the next
// ones matter more.
func (r *reporter) run(ctx context.Context) {
	for tick.Sleep(ctx, tick.Until(time.Now(), time.Duration(r.period.Load()))) {
		r.publish(ctx, r.readings(time.Now()))
	}
}

func (r *reporter) publish(ctx context.Context, readings []quell.Reading) {
	if len(readings) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.period.Load()))
	defer cancel()
	r.outage.Report(r.opts.Publish(ctx, readings))
}

// readings ends the current window of every instance, in the order of their names.
func (r *reporter) readings(now time.Time) []quell.Reading {
	meters := r.pool.takeMeters()
	readings := make([]quell.Reading, 0, len(meters))
	for _, id := range slices.Sorted(maps.Keys(meters)) {
		t, window, meanOpen := meters[id].rotate(now, r.spare)
		reading, err := t.Reading(now.UTC(), window, meanOpen)
		if err != nil {
			r.opts.Logger.Error("histogram not encoded", "error", err)
		}
		reading.Service, reading.Instance, reading.Sender = r.opts.Service, id, r.opts.Name
		readings = append(readings, reading)
		t.Reset()
		r.spare = t
	}
	return readings
}
