package controller

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

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
	lives    map[string]life
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
	return &gather{service: service, log: log, readings: map[string]map[sender]received{}, lives: map[string]life{}, started: dates{}, total: map[quell.Source]int{}, bad: outage.Kinds{Logger: log, What: "dropped a reading", Level: slog.LevelWarn}}
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
	maps.DeleteFunc(g.lives, func(id string, _ life) bool { return !alive[id] })
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

// life is what was seen of an instance's health.
type life struct {
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

// merge joins one instance's readings. The observation is as old as what is known of the machine, from its agent and
// from probers, whichever is older: an agent that fell silent makes it stale although a balancer still counts requests.
// Probes are told once: those of an earlier period say nothing of the utilisation in this one.
func (g *gather) merge(now time.Time, id string) *quell.Observation {
	from := g.current(now, id)
	if len(from) == 0 {
		return nil
	}
	o := &quell.Observation{}
	if agents := from[quell.FromAgent]; len(agents) > 0 {
		last := newest(agents)
		*o = last.Observation
		o.Probe, o.TCP = maps.Clone(o.Probe), maps.Clone(o.TCP)
		if !last.at.After(g.shown) {
			o.Probe = nil
		}
	}
	for _, r := range from[quell.FromProber] {
		if r.at.After(g.shown) {
			mergeProbes(o, r)
		}
	}
	g.mergeBalancers(o, from[quell.FromBalancer])
	o.At = now.Add(-now.Sub(asOld(from))) // as old by the wall clock too, should that have been set: snapshots are written down
	return o
}

// asOld is the time of the older machine part, or of balancers where there is none.
func asOld(from map[quell.Source][]received) time.Time {
	var at time.Time
	for _, source := range []quell.Source{quell.FromAgent, quell.FromProber} {
		if parts := from[source]; len(parts) > 0 && (at.IsZero() || newest(parts).at.Before(at)) {
			at = newest(parts).at
		}
	}
	if at.IsZero() {
		return newest(from[quell.FromBalancer]).at
	}
	return at
}

func newest(readings []received) received {
	return slices.MaxFunc(readings, func(a, b received) int { return a.at.Compare(b.at) })
}

// current lists an instance's readings by source, and forgets those of senders that fell silent while another of their
// kind goes on, as a balancer that was taken away, and what balancers counted in a period that is over.
func (g *gather) current(now time.Time, id string) map[quell.Source][]received {
	all := g.readings[id]
	last := map[quell.Source]time.Time{quell.FromBalancer: now}
	for key, r := range all {
		if r.at.After(last[key.source]) {
			last[key.source] = r.at
		}
	}
	from := map[quell.Source][]received{}
	for _, key := range slices.SortedFunc(maps.Keys(all), bySender) {
		if r := all[key]; g.recent(last[key.source], r.at) {
			from[key.source] = append(from[key.source], r)
		} else {
			delete(all, key)
		}
	}
	return from
}

func bySender(a, b sender) int {
	return cmp.Or(strings.Compare(string(a.source), string(b.source)), strings.Compare(a.name, b.name))
}

// recent says whether a reading belongs to the present period.
func (g *gather) recent(now, at time.Time) bool { return now.Sub(at) <= 2*g.service.Sampling }

// mergeProbes pools the probes of several probers.
func mergeProbes(o *quell.Observation, r received) {
	for resource, p := range r.Observation.Probe {
		if o.Probe == nil {
			o.Probe = map[quell.Resource]quell.ProbeStats{}
		}
		o.Probe[resource] = pool(o.Probe[resource], p)
	}
}

// pool joins the statistics of two samples.
func pool(a, b quell.ProbeStats) quell.ProbeStats {
	if a.N == 0 {
		return b
	}
	n := float64(a.N) + float64(b.N)
	mean := (float64(a.N)*a.MeanMS + float64(b.N)*b.MeanMS) / n
	squares := spread(a, mean) + spread(b, mean)
	return quell.ProbeStats{MeanMS: mean, StddevMS: math.Sqrt(squares / (n - 1)), N: int(math.Min(n, math.MaxInt32))}
}

// spread is the sum of squares of a sample around another mean.
func spread(s quell.ProbeStats, mean float64) float64 {
	return float64(s.N-1)*s.StddevMS*s.StddevMS + float64(s.N)*(s.MeanMS-mean)*(s.MeanMS-mean)
}

// mergeBalancers adds what the balancers saw of the instance. Latencies are merged as histograms, never as
// percentiles.
func (g *gather) mergeBalancers(o *quell.Observation, readings []received) {
	if len(readings) == 0 {
		return
	}
	var rate, inFlight float64
	var failed share
	var latency, connect histograms
	for _, r := range readings {
		if o.WindowS == 0 {
			o.WindowS = r.Observation.WindowS
		}
		rate += value(r.Observation.RequestRate)
		inFlight += value(r.Observation.InFlight)
		failed.add(r.Observation.ErrorRate, r.Requests)
		for into, encoded := range map[*histograms][]byte{&latency: r.LatencyHDR, &connect: r.ConnectHDR} {
			if err := into.add(encoded); err != nil {
				g.discard(r, err)
			}
		}
	}
	o.RequestRate, o.InFlight, o.ErrorRate = &rate, &inFlight, failed.mean()
	o.LatencyMS = latency.summary()
	if o.LatencyMS == nil {
		o.LatencyMS = meanLatency(readings)
	}
	if len(readings) == 1 { // classes come without histograms, and percentiles cannot be merged
		o.LatencyByClassMS, o.RequestRates = readings[0].Observation.LatencyByClassMS, readings[0].Observation.RequestRates
	}
	if c := connect.summary(); c != nil {
		if o.TCP == nil {
			o.TCP = map[string]float64{}
		}
		o.TCP["connect_ms_p90"] = *c.P90
	}
}

// meanLatency is what balancers that count no single requests know: means, merged by requests, without percentiles.
func meanLatency(readings []received) *quell.Latency {
	var sum float64
	var n int
	for _, r := range readings {
		if mean, ok := r.Observation.LatencyMS.Of(quell.Mean); ok && r.Observation.LatencyMS.N > 0 && len(r.LatencyHDR) == 0 {
			sum += mean * float64(r.Observation.LatencyMS.N)
			n += r.Observation.LatencyMS.N
		}
	}
	if n == 0 {
		return nil
	}
	mean := sum / float64(n)
	return &quell.Latency{Mean: &mean, N: n}
}

// discard drops a reading that turned out to be bad, and counts it once.
func (g *gather) discard(r received, err error) {
	g.rejectOne(fmt.Errorf("reading of instance %q from balancer %q: %w", r.Instance, r.Sender, err))
	delete(g.readings[r.Instance], sender{r.Source, r.Sender})
}

func value(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

// share is a mean of fractions, weighted by requests. A balancer that could not hand over a single request, because
// the instance refuses connections, has a rate of errors but no requests: it still counts.
type share struct{ sum, weight float64 }

func (s *share) add(fraction *float64, requests int64) {
	if fraction == nil {
		return
	}
	weight := math.Max(1, float64(requests))
	s.sum += *fraction * weight
	s.weight += weight
}

func (s *share) mean() *float64 {
	if s.weight == 0 {
		return nil
	}
	mean := s.sum / s.weight
	return &mean
}

// histograms merges encoded histograms of microseconds.
type histograms struct {
	h    *hdrhistogram.Histogram
	wide bool // h takes whatever is added
}

// longest is beyond what any request takes: a day, in microseconds.
const longest = int64(24 * time.Hour / time.Microsecond)

func (hs *histograms) add(encoded []byte) error {
	if len(encoded) == 0 {
		return nil
	}
	h, err := hdrhistogram.Decode(encoded)
	if err != nil {
		return fmt.Errorf("its histogram cannot be read: %w", err)
	}
	if h.Max() > longest {
		return fmt.Errorf("its histogram holds %d microseconds, which is absurd", h.Max())
	}
	if hs.h == nil {
		hs.h = h
		return nil
	}
	if !hs.wide {
		wide := hdrhistogram.New(1, longest, 2)
		wide.Merge(hs.h)
		hs.h, hs.wide = wide, true
	}
	hs.h.Merge(h)
	return nil
}

func (hs *histograms) summary() *quell.Latency {
	if hs.h == nil || hs.h.TotalCount() == 0 {
		return nil
	}
	ms := func(us float64) *float64 { v := us / 1000; return &v }
	at := func(q float64) *float64 { return ms(float64(hs.h.ValueAtQuantile(q))) }
	return &quell.Latency{Mean: ms(hs.h.Mean()), P50: at(50), P90: at(90), P95: at(95), P99: at(99), N: int(hs.h.TotalCount())}
}

// arrivals sums the rates at which requests came to the balancers in their last windows; absent where no balancer reports. A
// balancer reports all its instances at once. Where it has reported since without one of them, that one died or left, and the
// others' readings hold what came instead: its last reading must not count again. An instance that left within the window counts
// for what it got.
func (g *gather) arrivals(now time.Time) *float64 {
	last := map[string]time.Time{} // by balancer
	for _, from := range g.readings {
		for key, r := range from {
			if key.source == quell.FromBalancer && r.at.After(last[key.name]) {
				last[key.name] = r.at
			}
		}
	}
	var sum float64
	found := false
	for _, from := range g.readings {
		for key, r := range from {
			sameWindow := last[key.name].Sub(r.at) < g.service.Sampling/2
			if key.source == quell.FromBalancer && r.Observation.RequestRate != nil && sameWindow && g.recent(now, r.at) {
				sum += *r.Observation.RequestRate
				found = true
			}
		}
	}
	if !found {
		return nil
	}
	return &sum
}
