package policy

import (
	"math"
	"slices"

	"github.com/quellhq/quell"
)

const (
	// riseWithin is in how many periods severities must begin to count as one rise.
	riseWithin = 2
	// aloneFor is for how many periods a severity may outlast those of the others until it counts.
	aloneFor = 3
	// unmeasuredFor is for how many periods a severity is doubted if no response times tell whether requests are slower.
	unmeasuredFor = 10
	// slowerBy is by how much requests must be slower at least, as a part of their time without neighbours, to support a severity, and
	// slowerPart as a part of the severity. Neighbours on a link slow its requests about as much as its probes.
	slowerBy, slowerPart = 0.25, 0.5
	// fewestAnswers is the number of responses in a window that tell a mean.
	fewestAnswers = 10
	// calmGain is the weight of the newest window in CalmMS.
	calmGain = 0.3
)

// probedFrom returns what is known of the resource that a prober elsewhere probes, and what was felt of it; false if the instance was not
// probed so in its last window.
func (m *Member) probedFrom(in *Input) (s *Sense, felt Felt, ok bool) {
	i := slices.IndexFunc(in.Contended, func(c Contended) bool { return c.Resource == quell.Network })
	if i < 0 || !m.Fresh || !m.InService() {
		return nil, felt, false
	}
	if probe, probed := m.Observation.Probe[quell.Network]; !probed || probe.By != nil && probe.By.From == string(quell.FromAgent) {
		return nil, felt, false
	}
	if _, told := m.Observation.Severity[quell.Network]; told {
		return nil, felt, false
	}
	var memory [MaxContended]Felt
	m.mem.of(in.Contended, memory[:len(in.Contended)])
	return &m.Senses[i], memory[i], m.Senses[i].HasSeverity
}

// doubtProber finds severities that the prober itself may have caused, and takes them out of the judgement. It returns what is known after
// this snapshot; before is not changed.
func (g *Group) doubtProber(in *Input, before map[string]Probed) map[string]Probed {
	if !in.feels || in.Fast || len(g.Members) < 2 {
		return nil
	}
	next := make(map[string]Probed, len(before))
	probed, up, recent, on := 0, 0, 0, false
	for i := range g.Members {
		m := &g.Members[i]
		s, felt, ok := m.probedFrom(in)
		if !ok {
			continue
		}
		p := before[m.ID]
		if !in.between {
			p = p.after(m, felt.Passed > 0)
		}
		next[m.ID] = p
		probed++
		on = on || p.Doubted
		if p.Up > 0 {
			up++
		}
		if p.rose() && !p.supported(in, m, s.Severity) {
			recent++
		}
	}
	most := 2*up > probed
	begins := most && recent >= 2 && 2*recent > probed
	for i := range g.Members {
		m := &g.Members[i]
		s, _, ok := m.probedFrom(in)
		if !ok {
			continue
		}
		p := next[m.ID]
		if !in.between {
			p = p.judge(in, m, s.Severity, most && (begins || on), most)
			next[m.ID] = p
		}
		if p.Doubted {
			s.Severity, s.Measured, s.Taken, s.Clear = 0, 0, nil, false
			g.doubted = append(g.doubted, m.ID)
		}
	}
	return next
}

// after returns what is known after a window with or without severity.
func (p Probed) after(m *Member, up bool) Probed {
	if up {
		p.Up++
		return p
	}
	calm := Probed{CalmMS: p.CalmMS}
	if ms, ok := m.responds(); ok && calm.CalmMS == 0 {
		calm.CalmMS = ms
	} else if ok {
		calm.CalmMS += calmGain * (ms - calm.CalmMS)
	}
	return calm
}

// rose returns whether severity began lately.
func (p Probed) rose() bool { return p.Up > 0 && p.Up <= riseWithin }

// judge decides whether a severity is doubted. rise says that the severities of most machines rose together, most that most have one.
func (p Probed) judge(in *Input, m *Member, severity float64, rise, most bool) Probed {
	if rise && p.rose() {
		p.Doubted = true
	}
	if !p.Doubted {
		return p
	}
	if p.Alone++; most {
		p.Alone = 0
	}
	if _, measured := m.responds(); p.supported(in, m, severity) || p.Alone > aloneFor || !measured && p.Up > unmeasuredFor {
		p.Doubted = false
	}
	return p
}

// responds returns the mean response time of an instance's requests in its last window; false if there were too few.
func (m *Member) responds() (ms float64, ok bool) {
	if l := m.Observation.LatencyMS; l == nil || l.N < fewestAnswers {
		return 0, false
	}
	return m.Observation.LatencyMS.Of(quell.Mean)
}

// supported returns whether requests show what the probes show: they miss the objective, or they are slower than before.
func (p Probed) supported(in *Input, m *Member, severity float64) bool {
	ms, ok := m.responds()
	if !ok {
		return false
	}
	if now, told := m.Observation.LatencyMS.Of(in.Service.SLO.Metric); told && now > in.Service.SLO.ThresholdMS() {
		return true
	}
	return p.CalmMS > 0 && ms >= p.CalmMS*(1+math.Max(slowerBy, slowerPart*severity))
}

// noteProber says which severities are doubted.
func noteProber(g *Group, plan *quell.Plan) {
	if len(g.doubted) == 0 {
		return
	}
	AddReason(plan, "prober", "", "probes of %s became slower at the same time, and requests there are not slower: the prober, its link or "+
		"the host below everything is the likelier cause. These severities do not count until requests are slower, too", Named(g.doubted))
}
