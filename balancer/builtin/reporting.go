package builtin

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/measure"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/internal/tick"
)

// reporter turns the meters' counts into one reading per instance and window.
type reporter struct {
	opts      *Options
	pool      *pool
	spare     *measure.Tally
	watch     balancer.ClassWatch
	outage    outage.Log
	pace      measure.Pace
	stretches map[string]*measure.Stretch // by instance; used while there is a fast policy
	ended     time.Time                   // when the last sampling period ended
	unrouted  int64                       // requests that had found no instance by then
}

func newReporter(o *Options, p *pool) *reporter {
	r := &reporter{opts: o, pool: p, spare: measure.New(o.Classes.Names()...), stretches: map[string]*measure.Stretch{},
		outage: outage.Log{Logger: o.Logger, What: "publishing readings"}, ended: time.Now()}
	r.pace.Set(o.Period, o.Fast)
	return r
}

// run publishes readings at the end of every period until the context ends. If readings cannot be published, they are dropped, because
// newer ones follow.
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

// readings ends the present window of every instance and returns its reading. Instances are ordered by name. If there are none, the reading
// of a sampling period is one of none.
func (r *reporter) readings(now time.Time) []quell.Reading {
	fast := r.pace.Fast()
	meters := r.pool.takeMeters()
	readings := make([]quell.Reading, 0, len(meters))
	arrived := map[string]int64{}
	for _, id := range slices.Sorted(maps.Keys(meters)) {
		t, window, meanOpen := meters[id].rotate(now, r.spare)
		reading, err := t.Reading(now.UTC(), window, meanOpen)
		readings = append(readings, r.named(reading, id, fast, err))
		if fast {
			r.stretch(id).Add(t, window, meanOpen)
		}
		for class, n := range t.Arrivals() {
			arrived[class] += n
		}
		t.Reset()
		r.spare = t
	}
	for _, mistake := range r.watch.Add(r.opts.Classes, arrived) {
		r.opts.Logger.Warn(mistake)
	}
	switch {
	case !fast:
		clear(r.stretches) // needed after a reload removed the fast policy
	case r.pace.Ends(now):
		readings = append(readings, r.endStretches(now)...)
	default:
		return readings
	}
	return r.addUnrouted(readings, now)
}

// addUnrouted adds to the readings of a sampling period how many requests found no instance.
func (r *reporter) addUnrouted(readings []quell.Reading, now time.Time) []quell.Reading {
	none, all := measure.None(r.opts.Service, r.opts.Name, now, now.Sub(r.ended)), r.pool.unrouted.Load()
	readings = measure.Unserved(readings, none, all-r.unrouted)
	r.ended, r.unrouted = now, all
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

// endStretches returns readings of the whole sampling period. Its data was already reported once, in the fast policy's shorter windows.
func (r *reporter) endStretches(now time.Time) []quell.Reading {
	readings := make([]quell.Reading, 0, len(r.stretches))
	for _, id := range slices.Sorted(maps.Keys(r.stretches)) {
		reading, err := r.stretches[id].Reading(now.UTC())
		readings = append(readings, r.named(reading, id, false, err))
	}
	clear(r.stretches)
	return readings
}
