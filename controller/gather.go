package controller

import (
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quellhq/quell"
)

// gather keeps the newest readings of a service and merges them into snapshots. Readings are stamped with the
// time they came here; a sender's clock is never believed.
type gather struct {
	mu       sync.Mutex
	service  quell.Service
	readings map[string]map[sender]received
	total    map[quell.Source]int
	rejected int
	lastBad  string
}

type sender struct {
	source quell.Source
	name   string
}

type received struct {
	quell.Reading
	at time.Time
}

func newGather(service quell.Service) *gather {
	return &gather{service: service, readings: map[string]map[sender]received{}, total: map[quell.Source]int{}}
}

func (g *gather) setService(service quell.Service) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.service = service
}

func (g *gather) add(r quell.Reading, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total[r.Source]++
	from := g.readings[r.Instance]
	if from == nil {
		from = map[sender]received{}
		g.readings[r.Instance] = from
	}
	from[sender{r.Source, r.Sender}] = received{r, at}
}

// reject counts a bad reading and logs the first of a kind.
func (g *gather) reject(err error, log *slog.Logger) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rejected++
	if text := err.Error(); text != g.lastBad {
		g.lastBad = text
		log.Warn("dropped a reading", "error", err)
	}
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
	maps.DeleteFunc(g.readings, func(id string, _ map[sender]received) bool { return !alive[id] })
	wholeWeights(s.Instances)
	s.ArrivalRate = g.arrivals(now)
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
	in := quell.Instance{ID: m.ID, Type: m.Type, State: stateOf(m, backend, known)}
	if !m.Started.IsZero() {
		age := max(0, now.Sub(m.Started).Seconds())
		in.AgeS = &age
	}
	if known && !backend.Draining {
		w := backend.Weight
		in.Weight = &w
	}
	in.Observation = g.merge(now, m.ID)
	return in
}

// stateOf joins what scaler and balancer say. An instance is ready once the balancer's health check has passed.
func stateOf(m quell.Member, b quell.BackendState, known bool) quell.State {
	switch {
	case m.State == quell.Failed || m.State == quell.Draining:
		return m.State
	case known && b.Draining:
		return quell.Draining
	case m.State == quell.Ready && known && b.Healthy:
		return quell.Ready
	case m.State == quell.Ready && known && b.Weight > 0:
		return quell.Failed
	}
	return quell.Starting
}

// merge joins one instance's readings. The observation is as old as its oldest part that tells of the machine: an
// agent that fell silent makes it stale although a balancer still counts requests.
func (g *gather) merge(now time.Time, id string) *quell.Observation {
	from := g.readings[id]
	if len(from) == 0 {
		return nil
	}
	o := &quell.Observation{}
	var balancers []received
	for _, key := range slices.SortedFunc(maps.Keys(from), bySender) {
		r := from[key]
		switch key.source {
		case quell.FromAgent:
			mergeAgent(o, r)
		case quell.FromProber:
			mergeProbes(o, r)
		case quell.FromBalancer:
			if g.recent(now, r.at) {
				balancers = append(balancers, r)
			}
			continue
		}
		if o.At.IsZero() || r.at.Before(o.At) {
			o.At = r.at
		}
	}
	mergeBalancers(o, balancers)
	if o.At.IsZero() {
		return nil
	}
	return o
}

func bySender(a, b sender) int {
	if c := strings.Compare(string(a.source), string(b.source)); c != 0 {
		return c
	}
	return strings.Compare(a.name, b.name)
}

// recent says whether a balancer's reading belongs to the present period; an older one would be counted twice.
func (g *gather) recent(now, at time.Time) bool { return now.Sub(at) <= 2*g.service.Sampling }

func mergeAgent(o *quell.Observation, r received) {
	at := o.At
	probe := o.Probe
	*o = r.Observation
	o.At = at
	if o.At.IsZero() {
		o.At = r.at
	}
	if probe != nil {
		o.Probe = probe
	}
}

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
	n := float64(a.N + b.N)
	mean := (float64(a.N)*a.MeanMS + float64(b.N)*b.MeanMS) / n
	squares := spread(a, mean) + spread(b, mean)
	return quell.ProbeStats{MeanMS: mean, StddevMS: math.Sqrt(squares / (n - 1)), N: a.N + b.N}
}

// spread is the sum of squares of a sample around another mean.
func spread(s quell.ProbeStats, mean float64) float64 {
	return float64(s.N-1)*s.StddevMS*s.StddevMS + float64(s.N)*(s.MeanMS-mean)*(s.MeanMS-mean)
}

// mergeBalancers adds what the balancers saw of the instance. Latencies are merged as histograms, never as
// percentiles.
func mergeBalancers(o *quell.Observation, readings []received) {
	if len(readings) == 0 {
		return
	}
	var rate, inFlight float64
	var requests, failed int64
	var latency, connect histograms
	for _, r := range readings {
		if r.at.After(o.At) && o.Utilization == nil && o.Probe == nil {
			o.At = r.at
		}
		if o.WindowS == 0 {
			o.WindowS = r.Observation.WindowS
		}
		rate += value(r.Observation.RequestRate)
		inFlight += value(r.Observation.InFlight)
		requests += r.Requests
		failed += r.Errors
		latency.add(r.LatencyHDR)
		connect.add(r.ConnectHDR)
	}
	o.RequestRate, o.InFlight = &rate, &inFlight
	if requests > 0 {
		share := float64(failed) / float64(requests)
		o.ErrorRate = &share
	}
	o.LatencyMS = latency.summary()
	if c := connect.summary(); c != nil {
		tcp := maps.Clone(o.TCP)
		if tcp == nil {
			tcp = map[string]float64{}
		}
		tcp["connect_ms_p90"] = *c.P90
		o.TCP = tcp
	}
}

func value(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

// histograms merges encoded histograms of microseconds; what cannot be decoded is left out.
type histograms struct{ h *hdrhistogram.Histogram }

func (hs *histograms) add(encoded []byte) {
	if len(encoded) == 0 {
		return
	}
	h, err := hdrhistogram.Decode(encoded)
	if err != nil {
		return
	}
	if hs.h == nil {
		hs.h = h
		return
	}
	hs.h.Merge(h)
}

func (hs *histograms) summary() *quell.Latency {
	if hs.h == nil || hs.h.TotalCount() == 0 {
		return nil
	}
	ms := func(us float64) *float64 { v := us / 1000; return &v }
	at := func(q float64) *float64 { return ms(float64(hs.h.ValueAtQuantile(q))) }
	return &quell.Latency{Mean: ms(hs.h.Mean()), P50: at(50), P90: at(90), P95: at(95), P99: at(99), N: int(hs.h.TotalCount())}
}

// arrivals sums the rates at which requests came to the balancers; absent where no balancer reports.
func (g *gather) arrivals(now time.Time) *float64 {
	var sum float64
	found := false
	for _, from := range g.readings {
		for key, r := range from {
			if key.source == quell.FromBalancer && r.Observation.RequestRate != nil && g.recent(now, r.at) {
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
