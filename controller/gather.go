package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/outage"
)

// gather keeps the newest readings of a service and merges them into snapshots. Readings are stamped with the
// time they came here; a sender's clock is never believed.
type gather struct {
	mu       sync.Mutex
	service  quell.Service
	readings map[string]map[sender]received
	listed   map[string]bool // members at the last snapshot
	shown    time.Time       // of the last snapshot
	lives    map[string]past
	alive    map[string]bool // the instances of the last snapshot; nil before the first
	kept     int             // bytes of readings, about
	started  dates
	total    map[quell.Source]int
	rejected int
	bad      outage.Kinds // of readings that were dropped
	strange  strangers
	log      *slog.Logger
}

type sender struct {
	source quell.Source
	name   string
}

type received struct {
	quell.Reading
	at time.Time
}

func newGather(service quell.Service, log *slog.Logger) *gather {
	return &gather{service: service, log: log, readings: map[string]map[sender]received{}, lives: map[string]past{}, started: dates{}, total: map[quell.Source]int{}, bad: outage.Kinds{Logger: log, What: "dropped a reading", Level: slog.LevelWarn}}
}

func (g *gather) setService(service quell.Service) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.service = service
}

func (g *gather) add(r quell.Reading, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	from, key := g.readings[r.Instance], sender{r.Source, r.Sender}
	old, replaces := from[key]
	grows := bulk(&r) - bulk(&old.Reading)
	if err := g.room(r.Instance, len(from), replaces, grows); err != nil {
		g.rejectOne(err)
		return
	}
	g.total[r.Source]++
	if g.alive != nil && !g.alive[r.Instance] {
		g.strange.note(&r, at)
	}
	if from == nil {
		from = map[sender]received{}
		g.readings[r.Instance] = from
	}
	g.kept += grows
	from[key] = received{r, at}
}

// Bounds of what is kept of readings between two snapshots, so that nobody who may send can take the controller's memory.
const (
	mostSenders   = 64       // of one instance
	mostKept      = 64 << 20 // bytes in all, and
	keptEach      = 16 << 10 // as many for each instance of the group
	mostStrangers = 16 << 20 // bytes of all before those of unknown instances are refused
)

var (
	errSenders   = fmt.Errorf("more than %d senders report of one instance", mostSenders)
	errKept      = errors.New("the readings of one period take too much memory")
	errStrangers = errors.New("too many readings of instances that the service does not have")
)

// room says whether a reading can be kept. Those of known senders that do not grow always can.
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

// bulk is about what a reading takes in memory, in bytes.
func bulk(r *quell.Reading) int {
	if r.Instance == "" {
		return 0
	}
	const each, class = 1 << 10, 256
	o := &r.Observation
	entries := len(o.RequestRates) + len(o.LatencyByClassMS) + len(o.Counters) + len(o.TCP) + len(o.Pressure)
	return each + len(r.LatencyHDR) + len(r.ConnectHDR) + class*entries
}

// knows says whether an instance was in the last snapshot; before the first everyone is known.
func (g *gather) knows(instance string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.alive == nil || g.alive[instance]
}

// reject counts a bad reading and logs the first of a kind.
func (g *gather) reject(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rejectOne(err)
}

// longestBad bounds such a message, in bytes: what it quotes came from outside.
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

// snapshot merges the newest readings of the members. Readings of instances that are gone are forgotten.
func (g *gather) snapshot(now time.Time, v view) quell.Snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := quell.Snapshot{At: now, Service: g.service.Name, Instances: []quell.Instance{}}
	alive := make(map[string]bool, len(v.members))
	for _, m := range v.members {
		alive[m.ID] = true
		s.Instances = append(s.Instances, g.instance(now, m, v))
	}
	maps.DeleteFunc(g.readings, func(id string, _ map[sender]received) bool { return !alive[id] && !g.listed[id] })
	s.ArrivalRate = g.arrivals(now)
	maps.DeleteFunc(g.readings, func(id string, _ map[sender]received) bool { return !alive[id] })
	g.strange.forget(now, g.service.Sampling, alive)
	g.tellStrangers()
	g.alive, g.kept = alive, 0
	for _, from := range g.readings {
		for _, r := range from {
			g.kept += bulk(&r.Reading)
		}
	}
	maps.DeleteFunc(g.lives, func(id string, _ past) bool { return !alive[id] })
	maps.DeleteFunc(g.started, func(id string, _ dated) bool { return !alive[id] })
	wholeWeights(s.Instances)
	g.listed, g.shown = alive, now
	return s
}

// wholeWeights makes the weights read back sum to 1, and leaves them out where there are none.
func wholeWeights(instances []quell.Instance) {
	var sum float64
	for _, in := range instances {
		if in.Weight != nil {
			sum += *in.Weight
		}
	}
	for i := range instances {
		if instances[i].Weight == nil {
			continue
		}
		if sum == 0 {
			instances[i].Weight = nil
		} else {
			*instances[i].Weight /= sum
		}
	}
}

func (g *gather) instance(now time.Time, m quell.Member, v view) quell.Instance {
	backend, known := v.backends[m.ID]
	in := quell.Instance{ID: m.ID, Type: m.Type, State: g.state(now, m, backend, known, v)}
	if !m.Started.IsZero() {
		age := max(0, now.Sub(g.started.of(m.ID, m.Started, now)).Seconds())
		in.AgeS = &age
	}
	if h, held := v.held[m.ID]; held {
		in.Held = &h.Held
	} else if known && !backend.Draining {
		w := backend.Weight
		in.Weight = &w
	}
	if known && !backend.Healthy {
		in.Health = backend.Health
	}
	in.Observation = g.merge(now, m.ID)
	return in
}

// past is what was seen of an instance's health.
type past struct {
	healthy    bool      // it has passed a health check
	registered time.Time // when the balancer was first seen to have it
}

// state joins what scaler and balancer say. An instance is ready once the balancer's health check has passed, and
// failed when it no longer does, or has not within the time that instances may take to start.
func (g *gather) state(now time.Time, m quell.Member, b quell.BackendState, known bool, v view) quell.State {
	if m.State == quell.Failed || m.State == quell.Draining {
		return m.State
	}
	if _, leaving := v.leaving[m.ID]; leaving || known && b.Draining && !v.holds(m.ID) {
		return quell.Draining
	}
	if v.holds(m.ID) {
		delete(g.lives, m.ID) // once it is put back it may take its time to be healthy, as a new one
		return m.State
	}
	if m.State != quell.Ready || !known {
		return quell.Starting
	}
	was, seen := g.lives[m.ID]
	if !seen {
		was.registered = now
	}
	was.healthy = was.healthy || b.Healthy
	g.lives[m.ID] = was
	switch {
	case b.Healthy:
		return quell.Ready
	case was.healthy || b.Weight > 0 || now.Sub(was.registered) > g.service.Group.Startup:
		return quell.Failed
	}
	return quell.Starting
}
