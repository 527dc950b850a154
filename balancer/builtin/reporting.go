package builtin

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/measure"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/internal/tick"
)

// reporter turns what the meters counted into readings, window by window.
type reporter struct {
	opts      *Options
	pool      *pool
	spare     *measure.Tally
	outage    outage.Log
	pace      measure.Pace
	stretches map[string]*measure.Stretch // by instance, while there is a fast policy
}

func newReporter(o *Options, p *pool) *reporter {
	r := &reporter{opts: o, pool: p, spare: measure.New(), stretches: map[string]*measure.Stretch{},
		outage: outage.Log{Logger: o.Logger, What: "publishing readings"}}
	r.pace.Set(o.Period, o.Fast)
	return r
}

// run publishes at the end of every period until the context ends. Readings that cannot be published are dropped,
// because newer ones follow.
func (r *reporter) run(ctx context.Context) {
	for tick.Sleep(ctx, tick.Until(time.Now(), r.pace.Shortest())) {
		r.publish(ctx, r.readings(time.Now()))
	}
}

func (r *reporter) publish(ctx context.Context, readings []quell.Reading) {
	if len(readings) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.pace.Shortest())
	defer cancel()
	r.outage.Report(r.opts.Publish(ctx, readings))
}

// readings ends the current window of every instance, in the order of their names.
func (r *reporter) readings(now time.Time) []quell.Reading {
	fast := r.pace.Fast()
	meters := r.pool.takeMeters()
	readings := make([]quell.Reading, 0, len(meters))
	for _, id := range slices.Sorted(maps.Keys(meters)) {
		t, window, meanOpen := meters[id].rotate(now, r.spare)
		reading, err := t.Reading(now.UTC(), window, meanOpen)
		readings = append(readings, r.named(reading, id, fast, err))
		if fast {
			r.stretch(id).Add(t, window, meanOpen)
		}
		t.Reset()
		r.spare = t
	}
	switch {
	case !fast:
		clear(r.stretches) // after a reload removed the fast policy
	case r.pace.Ends(now):
		readings = append(readings, r.endStretches(now)...)
	}
	return readings
}

func (r *reporter) named(reading quell.Reading, instance string, fast bool, err error) quell.Reading {
	if err != nil {
		r.opts.Logger.Error("histogram not encoded", "error", err)
	}
	reading.Service, reading.Instance, reading.Sender, reading.Fast = r.opts.Service, instance, r.opts.Name, fast
	return reading
}

func (r *reporter) stretch(instance string) *measure.Stretch {
	s := r.stretches[instance]
	if s == nil {
		s = &measure.Stretch{}
		r.stretches[instance] = s
	}
	return s
}

// endStretches returns the readings of the whole sampling period, which were already reported in shorter windows.
func (r *reporter) endStretches(now time.Time) []quell.Reading {
	readings := make([]quell.Reading, 0, len(r.stretches))
	for _, id := range slices.Sorted(maps.Keys(r.stretches)) {
		reading, err := r.stretches[id].Reading(now.UTC())
		readings = append(readings, r.named(reading, id, false, err))
	}
	clear(r.stretches)
	return readings
}
