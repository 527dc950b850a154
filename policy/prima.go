package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// prima keeps every instance under the response-time threshold with the fewest instances (PRIMA, section III-B3):
// estimate each instance's effective capacity under the interference it feels, compare their sum with the load,
// then scale out, scale in, or shift load.
func prima(in Input, g *group, st *State) quell.Plan {
	recalibrated := calibrate(in, g, st)
	for _, m := range g.rated {
		m.rate(in.Predictor, in.Service.SLO.ThresholdMS())
	}
	p := &primaPlan{in: in, group: g, st: st, sorted: g.byCapacity()}
	p.needed = p.smallest(0)
	p.plan.Weights = g.present()
	if p.needed > len(p.sorted)-in.Service.Policy.Spare {
		p.scaleOut()
	} else {
		p.sufficient(recalibrated)
	}
	p.explain()
	return p.plan
}

// rate estimates U_int with the interference model, and the largest own utilisation whose predicted response time
// stays within the threshold while U_int holds (section III-B2, Eq. 2 and 3).
func (m *member) rate(predictor *model.Predictor, thresholdMS float64) {
	m.interfering = predictor.Interfering(m.use, m.severity)
	m.capacity = predictor.Capacity(m.interfering, thresholdMS)
}

// primaPlan is one decision in the making.
type primaPlan struct {
	in     Input
	group  *group
	st     *State
	sorted []*member // rated, by capacity
	needed int       // how many of them suffice for the load; len(sorted)+1 if all do not
	plan   quell.Plan
}

// smallest returns the smallest K for which the first K capacities, less headroom and margin, carry the load.
// Sufficient means >=. It returns len(sorted)+1 if all together do not.
func (p *primaPlan) smallest(margin float64) int {
	usable := p.in.Service.Policy.Headroom * (1 - margin)
	var sum float64
	for k, m := range p.sorted {
		if k > 0 && quell.AtMost(p.group.load, usable*sum) {
			return k
		}
		sum += m.capacity
	}
	if len(p.sorted) > 0 && quell.AtMost(p.group.load, usable*sum) {
		return len(p.sorted)
	}
	return len(p.sorted) + 1
}

func total(members []*member) float64 {
	var sum float64
	for _, m := range members {
		sum += m.capacity
	}
	return sum
}

// scaleOut handles load above the summed capacities: ask for instances, and meanwhile share in proportion.
func (p *primaPlan) scaleOut() {
	st, pol := p.st, p.in.Service.Policy
	st.ScaleIn, st.Shift = 0, 0
	st.ScaleOut++
	if len(p.sorted) == 0 {
		return // nothing is known yet: the guard keeps the group at its least size
	}
	usable := pol.Headroom * total(p.sorted[:max(0, len(p.sorted)-pol.Spare)])
	short := fmt.Sprintf("%s exceeds %.3f, %.0f%% of the capacity of %d instance(s)", p.group.loadText, usable, pol.Headroom*100, max(0, len(p.sorted)-pol.Spare))
	if st.ScaleOut <= pol.Confirm {
		if p.joining() {
			p.share(p.sorted)
		}
		p.reason("confirming", "", "%s; waiting for confirmation %d of %d", short, st.ScaleOut, pol.Confirm+1)
		return
	}
	p.share(p.sorted)
	wanted := p.wanted(p.group.load - usable)
	room := max(0, p.in.Service.Group.Max-len(p.group.ready)-p.group.starting)
	if add := min(wanted, room); add > 0 {
		p.plan.Group = &quell.GroupChange{Add: add}
		p.reason("capacity_short", "", "%s: adding %d", short, add)
	} else if wanted == 0 {
		p.reason("capacity_short", "", "%s: waiting for %d instance(s) that are coming", short, p.group.outstanding)
	}
	if wanted > room || total(p.sorted) == 0 {
		p.reason("overload", "", "%s, and the group may have at most %d instance(s): sharing in proportion to capacity", short, p.in.Service.Group.Max)
	}
}

// wanted is how many instances the shortfall asks for beyond those that are coming.
func (p *primaPlan) wanted(shortfall float64) int {
	if p.in.Service.Policy.ScaleOut == quell.One {
		if p.group.outstanding > 0 {
			return 0
		}
		return 1
	}
	fresh := p.in.Service.Policy.Headroom * p.in.Predictor.FreshCapacity(p.in.Service.SLO.ThresholdMS())
	count := 1.0
	if fresh > 0 {
		count = math.Ceil(shortfall/fresh - quell.SumTolerance)
	}
	count = math.Max(count, 1)
	return max(0, int(math.Min(count, float64(p.in.Service.Group.Max)+1))-p.group.outstanding)
}

// sufficient handles load within the summed capacities: drop what is not needed, finish a scale-out, or shift load
// away from an instance above its own capacity.
func (p *primaPlan) sufficient(recalibrated bool) {
	st, confirm := p.st, p.in.Service.Policy.Confirm
	st.ScaleOut = 0
	if total(p.sorted) == 0 {
		p.share(p.sorted)
		p.reason("overload", "", "no instance can keep the threshold, even without load: equal weights")
		return
	}
	surplus := p.surplus()
	st.ScaleIn = next(st.ScaleIn, len(surplus) > 0)
	over := p.overloaded()
	st.Shift = next(st.Shift, over != nil)
	switch {
	case st.ScaleIn > confirm:
		p.scaleIn(surplus)
	case p.joining():
		p.share(p.sorted)
		p.reason("join", "", "a new instance takes its share: %d instances, capacity %.3f for %s", len(p.sorted), total(p.sorted), p.group.loadText)
	case st.Shift > confirm || recalibrated && over != nil:
		p.share(p.sorted)
		p.reason("shift", over.ID, "%s carries %.3f, more than the %.3f it can within the threshold: sharing by capacity", over.ID, over.use, over.capacity)
	case over != nil:
		p.reason("confirming", over.ID, "%s carries %.3f, more than the %.3f it can within the threshold; waiting for confirmation %d of %d", over.ID, over.use, over.capacity, st.Shift, confirm+1)
	case len(surplus) > 0:
		p.reason("confirming", "", "%d instance(s) could go; waiting for confirmation %d of %d", len(surplus), st.ScaleIn, confirm+1)
	}
}

func next(counter int, holds bool) int {
	if holds {
		return counter + 1
	}
	return 0
}

// surplus returns the instances that the load does not need, least capacity last. Nothing is surplus while
// instances are coming, whose capacity is not known yet.
func (p *primaPlan) surplus() []*member {
	if p.group.outstanding > 0 {
		return nil
	}
	service := p.in.Service
	keep := max(p.smallest(service.Policy.ScaleInMargin)+service.Policy.Spare, service.Group.Min, 1)
	if keep >= len(p.sorted) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.sorted[keep:]), func(m *member) bool {
		return slices.Contains(service.Group.Protected, m.ID)
	})
}

func (p *primaPlan) scaleIn(surplus []*member) {
	gone := make(map[string]bool, len(surplus))
	ids := make([]string, len(surplus))
	for i, m := range surplus {
		gone[m.ID], ids[i] = true, m.ID
	}
	kept := slices.DeleteFunc(slices.Clone(p.sorted), func(m *member) bool { return gone[m.ID] })
	p.share(kept)
	for _, id := range ids {
		delete(p.plan.Weights, id)
	}
	p.plan.Group = &quell.GroupChange{Remove: ids}
	p.reason("scale_in", "", "%d instance(s) with capacity %.3f suffice for %s: removing %s", len(kept), total(kept), p.group.loadText, strings.Join(ids, ", "))
}

// overloaded returns the instance that is furthest above its capacity, or nil.
func (p *primaPlan) overloaded() *member {
	var worst *member
	for _, m := range p.sorted {
		if quell.AtMost(m.use, m.capacity) {
			continue
		}
		if worst == nil || m.use-m.capacity > worst.use-worst.capacity {
			worst = m
		}
	}
	return worst
}

// joining says whether an instance that can carry load has none yet.
func (p *primaPlan) joining() bool {
	return p.group.weightless() || slices.ContainsFunc(p.sorted, func(m *member) bool { return m.weight() == 0 && m.capacity > 0 })
}

// share gives the members weights in proportion to capacity. Ready instances without a severity keep what they
// have. Where no weight would move by more than the tolerance, all stay.
func (p *primaPlan) share(members []*member) {
	weights := make(map[string]float64, len(p.group.ready))
	rest := 1.0
	for _, m := range p.group.unrated {
		weights[m.ID] = m.weight()
		rest -= m.weight()
	}
	sum := total(members)
	for _, m := range members {
		if sum > 0 {
			weights[m.ID] = math.Max(0, rest) * m.capacity / sum
		} else {
			weights[m.ID] = math.Max(0, rest) / float64(len(members))
		}
	}
	if !withinTolerance(p.plan.Weights, weights, p.in.Service.Policy.Tolerance) {
		p.plan.Weights = weights
	}
}

func withinTolerance(old, new map[string]float64, tolerance float64) bool {
	if len(old) != len(new) {
		return false
	}
	for id, w := range new {
		was, ok := old[id]
		if !ok || math.Abs(w-was) > tolerance*was {
			return false
		}
	}
	return true
}

func (p *primaPlan) reason(code, instance, format string, args ...any) {
	addReason(&p.plan, code, instance, format, args...)
}

func addReason(plan *quell.Plan, code, instance, format string, args ...any) {
	plan.Reasons = append(plan.Reasons, quell.Reason{Code: code, Instance: instance, Text: fmt.Sprintf(format, args...)})
}

// explain records what was measured and what is predicted at the load that the plan gives each instance.
func (p *primaPlan) explain() {
	n := len(p.sorted)
	p.plan.Capacity = make(map[string]float64, n)
	p.plan.PredictedMS = make(map[string]float64, n)
	p.plan.PredictedAtCapacityMS = make(map[string]float64, n)
	p.plan.Severity = make(map[string]float64, n)
	for _, m := range p.group.rated {
		p.plan.Capacity[m.ID] = m.capacity
		p.plan.Severity[m.ID] = m.severity
		p.plan.PredictedAtCapacityMS[m.ID] = p.responseAt(m, m.capacity)
		if w, stays := p.plan.Weights[m.ID]; stays {
			p.plan.PredictedMS[m.ID] = p.responseAt(m, math.Min(w*p.group.load, p.in.Predictor.MaxUtilization()))
		}
		if m.severity > 0 {
			p.blame(m)
		}
	}
}

func (p *primaPlan) responseAt(m *member, use float64) float64 {
	predictor := p.in.Predictor
	return predictor.ResponseTime(use, predictor.SeverityAt(use, m.interfering))
}

// blame names the neighbours' part in an instance's state, with the evidence.
func (p *primaPlan) blame(m *member) {
	if p.plan.Cause == nil {
		p.plan.Cause = map[string]quell.Resource{}
	}
	p.plan.Cause[m.ID] = p.in.Service.Policy.Resource
	p.reason("interference", m.ID, "severity %.2f at own use %.3f: neighbours take about %.3f of the %s, so it can carry %.3f within %.0f ms",
		m.severity, m.use, m.interfering, p.in.Service.Policy.Resource, m.capacity, p.in.Service.SLO.ThresholdMS())
}
