package life

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

// Received is a reading with its time of arrival by the receiver's clock.
type Received struct {
	quell.Reading
	At time.Time
}

// BySender orders readings by their source and then by their sender.
func BySender(a, b Received) int {
	return cmp.Or(strings.Compare(string(a.Source), string(b.Source)), strings.Compare(a.Sender, b.Sender))
}

// Find returns the position of the reading with r's sender among an instance's readings, which are in the order of BySender,
// and whether there is one. If there is none, place is where to insert r.
func Find(readings []Received, r Received) (place int, there bool) {
	return slices.BinarySearchFunc(readings, r, BySender)
}

// Put adds a reading to an instance's readings. It replaces the previous reading of the same sender.
func Put(readings []Received, r Received) []Received {
	place, there := Find(readings, r)
	if there {
		readings[place] = r
		return readings
	}
	return slices.Insert(readings, place, r)
}

// Current drops two kinds of an instance's readings. The first are readings of a sender that is silent although another sender with the
// same source still reports; an example is a balancer that was removed. The second are counts of balancers from a past period. readings
// holds the newest reading of each sender, and is overwritten.
func Current(now time.Time, period time.Duration, readings []Received) []Received {
	last := map[quell.Source]time.Time{quell.FromBalancer: now}
	for i := range readings {
		if r := &readings[i]; r.At.After(last[r.Source]) {
			last[r.Source] = r.At
		}
	}
	return slices.DeleteFunc(readings, func(r Received) bool { return !recent(last[r.Source], r.At, period) })
}

// recent returns whether a reading belongs to the present period.
func recent(now, at time.Time, period time.Duration) bool { return now.Sub(at) <= 2*period }

// DamagedError says that a part of a reading cannot be used.
type DamagedError struct {
	Reading quell.Reading
	Err     error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("reading of instance %q from %s %q: %v", e.Reading.Instance, e.Reading.Source, e.Reading.Sender, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// Merge joins one instance's current readings, which are in the order of BySender, into an observation. It returns nil if there are none.
// The observation's time is that of the agent's or of the probers' newest reading, whichever is older. So a silent agent makes the
// observation stale even if a balancer still counts requests. Probes from before the last snapshot are not used, because they say nothing
// about the utilisation in this period. Nor are the probes of a period in which the agent sent no reading: the utilisation is not known
// then, and the machine may have stood still. Damaged parts of readings are left out. The response times of readings that came after the
// last snapshot are added to all, unless that is nil. Response times that the service itself measured, which its agent reports, take the
// place of those of balancers.
func Merge(now, last time.Time, readings []Received, all *Durations) (o *quell.Observation, damaged []*DamagedError) {
	if len(readings) == 0 {
		return nil, nil
	}
	o = &quell.Observation{}
	silent := false
	if agent := newest(readings, quell.FromAgent); agent != nil {
		*o = agent.Observation
		if silent = !agent.At.After(last); silent {
			o.Probe = nil
		}
		if d := takeOwn(now, o, agent, last, all); d != nil {
			damaged = append(damaged, d)
		}
	}
	own := false
	for i := range readings {
		if r := &readings[i]; r.Source == quell.FromProber && r.At.After(last) && !silent {
			if !own {
				o.Probe, own = maps.Clone(o.Probe), true
			}
			mergeProbes(o, r)
		}
	}
	if o.LatencyMS != nil {
		all = nil // the service's own response times are counted, and no balancer's
	}
	damaged = append(damaged, mergeBalancers(o, of(readings, quell.FromBalancer), last, all)...)
	o.At = now.Add(-now.Sub(asOld(readings))) // sets the wall-clock time from the age, in case the clock was set; snapshots are stored
	return o, damaged
}

// takeOwn adds the response times that a service measured itself. Old figures are left out, and damaged response times.
func takeOwn(now time.Time, o *quell.Observation, agent *Received, last time.Time, all *Durations) *DamagedError {
	if now.Sub(agent.At).Seconds() > 2*o.WindowS {
		o.LatencyMS, o.RequestRate, o.ErrorRate = nil, nil, nil
	}
	if o.LatencyMS == nil || len(agent.LatencyHDR) == 0 || !agent.At.After(last) {
		return nil
	}
	h, err := decodeDurations(agent.LatencyHDR)
	if err != nil {
		o.LatencyMS = nil
		return &DamagedError{agent.Reading, err}
	}
	all.merge(h)
	return nil
}

// asOld returns the time of the agent's or of the probers' newest reading, whichever is older. If there is neither, it returns that
// of a balancer's newest reading.
func asOld(readings []Received) time.Time {
	agent, prober := newest(readings, quell.FromAgent), newest(readings, quell.FromProber)
	switch {
	case agent == nil && prober == nil:
		return newest(readings, quell.FromBalancer).At
	case agent == nil || prober != nil && prober.At.Before(agent.At):
		return prober.At
	}
	return agent.At
}

// of returns the readings of one source, which are adjacent.
func of(readings []Received, source quell.Source) []Received {
	other := func(r Received) bool { return r.Source != source }
	first := slices.IndexFunc(readings, func(r Received) bool { return r.Source == source })
	if first < 0 {
		return nil
	}
	if n := slices.IndexFunc(readings[first:], other); n >= 0 {
		return readings[first : first+n]
	}
	return readings[first:]
}

// newest returns the newest reading of a source, or nil if there is none.
func newest(readings []Received, source quell.Source) (last *Received) {
	for i := range readings {
		if r := &readings[i]; r.Source == source && (last == nil || r.At.After(last.At)) {
			last = r
		}
	}
	return last
}

// Tenancy returns what an instance's agent last told of the policy that divides its machine; nil if there is none.
func Tenancy(readings []Received) *quell.Tenancy {
	agent := newest(readings, quell.FromAgent)
	if agent == nil {
		return nil
	}
	return agent.Tenancy
}

// Settings returns the settings that an instance's agent last reported. The report may be old, because settings stay in force.
func Settings(readings []Received) map[string]float64 {
	agent := newest(readings, quell.FromAgent)
	if agent == nil {
		return nil
	}
	return agent.Settings
}

// mergeProbes pools the probes of several probers.
func mergeProbes(o *quell.Observation, r *Received) {
	for resource, p := range r.Observation.Probe {
		if before, ok := o.Probe[resource]; !ok || before.By.Alike(p.By) { // probes of another size are not comparable
			quell.Put(&o.Probe, resource, pool(before, p))
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

// spread returns a sample's sum of squared deviations from the given mean.
func spread(s quell.ProbeStats, mean float64) float64 {
	return float64(s.N-1)*s.StddevMS*s.StddevMS + float64(s.N)*(s.MeanMS-mean)*(s.MeanMS-mean)
}

// mergeBalancers adds what balancers counted at the instance. Latencies are merged as histograms, never as percentiles. If there is only
// one balancer, values that it reports without a histogram are used too.
func mergeBalancers(o *quell.Observation, readings []Received, last time.Time, all *Durations) (damaged []*DamagedError) {
	if len(readings) == 0 {
		return nil
	}
	sum := &struct{ rate, inFlight, answered float64 }{}
	told := true
	var failed, shed, limited share
	var latency, connect histograms
	for i := range readings {
		r := &readings[i]
		if o.WindowS == 0 {
			o.WindowS = r.Observation.WindowS
		}
		sum.rate += value(r.Observation.RequestRate)
		sum.inFlight += value(r.Observation.InFlight)
		sum.answered += value(r.Observation.AnsweredRate)
		told = told && r.Observation.AnsweredRate != nil
		failed.add(r.Observation.ErrorRate, r.Requests)
		shed.addOrNone(r.Observation.ShedRate, r.Requests)
		limited.addOrNone(r.Observation.LimitedRate, r.Requests)
		var counted *Durations
		if r.At.After(last) {
			counted = all
		}
		for _, err := range []error{latency.add(r.LatencyHDR, counted), connect.add(r.ConnectHDR, nil)} {
			if err != nil {
				damaged = append(damaged, &DamagedError{r.Reading, err})
			}
		}
	}
	o.RequestRate, o.InFlight, o.ErrorRate, o.ShedRate = &sum.rate, &sum.inFlight, failed.mean(), shed.unlessNone()
	o.LimitedRate = limited.unlessNone()
	if told {
		o.AnsweredRate = &sum.answered
	}
	damaged = append(damaged, mergeClasses(o, readings)...)
	if o.LatencyMS == nil {
		o.LatencyMS = latencyOf(readings, &latency)
	}
	if only := &readings[0]; len(readings) == 1 {
		if ms, reported := only.Observation.TCP[connectP90]; reported && len(only.ConnectHDR) == 0 {
			addTCP(o, connectP90, ms)
		}
	}
	if c := connect.summary(); c != nil {
		addTCP(o, connectP90, *c.P90)
	}
	return damaged
}

// latencyOf summarises the response times of balancers: their histograms, else what one balancer says, else a mean, because percentiles
// cannot be merged.
func latencyOf(readings []Received, merged *histograms) *quell.Latency {
	if l := merged.summary(); l != nil {
		return l
	}
	if len(readings) > 1 {
		return meanLatency(readings)
	}
	only := &readings[0]
	if l := only.Observation.LatencyMS; len(only.LatencyHDR) == 0 && l != nil && l.N > 0 {
		return l
	}
	return nil
}

// mergeClasses adds the rates and response times of the classes of requests. If there are several balancers, a class without a histogram
// has only a rate.
func mergeClasses(o *quell.Observation, readings []Received) (damaged []*DamagedError) {
	if only := &readings[0]; len(readings) == 1 {
		o.RequestRates, o.LatencyByClassMS = only.Observation.RequestRates, only.Observation.LatencyByClassMS
		return nil
	}
	o.RequestRates, o.LatencyByClassMS = nil, nil
	classes := map[string]*histograms{}
	for i := range readings {
		r := &readings[i]
		for class, rate := range r.Observation.RequestRates {
			quell.Put(&o.RequestRates, class, o.RequestRates[class]+rate)
		}
		for _, class := range slices.Sorted(maps.Keys(r.ClassHDR)) {
			if classes[class] == nil {
				classes[class] = &histograms{}
			}
			if err := classes[class].add(r.ClassHDR[class], nil); err != nil {
				damaged = append(damaged, &DamagedError{r.Reading, err})
			}
		}
	}
	for class, h := range classes {
		if l := h.summary(); l != nil {
			quell.Put(&o.LatencyByClassMS, class, *l)
		}
	}
	return damaged
}

// connectP90 is the key of Observation.TCP for the time that 90% of new connections do not exceed, in milliseconds.
const connectP90 = "connect_ms_p90"

// addTCP sets a value of an observation's TCP readings, whose map may belong to a reading.
func addTCP(o *quell.Observation, name string, value float64) {
	if o.TCP = maps.Clone(o.TCP); o.TCP == nil {
		o.TCP = map[string]float64{}
	}
	o.TCP[name] = value
}

// meanLatency merges the mean latencies of balancers that report no histogram, weighted by requests. The result has no percentiles.
func meanLatency(readings []Received) *quell.Latency {
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
	return &quell.Latency{Mean: new(sum / float64(n)), N: n}
}

func value(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

// share is a mean of fractions, weighted by requests. A balancer that could not pass on any request, because the
// instance refuses connections, has an error rate but no requests; it still counts.
type share struct{ sum, weight float64 }

func (s *share) add(fraction *float64, requests int64) {
	if fraction == nil {
		return
	}
	weight := math.Max(1, float64(requests))
	s.sum += *fraction * weight
	s.weight += weight
}

// addOrNone counts a fraction that is absent as 0, if there were requests.
func (s *share) addOrNone(fraction *float64, requests int64) {
	if none := 0.; fraction == nil && requests > 0 {
		fraction = &none
	}
	s.add(fraction, requests)
}

// unlessNone returns the mean, nil if it is 0.
func (s *share) unlessNone() *float64 {
	if s.sum == 0 {
		return nil
	}
	return s.mean()
}

func (s *share) mean() *float64 {
	if s.weight == 0 {
		return nil
	}
	return new(s.sum / s.weight)
}

// histograms merges encoded histograms of microseconds.
type histograms struct {
	h    *hdrhistogram.Histogram
	wide bool // h accepts all values
}

// longest is longer than any request takes: a day, in microseconds.
const longest = int64(24 * time.Hour / time.Microsecond)

// add merges one more; all, unless it is nil, also gets its durations.
func (hs *histograms) add(encoded []byte, all *Durations) error {
	if len(encoded) == 0 {
		return nil
	}
	h, err := decodeDurations(encoded)
	if err != nil {
		return err
	}
	all.merge(h)
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

// Arrivals sums the request rates of the balancers' last windows or, if no balancer reports, of what services measured themselves. It
// returns nil if nobody reports. readings has the readings of each instance. A balancer reports all its instances at once. If its newest
// report is without some instance, that instance died or left, and the others' readings now include its traffic. So the last reading of
// the missing instance is not counted again. If an instance left within the window, the requests that it got are counted.
func Arrivals(now time.Time, period time.Duration, readings map[string][]Received) *float64 {
	if sum := arrivalsFrom(quell.FromBalancer, now, period, readings); sum != nil {
		return sum
	}
	return arrivalsFrom(quell.FromAgent, now, period, readings)
}

func arrivalsFrom(source quell.Source, now time.Time, period time.Duration, readings map[string][]Received) *float64 {
	last := map[string]time.Time{} // time of the newest reading by sender
	for _, from := range readings {
		sent := of(from, source)
		for i := range sent {
			if r := &sent[i]; r.At.After(last[r.Sender]) {
				last[r.Sender] = r.At
			}
		}
	}
	var sum float64
	found := false
	for _, id := range slices.Sorted(maps.Keys(readings)) {
		sent := of(readings[id], source)
		for i := range sent {
			r := &sent[i]
			sameWindow := last[r.Sender].Sub(r.At) < period/2
			if r.Observation.RequestRate != nil && sameWindow && recent(now, r.At, period) {
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

// Unserved sums the rates of requests for which balancers had no instance in their last windows.
func Unserved(now time.Time, period time.Duration, readings map[string][]Received) (sum float64) {
	last := map[string]*Received{} // by sender; its readings of a window all say the same
	for _, from := range readings {
		sent := of(from, quell.FromBalancer)
		for i := range sent {
			if r := &sent[i]; recent(now, r.At, period) && (last[r.Sender] == nil || r.At.After(last[r.Sender].At)) {
				last[r.Sender] = r
			}
		}
	}
	for _, sender := range slices.Sorted(maps.Keys(last)) {
		sum += last[sender].Observation.Counters[quell.CounterUnserved]
	}
	return sum
}
