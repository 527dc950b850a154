package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quellhq/quell"
)

var primaSpec = spec[PRIMASettings]{
	name: "prima", about: "the fewest instances, and shares by how much load each can carry beside its neighbours",
	scope: ServiceScope, scales: true, needs: allModels,
	defaults: PRIMASettings{
		Senses: defaultSenses(), Headroom: 0.9, ScaleInMargin: 0.05, ScaleOut: quell.Predicted,
		Tolerance: 0.05, Calibrate: 0.1, CalibrationDecay: 0.05,
	},
	keys:     primaKeys,
	agree:    primaAgrees,
	senses:   func(s PRIMASettings) Senses { return s.Senses },
	variants: primaVariants,
	memory:   empty[primaMemory],
	instance: empty[primaInstance],
	decide:   prima,
}

// prima keeps every instance under the response-time threshold with the fewest instances (PRIMA, section III-B3):
// estimate each instance's effective capacity under the interference it feels, compare their sum with the load,
// then scale out, scale in, or shift load.
func prima(in *Input, set PRIMASettings, g *group, st *State) quell.Plan {
	rememberedOf[primaInstance](g)
	p := &primaPlan{in: in, set: set, group: g, mem: remembered[primaMemory](st)}
	p.forgetUsual()
	recalibrated := calibrate(in, set, g, &p.plan)
	for _, m := range g.rated {
		m.rate(in, g.rates)
		m.limit(g.load, set.Headroom)
	}
	p.sorted = g.byCapacity()
	p.capacity = total(p.sorted)
	p.relax()
	p.remember()
	p.needed = p.smallest(p.sorted, 0)
	if p.idle() {
		p.needed = 1
	}
	p.spare = min(set.Spare, max(0, g.most(in)-p.needed))
	switch {
	case len(p.sorted) == 0:
		*p.mem = primaMemory{} // nothing is known yet: the guard keeps the group at its least size
		if len(g.ready) > 0 {
			p.reason("unprobed", "", "no instance has told a severity and a utilisation yet: capacities are unknown, and the group stays as it is")
		}
	case p.needed > len(p.sorted)-p.spare:
		p.scaleOut()
	default:
		p.sufficient(recalibrated)
	}
	return p.plan
}

// primaPlan is one decision in the making.
type primaPlan struct {
	in       *Input
	set      PRIMASettings
	group    *group
	mem      *primaMemory
	sorted   []*member // rated, by capacity
	capacity float64   // of all of them
	needed   int       // instances that suffice; one more than there are where all do not
	spare    int       // instances kept beyond those that suffice, as far as group.max leaves room
	plan     quell.Plan
}

// smallest returns the smallest K for which the first K capacities, less headroom and margin, carry the load.
// Sufficient means >=. It returns len(members)+1 if all together do not.
func (p *primaPlan) smallest(members []*member, margin float64) int {
	usable := p.set.Headroom * (1 - margin)
	var sum float64
	for i, m := range members {
		sum += m.counted
		if quell.AtMost(p.group.due, usable*sum) {
			return i + 1
		}
	}
	return len(members) + 1
}

// negligible is the load, as a part of what an instance without neighbours can carry, for which one instance is enough whatever it can
// carry: nobody is served better by adding machines for a few requests.
const negligible = 0.01

// idle says whether there is next to no load.
func (p *primaPlan) idle() bool { return p.group.due < negligible*p.fresh() }

const (
	// mostRelaxed is how far relax raises the threshold, as a multiple of the objective.
	mostRelaxed = 64
	// nearlyAll is how much of what its neighbours leave an instance may be sent: beyond it a queue grows without end.
	nearlyAll = 0.95
)

// relax sets what each instance would carry at a threshold. That is the objective, or the least higher one at which shares in
// proportion to it send no instance more than its neighbours leave. Under overload few instances may still meet the objective.
// Shares in proportion to capacity alone would send them nearly everything: they would drown while others have room.
func (p *primaPlan) relax() {
	for _, m := range p.sorted {
		m.carry = m.capacity
	}
	if p.capacity == 0 || !p.drowns(1) {
		return
	}
	low, high := 0.0, math.Log(mostRelaxed)
	for range 10 {
		mid := (low + high) / 2
		if p.drowns(math.Exp(mid)) {
			low = mid
		} else {
			high = mid
		}
	}
	p.drowns(math.Exp(high))
}

// drowns sets what each instance carries at a multiple of the objective, and says whether shares in proportion to it send some
// instance more of the load than its neighbours leave.
func (p *primaPlan) drowns(factor float64) bool {
	threshold, load := factor*p.in.Service.SLO.ThresholdMS(), p.group.due
	var sum float64
	for _, m := range p.sorted {
		if m.fixed != nil {
			load -= *m.fixed * p.group.load
			continue
		}
		if factor > 1 {
			m.carry = math.Max(m.capacity, m.carriesAt(p.in, p.group.rates, threshold))
		}
		sum += m.carry
	}
	for _, m := range p.sorted {
		if m.fixed == nil && !quell.AtMost(load*m.carry/sum, nearlyAll*m.left) {
			return true
		}
	}
	return false
}

func total(members []*member) float64 {
	var sum float64
	for _, m := range members {
		sum += m.capacity
	}
	return sum
}

// countable sums as much of the capacities as the instances may be given.
func countable(members []*member) float64 {
	var sum float64
	for _, m := range members {
		sum += m.counted
	}
	return sum
}

// scaleOut handles load above the summed capacities, and spares that are missing: ask for instances, and meanwhile share in
// proportion.
func (p *primaPlan) scaleOut() {
	mem, set := p.mem, p.set
	mem.ScaleIn, mem.Shift = 0, 0
	mem.ScaleOut++
	short, wanted := p.short(), p.wanted()
	room := max(0, p.group.most(p.in)-len(p.group.ready)-p.group.starting)
	helpless, joining := p.helpless(), p.joining()
	overload := min(wanted, p.lacking()-p.group.outstanding) > room
	stuck := overload && room == 0 && p.group.outstanding == 0 && !p.group.weightless
	switch {
	case stuck && mem.ScaleOut > set.Confirm && !joining:
		p.settle(halfway)
	case stuck && mem.ScaleOut > set.Confirm:
		p.settle(1)
	case helpless || joining || mem.ScaleOut > set.Confirm:
		p.share(p.sorted, set.Tolerance)
	}
	if p.futile() {
		return
	}
	if mem.ScaleOut <= set.Confirm {
		p.reason("confirming", "", "%s; waiting for confirmation %d of %d", short, mem.ScaleOut, set.Confirm+1)
		return
	}
	if add := min(wanted, room); add > 0 {
		p.plan.Group = &quell.GroupChange{Add: add}
		p.reason("capacity_short", "", "%s: adding %d", short, add)
	} else if wanted == 0 {
		p.reason("capacity_short", "", "%s: waiting for %d instance(s) that are coming", short, p.group.outstanding)
	}
	switch {
	case !overload || helpless:
	case stuck:
		p.reason("overload", "", "%s, and %s: sharing in proportion to usual capacity", short, p.group.limit(p.in))
	default:
		p.reason("overload", "", "%s, and %s: sharing in proportion to capacity", short, p.group.limit(p.in))
	}
}

// short says what is missing: capacity, or spares only.
func (p *primaPlan) short() string {
	if p.needed <= len(p.sorted) {
		return fmt.Sprintf("%s needs %d instance(s), and with %d spare(s) there should be %d, not %d",
			p.group.loadText, p.needed, p.spare, p.needed+p.spare, len(p.sorted))
	}
	headroom := p.set.Headroom
	return fmt.Sprintf("%s exceeds %.3f, %.0f%% of the capacity of %d instance(s)", p.group.loadText, headroom*countable(p.sorted),
		headroom*100, len(p.sorted))
}

// helpless says that no instance has any capacity, and reports it.
func (p *primaPlan) helpless() bool {
	if p.capacity > 0 {
		return false
	}
	p.reason("overload", "", "no instance can keep the threshold, even without load")
	if p.futile() {
		p.reason("unreachable", "",
			"an instance without neighbours and without load is predicted to take %.1f ms: no number of instances keeps %.1f ms, so none is added",
			p.in.unloadedMS(), p.in.Service.SLO.ThresholdMS())
	}
	return true
}

// futile says that more instances cannot meet the objective: even a fresh one without load misses it.
func (p *primaPlan) futile() bool { return p.fresh() == 0 }

// fresh is the capacity of an instance without neighbours.
func (p *primaPlan) fresh() float64 { return p.in.freshCapacity(p.group.rates) }

// wanted is how many instances the load and the spares ask for beyond those that are there or coming.
func (p *primaPlan) wanted() int {
	if p.set.ScaleOut == quell.One {
		if p.group.outstanding > 0 {
			return 0
		}
		return 1
	}
	missing := p.needed - len(p.sorted)
	if lacking := p.lacking(); lacking > 0 {
		missing = lacking
	}
	return max(0, missing+p.spare-p.group.outstanding)
}

// lacking is how many fresh instances would carry what all that there are cannot, at most one more than group.max.
func (p *primaPlan) lacking() int {
	if p.needed <= len(p.sorted) {
		return 0
	}
	headroom := p.set.Headroom
	count := 1.0
	if fresh := headroom * p.fresh(); fresh > 0 {
		count = math.Max(1, math.Ceil((p.group.due-headroom*countable(p.sorted))/fresh-quell.SumTolerance))
	}
	return int(math.Min(count, float64(p.in.Service.Group.Max)+1))
}

// sufficient handles load within the summed capacities: drop what is not needed, finish a scale-out, or shift load
// away from an instance above its own capacity.
func (p *primaPlan) sufficient(recalibrated bool) {
	mem, set := p.mem, p.set
	mem.ScaleOut = 0
	if p.helpless() {
		mem.ScaleIn, mem.Shift = 0, 0
		p.share(p.sorted, set.Tolerance)
		return
	}
	surplus := p.surplus()
	mem.ScaleIn = next(mem.ScaleIn, len(surplus) > 0)
	over, by := p.overloaded()
	mem.Shift = next(mem.Shift, over != nil)
	switch {
	case mem.ScaleIn > set.Confirm:
		p.scaleIn(surplus)
	case p.joining():
		p.share(p.sorted, set.Tolerance)
		if p.group.handingOver {
			break
		}
		p.reason("join", "", "a new instance takes its share: %d instances, capacity %.3f for %s", len(p.sorted), p.capacity, p.group.loadText)
	case mem.Shift > set.Confirm || recalibrated && over != nil:
		if recalibrated || over.prima().Usual.N < knownUsual {
			p.share(p.sorted, set.Tolerance)
		} else {
			p.settle(1)
		}
		p.reason("shift", over.ID, "%s: sharing by capacity", over.tooMuch(p.in, by))
	case over != nil:
		p.reason("confirming", over.ID, "%s; waiting for confirmation %d of %d", over.tooMuch(p.in, by), mem.Shift, set.Confirm+1)
	case len(surplus) > 0:
		p.reason("confirming", "", "%d instance(s) could go; waiting for confirmation %d of %d", len(surplus), mem.ScaleIn, set.Confirm+1)
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
	keepers := p.protectedFirst()
	keep := max(p.smallest(keepers, p.set.ScaleInMargin)+p.spare, service.Group.Min)
	if keep >= len(keepers) {
		return nil
	}
	return slices.DeleteFunc(keepers[keep:], func(m *member) bool { return m.protected || m.fixed != nil })
}

// protectedFirst returns the instances by capacity, but first those that stay in any case, so that what they carry counts. One
// that answers with errors is no help.
func (p *primaPlan) protectedFirst() []*member {
	sorted := slices.Clone(p.sorted)
	stays := func(m *member) int {
		if m.fixed != nil || m.protected && !m.failing {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(sorted, func(a, b *member) int { return stays(a) - stays(b) })
	return sorted
}

func (p *primaPlan) scaleIn(surplus []*member) {
	gone := make(map[*member]bool, len(surplus))
	ids := make([]string, len(surplus))
	for i, m := range surplus {
		gone[m], ids[i] = true, m.ID
		m.share = 0
	}
	kept := slices.DeleteFunc(slices.Clone(p.sorted), func(m *member) bool { return gone[m] })
	p.share(kept, 0)
	p.plan.Group = &quell.GroupChange{Remove: ids}
	p.reason("scale_in", "", "%d instance(s) with capacity %.3f suffice for %s: removing %s", len(kept), total(kept), p.group.loadText,
		strings.Join(ids, ", "))
}

// overloaded returns the instance that is furthest above its capacity in some resource, and that resource; nil if there is none. Where a
// person set the share, no shift helps.
func (p *primaPlan) overloaded() (worst *member, by int) {
	most := 0.0
	for _, m := range p.sorted {
		if m.fixed != nil {
			continue
		}
		for i := range m.senses {
			s := &m.senses[i]
			if s.out || quell.AtMost(s.use, s.capacity) {
				continue
			}
			if above := (s.use - s.capacity) * p.group.rates[i]; worst == nil || above > most {
				worst, by, most = m, i, above
			}
		}
	}
	return worst, by
}

// tooMuch says that an instance carries more of a resource than it can.
func (m *member) tooMuch(in *Input, by int) string {
	s := &m.senses[by]
	return fmt.Sprintf("%s carries %.3f%s, more than the %.3f it can within the threshold", m.ID, s.use, in.of(by), s.capacity)
}

// joining says whether an instance that can and may carry load has none yet, or all have another policy's shares.
func (p *primaPlan) joining() bool {
	return p.group.weightless || p.group.handingOver ||
		slices.ContainsFunc(p.sorted, func(m *member) bool { return m.weight() == 0 && m.capacity > 0 && m.mayGain() })
}

// share gives the members weights in proportion to what they carry, equal ones where none carries any. Ready instances without
// a severity keep what they have. Where no weight would move by more than the tolerance, all stay.
func (p *primaPlan) share(members []*member, tolerance float64) {
	shares, rest := proportions(members), p.rest()
	moves := false
	for i, m := range members {
		moves = moves || math.Abs(rest*shares[i]-m.share) > tolerance*m.share
	}
	if !moves {
		return
	}
	for i, m := range members {
		m.share = rest * shares[i]
	}
}

// rest is what ready instances without a severity leave of the traffic.
func (p *primaPlan) rest() float64 {
	rest := 1.0
	for _, m := range p.group.unrated {
		if p.group.weightless {
			m.share = 0
		}
		rest -= m.share
	}
	return math.Max(0, rest)
}

// proportions are each member's part of what all carry, equal ones where none carries any.
func proportions(members []*member) []float64 {
	var sum float64
	for _, m := range members {
		sum += m.carry
	}
	parts := make([]float64, len(members))
	for i, m := range members {
		if parts[i] = 1 / float64(len(members)); sum > 0 {
			parts[i] = m.carry / sum
		}
	}
	return parts
}

func (p *primaPlan) reason(code, instance, format string, args ...any) {
	addReason(&p.plan, code, instance, format, args...)
}
