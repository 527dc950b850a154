package sim

import (
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/life"
)

// Faults are errors of readings. The zero value means perfect readings.
type Faults struct {
	Noise float64       // standard deviation of utilisations and probe means, as a share of themselves
	Lost  float64       // share of a machine's readings that never arrive
	Late  time.Duration // mean delay of the readings that do arrive; exponentially distributed
}

// watch begins a window of an instance's agent and prober. The window ends with the sampling period, or later, when its last probe has
// returned.
func (s *simulation) watch(in *instance) {
	start := s.w.now
	length := s.untilEnd()
	in.windowAt, in.signsAt = start, s.w.signs(in.host)
	for _, k := range s.used {
		in.usedAt[k] = s.w.usedBy(in.host, quell.Resources[k])
	}
	if slices.Contains(s.used, kindOf(quell.CPU)) {
		in.choresAt = s.w.carried(in.host, quell.CPU, ownChores)
	}
	probing := len(in.probers)
	for _, p := range in.probers {
		probes := math.Round(float64(p.plan.count) * length / s.service.Sampling.Seconds())
		p.window(start, length, int(math.Max(1, probes)), func() {
			if probing--; probing > 0 {
				return
			}
			s.w.agenda.add(max(start+length, s.w.now), func() {
				if in.state == quell.Failed {
					return
				}
				s.send(in)
				s.watch(in)
			})
		})
	}
}

// untilEnd is the time until the end of the sampling period (tick.Until), in seconds of simulated time.
func (s *simulation) untilEnd() float64 {
	period := s.service.Sampling.Seconds()
	wait := period - math.Mod(s.w.now-s.phase+period, period)
	if wait < period/2 {
		wait += period
	}
	return wait
}

// send makes the reading of a window and sends it. Agent and prober report at the same moment, so one reading contains both.
func (s *simulation) send(in *instance) {
	window := s.w.now - in.windowAt
	o := quell.Observation{WindowS: window, Utilization: make(map[quell.Resource]float64, len(s.used))}
	for _, k := range s.used {
		carried := s.w.usedBy(in.host, quell.Resources[k]) - in.usedAt[k]
		o.Utilization[quell.Resources[k]] = s.noisy(max(0, carried)) / window
	}
	s.seeChores(in, &o, window)
	machineSigns(&o, &s.Scenario.Workload, s.w.hosts[in.host].Cores, in.signsAt, s.w.signs(in.host))
	substitute(o.Utilization, scenario.Probing(s.Probing))
	for _, prober := range in.probers {
		if p, ok := prober.statistics(); ok {
			p.MeanMS = s.noisy(p.MeanMS)
			if o.Probe == nil {
				o.Probe = make(map[quell.Resource]quell.ProbeStats, len(in.probers))
			}
			o.Probe[prober.plan.resource] = p
		}
	}
	if in.bucket != nil && in.bucket.shown != nil {
		o.Credits = map[quell.Resource]float64{s.Scenario.Instances.Credits.Resource: *in.bucket.shown}
	}
	if s.Faults.Lost > 0 && s.rng.Float64() < s.Faults.Lost {
		return
	}
	r := quell.Reading{Source: quell.FromAgent, Observation: o}
	if s.Faults.Late == 0 {
		s.receive(in, r)
	} else {
		s.receiveLate(in, r)
	}
}

// seeChores reports the instance's work that is not for requests, as an agent sees a control group.
func (s *simulation) seeChores(in *instance, o *quell.Observation, window float64) {
	if !slices.Contains(s.used, kindOf(quell.CPU)) {
		return
	}
	if use := (s.w.carried(in.host, quell.CPU, ownChores) - in.choresAt) / window; use > 0 {
		o.Top = map[quell.Resource]quell.User{quell.CPU: {Name: "chores", Use: use}}
	}
}

// substitute sets the utilisation of memory to that of the processors if requests have no demand for memory but neighbours on memory slow
// them down. An agent does the same on a machine that cannot measure its memory traffic.
func substitute(use map[quell.Resource]float64, p scenario.Probing) {
	_, told := use[quell.Memory]
	if busy, ok := use[quell.CPU]; ok && !told && slices.Contains(p.Resources, quell.Memory) {
		use[quell.Memory] = busy
	}
}

func (s *simulation) receive(in *instance, r quell.Reading) {
	in.readings = life.Put(in.readings, life.Received{Reading: r, At: s.clock(s.w.now)})
}

func (s *simulation) receiveLate(in *instance, r quell.Reading) {
	s.w.agenda.add(s.w.now+s.rng.ExpFloat64()*s.Faults.Late.Seconds(), func() { s.receive(in, r) })
}

func (s *simulation) noisy(x float64) float64 {
	if s.Faults.Noise == 0 {
		return x
	}
	return x * max(0, 1+s.Faults.Noise*s.rng.NormFloat64())
}

// report ends the balancer's window. It reads all meters, also that of an instance that has failed. The offered load of the window is
// every request that was sent to any instance, even if the instance no longer exists.
func (s *simulation) report() {
	s.w.agenda.add(s.w.now+s.service.Sampling.Seconds(), s.report)
	s.offered = float64(s.traffic.routed-s.traffic.reported) / (s.w.now - s.reportedAt)
	s.traffic.reported, s.reportedAt = s.traffic.routed, s.w.now
	s.measureEvenness()
	for _, in := range s.members {
		m := &in.meter
		window := s.w.now - m.began
		if in.probers == nil || window <= 0 { // it has not been ready yet
			continue
		}
		m.account(s.w.now, in.candidate.InFlight)
		if in.fastView != nil {
			in.fastView.keep(m)
		}
		counted := &struct{ rate, answered, open, failed float64 }{
			rate: float64(m.arrived) / window, answered: float64(m.answered) / window, open: m.openTime / window}
		o := quell.Observation{WindowS: window, RequestRate: &counted.rate, AnsweredRate: &counted.answered, InFlight: &counted.open}
		if m.finished > 0 {
			counted.failed = float64(m.failed) / float64(m.finished)
			o.ErrorRate = &counted.failed
		}
		if len(m.latencies) > 0 {
			summary := scenario.Summarize(m.latencies)
			o.LatencyMS = &summary
		}
		if len(m.connects) > 0 {
			o.TCP = map[string]float64{"connect_ms_p90": p90(m.connects)}
		}
		s.reportClasses(m, &o, window)
		s.receive(in, quell.Reading{Source: quell.FromBalancer, Observation: o, Requests: m.finished})
		*m = meter{began: s.w.now, latencies: m.latencies[:0], connects: m.connects[:0], classes: m.classes, touched: m.touched}
	}
}

// reportClasses reads and resets the part of a meter that distinguishes classes. A class without requests has a rate of 0 and no response
// time.
func (s *simulation) reportClasses(m *meter, o *quell.Observation, window float64) {
	if len(m.classes) == 0 {
		return
	}
	o.RequestRates, o.LatencyByClassMS = map[string]float64{}, map[string]quell.Latency{}
	for i := range m.classes {
		c, name := &m.classes[i], s.Scenario.Workload.Classes[i].Name
		o.RequestRates[name] = float64(c.arrived) / window
		if len(c.latencies) > 0 {
			o.LatencyByClassMS[name] = scenario.Summarize(c.latencies)
		}
		*c = classMeter{latencies: c.latencies[:0]}
	}
}

// p90 is the value that 90% of the values do not exceed. It sorts them.
func p90(values []float64) float64 {
	slices.Sort(values)
	return values[(9*len(values)+9)/10-1]
}

// snapshot is what the controller would know now.
func (s *simulation) snapshot() quell.Snapshot {
	_, group := s.look()
	now, last := s.clock(s.w.now), s.clock(s.sampled)
	reported := false
	for i, in := range s.members {
		in.readings = life.Current(now, s.service.Sampling, in.readings)
		group[i].Observation, _ = life.Merge(now, last, in.readings, nil)
		reported = reported || group[i].Observation != nil && group[i].Observation.RequestRate != nil
	}
	snap := life.Snapshot(now, &s.service, group)
	for i, in := range s.members {
		in.past = group[i].Past
	}
	s.fleet.NoteStates(&snap)
	if reported {
		arrivals := s.offered
		snap.ArrivalRate = &arrivals
	}
	return snap
}

// clock converts a time of the simulation into a time that begins with 1970.
func (s *simulation) clock(at float64) time.Time { return time.Unix(0, int64(duration(at))).UTC() }
