package controller

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quellhq/quell"
)

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
		if before, ok := o.Probe[resource]; !ok || before.By.Alike(p.By) { // probes of another size say something else
			o.Probe[resource] = pool(before, p)
		}
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
	return quell.ProbeStats{MeanMS: mean, StddevMS: math.Sqrt(squares / (n - 1)), N: int(math.Min(n, math.MaxInt32)), By: a.By}
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
