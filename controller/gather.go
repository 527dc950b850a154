package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/life"
)

// gather keeps the newest readings of a service and merges them into snapshots. Readings are dated when they arrive
// here; a sender's clock is never used.
type gather struct {
	mu       sync.Mutex
	service  quell.Service
	readings map[string][]life.Received // by instance, in the order of life.BySender
	fast     map[string][]life.Received // the same for readings of a fast policy's periods
	listed   map[string]bool            // members at the last snapshot
	shown    time.Time                  // time of the last snapshot
	lives    map[string]life.Past
	alive    map[string]bool // the instances of the last snapshot; nil before the first
	kept     int             // approximate bytes of readings
	started  dates
	total    map[quell.Source]int
	served   life.Durations // response times of all requests
	rejected int
	bad      outage.Kinds // reasons for which readings were dropped
	strange  strangers
	log      *slog.Logger
}

type sender struct {
	source quell.Source
	name   string
}

func newGather(service quell.Service, log *slog.Logger) *gather {
	return &gather{service: service, log: log, readings: map[string][]life.Received{}, fast: map[string][]life.Received{},
		lives: map[string]life.Past{}, started: dates{}, total: map[quell.Source]int{},
		bad: outage.Kinds{Logger: log, What: "dropped a reading", Level: slog.LevelWarn}}
}

func (g *gather) setService(service quell.Service) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.service = service
}

func (g *gather) add(r quell.Reading, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	readings := g.readings
	if r.Fast {
		if readings = g.fast; g.service.Policy.Fast.Name == "" {
			return // its sender does not know yet that there is no fast policy any more
		}
	}
	from, came := readings[r.Instance], life.Received{Reading: r, At: at}
	place, replaces := life.Find(from, came)
	grows := bulk(&r)
	if replaces {
		grows -= bulk(&from[place].Reading)
	}
	if err := g.room(r.Instance, len(from), replaces, grows); err != nil {
		g.rejectOne(err)
		return
	}
	g.total[r.Source]++
	if replaces && !r.Fast {
		g.leave(&from[place])
	}
	if g.alive != nil && !g.alive[r.Instance] {
		g.strange.note(&r, at)
	}
	g.kept += grows
	readings[r.Instance] = life.Put(from, came)
}

// Limits of the readings kept between two snapshots, so that no sender can exhaust the controller's memory.
const (
	mostSenders   = 64       // of readings about one instance
	mostKept      = 64 << 20 // bytes in all, in addition to
	keptEach      = 16 << 10 // these for each instance of the group
	mostStrangers = 16 << 20 // bytes of all readings; above this limit, readings of unknown instances are refused
)

var (
	errSenders   = fmt.Errorf("more than %d senders report of one instance", mostSenders)
	errKept      = errors.New("the readings of one period take too much memory")
	errStrangers = errors.New("too many readings of instances that the service does not have")
)

// leave counts the response times of a reading that is dropped before it was merged into a snapshot.
func (g *gather) leave(r *life.Received) {
	if r.At.After(g.shown) {
		g.served.Replaced(&r.Reading)
	}
}

// room returns an error if a reading cannot be kept. A reading that is not larger than the previous reading of the same sender can always
// be kept.
func (g *gather) room(instance string, senders int, replaces bool, grows int) error {
	switch {
	case replaces && grows <= 0:
		return nil
	case !replaces && senders >= mostSenders:
		return errSenders
	case g.kept+grows > mostKept+keptEach*len(g.alive):
		return errKept
	case g.alive != nil && !g.alive[instance] && g.kept+grows > mostStrangers:
		return errStrangers
	}
	return nil
}

// bulk is the approximate size of a reading in memory, in bytes.
func bulk(r *quell.Reading) int {
	const each, class = 1 << 10, 256
	o, entries := &r.Observation, 0
	if r.Tenancy != nil {
		entries += 2 * (1 + len(r.Tenancy.Tenants) + len(r.Tenancy.Problems))
	}
	entries += len(o.RequestRates) + len(o.LatencyByClassMS) + len(o.Counters) + len(o.TCP) + len(o.Pressure) + len(r.Settings)
	size := each + len(r.LatencyHDR) + len(r.ConnectHDR) + class*entries
	for _, encoded := range r.ClassHDR {
		size += class + len(encoded)
	}
	return size
}

// knows returns whether an instance was in the last snapshot. Before the first snapshot it returns true.
func (g *gather) knows(instance string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.alive == nil || g.alive[instance]
}

// tenancies returns what agents tell of the policies that divide their machines, by instance.
func (g *gather) tenancies() map[string]*quell.Tenancy {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all map[string]*quell.Tenancy
	for id, readings := range g.readings {
		if t := life.Tenancy(readings); t != nil {
			quell.Put(&all, id, t)
		}
	}
	return all
}

// reports returns whether an agent's reading of an instance came after a time.
func (g *gather) reports(instance string, after time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.readings[instance], func(r life.Received) bool { return r.Source == quell.FromAgent && r.At.After(after) })
}

// reject counts a bad reading and logs the first one with each kind of mistake.
func (g *gather) reject(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rejectOne(err)
}

// longestBad limits the text logged about a bad reading, in bytes, because that text quotes what the sender wrote.
const longestBad = 300

func (g *gather) rejectOne(err error) {
	g.rejected++
	text := err.Error()
	if len(text) > longestBad {
		text = text[:longestBad] + "..."
	}
	g.bad.Note(text)
}

func (g *gather) totals() (bySource map[quell.Source]int, rejected int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.total), g.rejected
}

// responses returns the response times of all requests so far, in seconds.
func (g *gather) responses() histogram {
	g.mu.Lock()
	defer g.mu.Unlock()
	return responses(&g.served)
}

// note records the members' states that are seen between two snapshots.
func (g *gather) note(now time.Time, group []life.Instance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range group {
		in := &group[i]
		in.Past = g.lives[in.Member.ID]
		in.Note(now)
		g.lives[in.Member.ID] = in.Past
	}
}

// snapshot merges the newest readings of the members. Readings of removed instances are forgotten.
func (g *gather) snapshot(now time.Time, v view) quell.Snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	group := v.Group()
	alive := make(map[string]bool, len(group)+1)
	alive[quell.NoInstance] = true // balancers that have no instance report, too
	if told, ever := g.readings[quell.NoInstance]; ever {
		g.readings[quell.NoInstance] = life.Current(now, g.service.Sampling, told)
	}
	for i := range group {
		in := &group[i]
		id := in.Member.ID
		alive[id] = true
		in.Past, in.Observation = g.lives[id], g.merge(now, id)
		in.Settings = life.Settings(g.readings[id])
		if !in.Member.Started.IsZero() {
			in.Member.Started = g.started.of(id, in.Member.Started, now)
		}
	}
	s := life.Snapshot(now, &g.service, group)
	clear(g.lives)
	for i := range group {
		g.lives[group[i].Member.ID] = group[i].Past
	}
	maps.DeleteFunc(g.readings, func(id string, _ []life.Received) bool { return !alive[id] && !g.listed[id] })
	s.Coming, s.MayCome = v.Coming, v.MayCome
	s.ArrivalRate = life.Arrivals(now, g.service.Sampling, g.readings)
	s.Unserved = life.Unserved(now, g.service.Sampling, g.readings)
	for id, from := range g.readings {
		if alive[id] {
			continue
		}
		for i := range from {
			g.leave(&from[i])
		}
		delete(g.readings, id)
	}
	g.strange.forget(now, g.service.Sampling, alive)
	g.tellStrangers()
	maps.DeleteFunc(g.fast, func(id string, _ []life.Received) bool { return !alive[id] })
	g.alive, g.kept = alive, bulkOf(g.readings)+bulkOf(g.fast)
	maps.DeleteFunc(g.started, func(id string, _ dated) bool { return !alive[id] })
	g.listed, g.shown = alive, now
	return s
}

func bulkOf(readings map[string][]life.Received) (sum int) {
	for _, from := range readings {
		for i := range from {
			sum += bulk(&from[i].Reading)
		}
	}
	return sum
}

// fastSnapshot returns the snapshot for a fast policy: the states of the members, and what balancers and agents measured in the last fast
// period. If an agent falls silent, balancers' counts are used without it.
func (g *gather) fastSnapshot(now time.Time, v view) quell.Snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	group := v.Group()
	for i := range group {
		in := &group[i]
		id, period := in.Member.ID, g.service.Policy.Fast.Sampling
		g.fast[id] = slices.DeleteFunc(g.fast[id], func(r life.Received) bool { return now.Sub(r.At) > 2*period })
		in.Past, in.Observation = g.lives[id], g.mergeOf(g.fast, period, now, id, nil)
		if in.Settings = life.Settings(g.fast[id]); in.Settings == nil {
			in.Settings = life.Settings(g.readings[id])
		}
	}
	return life.Snapshot(now, &g.service, group)
}

// merge joins an instance's readings, and forgets those that are too old or damaged.
func (g *gather) merge(now time.Time, id string) *quell.Observation {
	return g.mergeOf(g.readings, g.service.Sampling, now, id, &g.served)
}

func (g *gather) mergeOf(
	readings map[string][]life.Received, period time.Duration, now time.Time, id string, served *life.Durations,
) *quell.Observation {
	if len(readings[id]) == 0 {
		return nil
	}
	current := life.Current(now, period, readings[id])
	o, damaged := life.Merge(now, g.shown, current, served)
	for _, d := range damaged {
		g.rejectOne(d)
		current = slices.DeleteFunc(current, func(r life.Received) bool { return r.Source == d.Reading.Source && r.Sender == d.Reading.Sender })
	}
	readings[id] = current
	return o
}
