package sim

import (
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
)

// fastStep is the part of a simulation that belongs to a fast policy (policy.fast), which cuts shares between two decisions of the main
// policy. For its readings the balancer keeps separate windows.
type fastStep struct {
	policy.Cuts
	policy *policy.Fast
	period float64
}

// mark is the state of an instance's meter at the end of the last fast window.
type mark struct {
	began                     float64
	arrived, finished, failed int64
	answered                  int64
	latencies                 int
	openTime                  float64
	kept                      []time.Duration // response times since the mark, saved when the meter was reset
}

// fastView is what a fast policy sees of an instance.
type fastView struct {
	mark
	usedAt   [kinds]float64     // what each resource had carried at the end of the last fast window
	signsAt  signs              // what the host had counted by then
	observed *quell.Observation // of the last fast window; nil before the first
}

// keep saves what a meter has counted since the fast policy last read it, because the meter is about to be reset.
func (k *mark) keep(m *meter) {
	k.arrived, k.finished, k.failed = k.arrived-m.arrived, k.finished-m.finished, k.failed-m.failed
	k.answered, k.openTime = k.answered-m.answered, k.openTime-m.openTime
	k.kept, k.latencies = append(k.kept[:0], m.latencies[k.latencies:]...), 0
}

func (s *simulation) newFastStep() error {
	fast, err := table.All.NewFast(s.service, s.Models)
	if err != nil || fast == nil {
		return err
	}
	s.fast = &fastStep{policy: fast, period: s.service.Policy.Fast.Sampling.Seconds()}
	return nil
}

// hasten schedules the windows of the fast policy. At the end of each window of the main policy, a window of the fast policy ends, too,
// if the main policy's period is a multiple of the fast policy's.
func (s *simulation) hasten(firstEnd float64) {
	if s.fast == nil {
		return
	}
	first := firstEnd
	for first > s.boot+s.fast.period {
		first -= s.fast.period
	}
	s.w.agenda.add(first, s.reportFast)
	s.w.agenda.add(first+tick.Settle(s.service.Policy.Fast.Sampling).Seconds(), s.stepFast)
}

// reportFast ends the balancer's window for the fast policy.
func (s *simulation) reportFast() {
	s.w.agenda.add(s.w.now+s.fast.period, s.reportFast)
	for _, in := range s.members {
		if in.fastView == nil {
			continue // it has not been ready yet
		}
		m, last := &in.meter, &in.fastView.mark
		window := s.w.now - last.began
		if window <= 0 {
			continue
		}
		m.account(s.w.now, in.candidate.InFlight)
		rate, answered := float64(m.arrived-last.arrived)/window, float64(m.answered-last.answered)/window
		open := (m.openTime - last.openTime) / window
		o := quell.Observation{At: s.clock(s.w.now), WindowS: window, RequestRate: &rate, AnsweredRate: &answered, InFlight: &open}
		if finished := m.finished - last.finished; finished > 0 {
			failed := float64(m.failed-last.failed) / float64(finished)
			o.ErrorRate = &failed
		}
		if took := append(last.kept, m.latencies[last.latencies:]...); len(took) > 0 {
			summary := scenario.Summarize(took)
			o.LatencyMS = &summary
		}
		if in.state == quell.Ready {
			s.sense(in, &o)
		}
		in.fastView.observed = &o
		in.fastView.mark = mark{s.w.now, m.arrived, m.finished, m.failed, m.answered, len(m.latencies), m.openTime, last.kept[:0]}
	}
}

// newFastView begins an instance's first fast window.
func (s *simulation) newFastView(in *instance) *fastView {
	g := &fastView{mark: mark{began: s.w.now}, signsAt: s.w.signs(in.host)}
	for _, k := range s.used {
		g.usedAt[k] = s.w.peek(in.host, k, ownService)
	}
	return g
}

// sense adds to a fast window what the agent measures of the machine. The agent does not probe in fast windows.
func (s *simulation) sense(in *instance, o *quell.Observation) {
	g := in.fastView
	o.Utilization = make(map[quell.Resource]float64, len(s.used))
	for _, k := range s.used {
		carried := s.w.peek(in.host, k, ownService)
		o.Utilization[quell.Resources[k]] = min(1, max(0, carried-g.usedAt[k])/o.WindowS)
		g.usedAt[k] = carried
	}
	now := s.w.signs(in.host)
	machineSigns(o, &s.Scenario.Workload, s.w.hosts[in.host].Cores, g.signsAt, now)
	g.signsAt = now
}

// stepFast makes the fast policy's decision, as the live controller does.
func (s *simulation) stepFast() {
	s.w.agenda.add(s.w.now+s.fast.period, s.stepFast)
	_, group := s.look()
	for i, in := range s.members {
		if in.fastView != nil {
			group[i].Observation = in.fastView.observed
		}
	}
	snapshot := life.Snapshot(s.clock(s.w.now), &s.service, group)
	if s.w.now < s.zero {
		snapshot.Set(s.Scenario.Instances.Held())
	}
	h := s.fast
	wanted, act := h.policy.Step(&snapshot, &h.Cuts)
	if s.FastPlans != nil {
		s.FastPlans(duration(s.w.now-s.zero), &snapshot, &wanted)
	}
	s.set(wanted.Settings)
	if !act {
		return
	}
	plan, after := s.engine.ComposeCuts(&snapshot, s.state, &wanted)
	s.state = after
	moved := s.setWeights(plan.Weights)
	if h.Cutting = len(h.Factors) > 0 || moved; moved {
		s.changed()
	}
}

// cuts writes into a snapshot how far the fast policy has cut each share.
func (s *simulation) cuts(snapshot *quell.Snapshot) {
	if s.fast != nil {
		snapshot.Cut(s.fast.Factors)
	}
}
