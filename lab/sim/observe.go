package sim

import (
	"math"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/life"
)

// Faults are what goes wrong with readings. The zero value is perfect readings.
type Faults struct {
	Noise float64       // standard deviation of utilisations and probe means, as a share of themselves
	Lost  float64       // share of a machine's readings that never arrive
	Late  time.Duration // mean delay of the others; exponential
}

// machineReading is what agent and prober say of an instance.
type machineReading struct {
	at          float64 // when it came
	utilization map[quell.Resource]float64
	probe       quell.ProbeStats
	probed      bool
	cpu         *quell.CPUTime
}

// watch begins a window of an instance's agent and prober. It is over at the end of a sampling period, or when its last
// probe is back.
func (s *simulation) watch(in *instance) {
	start := s.w.now
	length := s.untilEnd()
	in.windowAt = start
	for _, k := range s.used {
		in.usedAt[k] = s.w.carried(in.host, quell.Resources[k], ownService)
	}
	probes := math.Round(float64(in.prober.plan.count) * length / s.service.Sampling.Seconds())
	in.prober.window(start, length, int(math.Max(1, probes)), func() {
		s.w.agenda.add(max(start+length, s.w.now), func() {
			if in.state == quell.Failed {
				return
			}
			s.send(in)
			s.watch(in)
		})
	})
}

// untilEnd is tick.Until in the time of the simulation, in seconds.
func (s *simulation) untilEnd() float64 {
	period := s.service.Sampling.Seconds()
	wait := period - math.Mod(s.w.now-s.phase+period, period)
	if wait < period/2 {
		wait += period
	}
	return wait
}

// send takes the readings of a window and puts them on their way.
func (s *simulation) send(in *instance) {
	r := &machineReading{utilization: make(map[quell.Resource]float64, len(s.used))}
	for _, k := range s.used {
		carried := s.w.carried(in.host, quell.Resources[k], ownService) - in.usedAt[k]
		r.utilization[quell.Resources[k]] = s.noisy(max(0, carried)) / (s.w.now - in.windowAt)
	}
	if busy, ok := r.utilization[quell.CPU]; ok {
		system := s.Scenario.Workload.System
		r.cpu = &quell.CPUTime{User: busy * (1 - system), System: busy * system}
	}
	if r.probe, r.probed = in.prober.statistics(); r.probed {
		r.probe.MeanMS = s.noisy(r.probe.MeanMS)
	}
	if s.Faults.Lost > 0 && s.rng.Float64() < s.Faults.Lost {
		return
	}
	if s.Faults.Late == 0 {
		s.receive(in, r)
		return
	}
	s.w.agenda.add(s.w.now+s.rng.ExpFloat64()*s.Faults.Late.Seconds(), func() { s.receive(in, r) })
}

func (s *simulation) receive(in *instance, r *machineReading) {
	r.at = s.w.now
	in.machine = r
}

func (s *simulation) noisy(x float64) float64 {
	if s.Faults.Noise == 0 {
		return x
	}
	return x * max(0, 1+s.Faults.Noise*s.rng.NormFloat64())
}

// report ends the balancer's window: it reads all meters, that of an instance that died as well. What was offered in the window is
// what it gave to any instance, whether it is still there or not.
func (s *simulation) report() {
	s.w.agenda.add(s.w.now+s.service.Sampling.Seconds(), s.report)
	s.offered = float64(s.traffic.routed-s.traffic.reported) / (s.w.now - s.reportedAt)
	s.traffic.reported, s.reportedAt = s.traffic.routed, s.w.now
	for _, in := range s.members {
		m := &in.meter
		window := s.w.now - m.began
		if in.prober == nil || window <= 0 { // it was never ready
			continue
		}
		m.account(s.w.now, in.candidate.InFlight)
		r := &trafficReading{at: s.w.now, requestRate: float64(m.arrived) / window, inFlight: m.openTime / window}
		if m.finished > 0 {
			rate := float64(m.failed) / float64(m.finished)
			r.errorRate = &rate
		}
		if len(m.latencies) > 0 {
			summary := scenario.Summarize(m.latencies)
			r.latency = &summary
		}
		s.reportClasses(m, r, window)
		in.traffic = r
		*m = meter{began: s.w.now, latencies: m.latencies[:0], classes: m.classes, touched: m.touched}
	}
}

// reportClasses reads the part of a meter that tells classes apart, and begins it anew. A class nobody asked for has
// a rate of 0 and no latency.
func (s *simulation) reportClasses(m *meter, r *trafficReading, window float64) {
	if len(m.classes) == 0 {
		return
	}
	r.rates, r.latencies = map[string]float64{}, map[string]quell.Latency{}
	for i := range m.classes {
		c, name := &m.classes[i], s.Scenario.Workload.Classes[i].Name
		r.rates[name] = float64(c.arrived) / window
		if len(c.latencies) > 0 {
			r.latencies[name] = scenario.Summarize(c.latencies)
		}
		*c = classMeter{latencies: c.latencies[:0]}
	}
}

// snapshot is what the controller would see now.
func (s *simulation) snapshot() quell.Snapshot {
	group := s.group()
	reported := false
	for i, in := range s.members {
		group[i].Past, group[i].Observation = in.past, s.observation(in)
		reported = reported || s.recent(in) != nil
	}
	snap := life.Snapshot(s.clock(s.w.now), &s.service, group)
	for i, in := range s.members {
		in.past = group[i].Past
	}
	if reported {
		arrivals := s.offered
		snap.ArrivalRate = &arrivals
	}
	return snap
}

// recent is the balancer's reading, unless it belongs to a period that is over.
func (s *simulation) recent(in *instance) *trafficReading {
	if r := in.traffic; r != nil && s.w.now-r.at <= 2*s.service.Sampling.Seconds() {
		return r
	}
	return nil
}

// observation merges the newest readings as the controller does: it is as old as what is known of the machine.
func (s *simulation) observation(in *instance) *quell.Observation {
	r := s.recent(in)
	if in.machine == nil && r == nil {
		return nil
	}
	o := &quell.Observation{WindowS: s.service.Sampling.Seconds()}
	if r != nil {
		rate, open := r.requestRate, r.inFlight
		o.At, o.RequestRate, o.InFlight, o.ErrorRate, o.LatencyMS = s.clock(r.at), &rate, &open, r.errorRate, r.latency
		o.RequestRates, o.LatencyByClassMS = r.rates, r.latencies
	}
	if m := in.machine; m != nil {
		o.At, o.Utilization, o.CPU = s.clock(m.at), m.utilization, m.cpu
		if m.probed && m.at > s.sampled { // probes are told once
			o.Probe = map[quell.Resource]quell.ProbeStats{quell.Network: m.probe}
		}
	}
	return o
}

// clock is a moment of the simulation as a time, from the beginning of 1970.
func (s *simulation) clock(at float64) time.Time { return time.Unix(0, int64(duration(at))).UTC() }
