package ice

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/bands"
)

// sign is what shows that an instance has neighbours.
type sign struct {
	text     string
	resource quell.Resource // the contended one; empty: not known
	clear    bool           // one window is enough

	own, hidden float64 // use of that resource by the instance and by its neighbours
	rate        float64 // requests per second
	left        float64 // the part of its share to keep, if own and hidden are not known; else 0

	estimated        bool    // the trained estimator applies:
	signal, previous float64 // c and o
}

// Constants of the signs that need no training. A band is the mean of what an instance shows without neighbours, give or take its
// deviation.
const (
	minHiddenSign   = 0.1  // others' use of the processors that is a sign
	clearHiddenSign = 0.25 // others' use that is a clear one
	usuallyHidden   = 0.25 // more than this is never usual
	spreadHidden    = 0.02 // a deviation of that use below this counts as this,
	spreadUnknown   = 0.12 // or, until bands.Known windows were seen, as this
	spreadSignal    = 0.1  // the same for logarithms of other values,
	minSlower       = 1.3  // and how many times the usual value is a sign
	clearSlower     = 2.0
	chancePerRoot   = 2.0 // relative error of the mean over n requests, times the root of n: response times differ more than exponential ones
	fullestOwn      = 0.9 // an own use above this counts as this
	fewRequests     = 40  // if nobody says how many requests there were, they count as this many
)

// band is the mean and the variance of a value without neighbours.
type band struct {
	N        int     `json:"n,omitempty"`
	Mean     float64 `json:"mean,omitempty"`
	Variance float64 `json:"variance,omitempty"`
}

func (b band) with(x float64) band {
	b.N = min(b.N+1, bands.Longest)
	part, off := 1/float64(b.N), x-b.Mean
	b.Mean += part * off
	b.Variance = (1 - part) * (b.Variance + part*off*off)
	return b
}

// spread returns the deviation, at least least.
func (b band) spread(least float64) float64 { return math.Max(least, math.Sqrt(b.Variance)) }

// usual is what an instance shows without neighbours.
type usual struct {
	Hidden band                    `json:"hidden,omitzero"`  // others' use of its processors
	Signal band                    `json:"signal,omitzero"`  // logarithm of cycles per instruction, else of processor time per request
	Probes map[quell.Resource]band `json:"probes,omitempty"` // logarithm of probe times less what the own use explains; never changed
	Busy   band                    `json:"busy,omitzero"`    // use of its processors by all
	MS     band                    `json:"ms,omitzero"`      // response time in milliseconds
}

// watch looks at each instance's last window. All signs are noticed before any share changes, because how far one share is cut depends on
// the room at the others.
func (p *plan) watch() {
	p.slow = bands.Judge(p.in, p.group, bands.Defaults, false, func(m *policy.Member) *bands.Memory { return &memoryOf(m).Slow })
	p.readFacts()
	type judged struct {
		*policy.Member
		sign  sign
		found bool
	}
	var list []judged
	for _, m := range p.group.Ready {
		mem := memoryOf(m)
		if !m.Fresh {
			p.calm(m)
			continue
		}
		if !m.Observation.At.After(mem.At) {
			p.calm(m)
			continue
		}
		mem.At, p.facts(m).judged = m.Observation.At, true
		s, found := p.sign(m)
		p.notice(mem, s, found)
		list = append(list, judged{m, s, found})
	}
	for _, j := range list {
		mem := memoryOf(j.Member)
		p.follow(j.Member, j.sign, j.found)
		p.changed(j.Member)
		if !j.found && mem.Since.IsZero() {
			mem.Usual.learn(j.Member, p.facts(j.Member))
		}
		p.note(j.Member)
	}
}

// sign returns the most important sign in an instance's last window: a clear one first, else the first in the order of the list.
func (p *plan) sign(m *policy.Member) (best sign, found bool) {
	var list []sign
	add := func(s sign, ok bool) {
		if ok {
			s.rate, _ = m.Requests()
			list = append(list, s)
		}
	}
	if p.trained() {
		add(p.detected(m))
	} else {
		add(p.crowded(m))
		add(p.costly(m))
	}
	for _, r := range quell.Resources {
		add(p.probed(m, r))
	}
	add(p.slower(m))
	if len(list) == 0 {
		return best, false
	}
	if i := slices.IndexFunc(list, func(s sign) bool { return s.clear }); i >= 0 {
		return list[i], true
	}
	return list[0], true
}

// detected asks the trained classifier.
func (p *plan) detected(m *policy.Member) (s sign, found bool) {
	ice, o, mem := p.model, m.Observation, memoryOf(m)
	signals, means := model.ICESignals(o, mem.Means)
	mem.Means = means
	if found, s.clear = ice.Disturbed(signals); !found {
		return s, false
	}
	s.text, s.resource = "the detector finds neighbours"+ice.Classifier.Tested(ice.Usual, signals), quell.CPU
	f := p.facts(m)
	if !f.used {
		s.left = p.set.Floor
		return s, true
	}
	s.own, s.hidden = f.use.Own, f.use.Hidden
	s.previous = f.use.Busy()
	if last := mem.Tuned.Busy; last > 0 {
		s.previous = last
	}
	s.signal, s.estimated = signals[ice.Signal]
	s.estimated = s.estimated && ice.Estimator != nil && o.RequestRate != nil
	return s, true
}

// chanceOf is how much longer the requests of a window may have waited and run by chance, as a fraction.
func chanceOf(o *quell.Observation) float64 {
	n := float64(fewRequests)
	switch {
	case o.LatencyMS != nil && o.LatencyMS.N > 0:
		n = float64(o.LatencyMS.N)
	case o.RequestRate != nil:
		n = math.Max(1, policy.Arrived(o))
	}
	return chancePerRoot / math.Sqrt(n)
}

// waitingChance is how much longer, as a fraction, the tasks of a window may have waited by chance. It grows with the instance's own use of
// its processors: the busier they are, the more of its requests wait for each other.
func waitingChance(o *quell.Observation, own float64) float64 {
	return chanceOf(o) / (1 - math.Min(own, fullestOwn))
}

// crowded compares others' use of the processors with its band. An instance that is known to have neighbours gets fewer requests, so chance
// counts half, or its neighbours would seem to have gone.
func (p *plan) crowded(m *policy.Member) (s sign, found bool) {
	whole := p.facts(m).use
	chance := waitingChance(m.Observation, whole.Own)
	if !memoryOf(m).Since.IsZero() {
		chance /= 2
	}
	use, known := model.ProcessorsOf(m.Observation, chance)
	band := memoryOf(m).Usual.Hidden
	usual, spread := math.Min(band.Mean, usuallyHidden), band.spread(spreadHidden)
	if band.N < bands.Known {
		spread = spreadUnknown
	}
	over := use.Hidden - usual
	if !known || over < math.Max(minHiddenSign, bands.Width*spread) {
		return s, false
	}
	return sign{
		text: fmt.Sprintf("its processors are %.0f%% busy, %.0f%% for others (usually %.0f%%)", 100*whole.Busy(), 100*whole.Hidden, 100*usual),
		own:  whole.Own, hidden: whole.Hidden, resource: quell.CPU, clear: over >= math.Max(clearHiddenSign, bands.FarOut*spread),
	}, true
}

// signalOf returns the logarithm of the cycles for an instruction or, without counters, of the processor time of a request.
func signalOf(o *quell.Observation) (x float64, what string, ok bool) {
	if cpi, counted := o.Counters[quell.CounterCPI]; counted && cpi > 0 {
		return math.Log(cpi), "cycles per instruction", true
	}
	ms, ok := model.PerRequestMS(o)
	return math.Log(ms), "processor time per request", ok && ms > 0
}

// readFacts computes what several steps need, and the same of all instances together.
func (p *plan) readFacts() {
	for _, m := range p.group.Ready {
		f := p.facts(m)
		rate, _ := m.Requests()
		p.rate += rate
		if !m.Fresh {
			continue
		}
		f.use, f.used = model.ProcessorsOf(m.Observation, 0)
		if band := memoryOf(m).Usual.Signal; band.N >= bands.Known {
			if x, _, ok := signalOf(m.Observation); ok {
				f.cost, f.costs = x-band.Mean, true
				p.costs = append(p.costs, f.cost)
			}
		}
	}
	slices.Sort(p.costs)
	for i := range p.slow.List {
		w := &p.slow.List[i]
		p.facts(w.Member).slow = w
	}
}

// costly compares an instance's signal with its band and with those of the other instances: if all need more processor time, the cause is
// the requests.
func (p *plan) costly(m *policy.Member) (s sign, found bool) {
	f := p.facts(m)
	if !f.costs || !f.used {
		return s, false
	}
	_, what, _ := signalOf(m.Observation)
	off := f.cost
	over := off - bands.MedianOfOthers(p.costs, off, true)
	spread := memoryOf(m).Usual.Signal.spread(spreadSignal)
	chance := math.Log(1 + chanceOf(m.Observation))
	if math.Min(off, over) < math.Max(math.Log(minSlower), bands.Width*spread)+chance {
		return s, false
	}
	return sign{
		text: fmt.Sprintf("its %s is %.1f times what it usually is", what, math.Exp(off)),
		own:  f.use.Own, hidden: f.use.Hidden, resource: quell.CPU,
		clear: math.Min(off, over) >= math.Max(math.Log(clearSlower), bands.FarOut*spread)+chance,
	}, true
}

// probed compares the probe times of a resource, less what the own use explains, with their band. The probes of one window are few, so
// their standard error counts as well.
func (p *plan) probed(m *policy.Member, r quell.Resource) (s sign, found bool) {
	ms, ok := model.ProbeAtRest(m.Observation, r)
	band, seen := memoryOf(m).Usual.Probes[r]
	if !ok || !seen || band.N < bands.Known {
		return s, false
	}
	probe, own := m.Observation.Probe[r], m.Observation.Utilization[r]
	chance := chancePerRoot * probe.StddevMS / (probe.MeanMS * math.Sqrt(float64(probe.N)))
	over, spread := math.Log(ms)-band.Mean, band.spread(spreadSignal)
	if over < math.Max(math.Log(minSlower), bands.Width*spread)+chance {
		return s, false
	}
	return sign{
		text:     fmt.Sprintf("probes of its %s take %.1f times as long as usual at this load", r, math.Exp(over)),
		resource: r, own: own, hidden: (1 - math.Min(own, 1)) * (1 - math.Exp(-over)),
		clear: over >= math.Max(math.Log(clearSlower), bands.FarOut*spread)+chance,
	}, true
}

// slower says whether response times are out of their band, as the policy outlier judges them. Failed requests are no sign of neighbours.
func (p *plan) slower(m *policy.Member) (s sign, found bool) {
	w := p.facts(m).slow
	if w == nil || w.Slow == "" {
		return s, false
	}
	return sign{text: w.Slow, clear: w.SlowSure, left: w.Keeps()}, true
}

// learn adds a window without signs to what an instance usually shows. A use by others that alone would be a sign counts as the least that
// is none: two such windows, for example while the instance starts, would make the band so wide that no neighbour leaves it.
func (u *usual) learn(m *policy.Member, f *facts) {
	o := m.Observation
	if use, ok := model.ProcessorsOf(o, waitingChance(o, f.use.Own)); ok {
		u.Hidden = u.Hidden.with(math.Min(use.Hidden, u.Hidden.Mean+minHiddenSign))
	}
	if f.used {
		u.Busy = u.Busy.with(f.use.Busy())
	}
	if x, _, ok := signalOf(o); ok {
		u.Signal = u.Signal.with(x)
	}
	if ms, ok := medianMS(o); ok {
		u.MS = u.MS.with(ms)
	}
	probes := maps.Clone(u.Probes)
	for r := range o.Probe {
		if ms, ok := model.ProbeAtRest(o, r); ok {
			quell.Put(&probes, r, probes[r].with(math.Log(ms)))
		}
	}
	u.Probes = probes
}

// medianMS returns the median response time of a window, or the mean if there is no median.
func medianMS(o *quell.Observation) (ms float64, ok bool) {
	if ms, ok = o.LatencyMS.Of(quell.P50); ok {
		return ms, true
	}
	return o.LatencyMS.Of(quell.Mean)
}
