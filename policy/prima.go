package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/floats"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy/divide"
)

var PRIMA = Spec[PRIMASettings]{
	Name: "prima", About: "the fewest instances, and shares by how much load each can carry beside its neighbours",
	Scope: ServiceScope, Scales: true, Needs: AllModels,
	Defaults: PRIMASettings{
		Senses: DefaultSenses(), ScaleInMargin: 0.05, ScaleOut: quell.Predicted, Share: divide.Proportional,
		Tolerance: 0.05, Calibrate: 0.1, CalibrationDecay: 0.05, Credits: CreditSettings{Last: time.Hour},
	},
	Keys:     primaKeys,
	Agree:    primaAgrees,
	Senses:   func(s PRIMASettings) Senses { return s.Senses },
	Suit:     PRIMASettings.suiting,
	Credits:  func(s PRIMASettings) CreditSettings { return s.Credits },
	Variants: primaVariants,
	Memory:   Empty[primaMemory],
	Instance: Empty[primaInstance],
	Decide:   prima,
}

// prima keeps every instance under the response-time threshold with the fewest instances (PRIMA, section III-B3). It
// estimates each instance's effective capacity under the present interference, compares the sum with the load, and
// then scales out, scales in, or shifts load.
func prima(in *Input, set PRIMASettings, g *Group, st *State) quell.Plan {
	RememberedOf[primaInstance](g)
	set = set.found(in.Service.SLO)
	p := &primaPlan{in: in, set: set, group: g, mem: Remembered[primaMemory](st)}
	p.forgetUsual()
	p.followCredits()
	recalibrated := calibrate(in, set, g, &p.plan)
	if p.margins = set.Margin && in.knowsMargins(); p.margins {
		p.set.Headroom = 1
	}
	p.mem.Watch = max(0, p.mem.Watch-1)
	p.station()
	p.followBudget()
	p.followReserve()
	p.freshCapacity = p.fresh()
	for _, m := range g.rated {
		m.rate(in)
	}
	p.followVisits()
	p.sorted = p.bestFirst()
	keepCredited(&set.Credits, p.sorted)
	p.rateAll()
	p.relax()
	p.remember()
	p.left, p.lasts, p.pooled = divideByCredits(&set.Credits, p.sorted, g.due, g.Load)
	p.needed = p.smallest(p.sorted, 0)
	p.rateAll()
	if p.idle() {
		p.needed = 1
	}
	p.noteRoom()
	p.spare = min(set.Spare, max(0, g.MaxSize(in)-p.needed))
	switch {
	case len(p.sorted) == 0:
		// nothing is known yet: the guard keeps the group at its minimum
		*p.mem = primaMemory{Laws: p.mem.Laws, Visits: p.mem.Visits, Storm: p.mem.Storm, Budget: p.mem.Budget, Reserve: p.mem.Reserve}
		if len(g.Ready) > 0 {
			p.reason("unprobed", "", "no instance has told a severity and a utilisation yet: capacities are unknown, and the group stays as it is")
		}
	case p.needed > len(p.sorted)-p.spare:
		p.scaleOut()
	default:
		p.sufficient(recalibrated)
	}
	p.shareByCredits()
	replaceSpent(in, &set.Credits, g, &p.plan)
	return p.plan
}

// followCredits updates what is known of the instances' credits.
func (p *primaPlan) followCredits() {
	set := &p.set.Credits
	for i := range p.group.Members {
		m := &p.group.Members[i]
		own := m.prima()
		own.Credits, p.mem.Laws = m.followCredits(set, p.in, own.Credits, p.mem.Laws)
	}
	rates := p.group.loadPerUse()
	for _, m := range p.group.rated {
		m.purses = m.listPurses(set, rates, m.prima().Credits, p.mem.Laws)
	}
	noteCredits(p.group.rated, &p.plan)
}

// shareByCredits shares the load so that the credits of all instances last equally long, unless instances are removed.
func (p *primaPlan) shareByCredits() {
	if !p.pooled || p.plan.Group != nil && len(p.plan.Group.Remove) > 0 {
		return
	}
	if p.share(p.sorted, p.set.Tolerance) {
		p.reason(limitedByCredits, "", "sharing so that the credits of all instances last equally long: %s", lastText(p.left, p.lasts))
	}
}

// primaPlan is the state of one decision.
type primaPlan struct {
	in            *Input
	set           PRIMASettings
	group         *Group
	mem           *primaMemory
	sorted        []*Member // rated instances, by capacity
	capacity      float64   // sum of their capacities
	needed        int       // smallest number of instances that carry the load; one more than there are if all of them are not enough
	spare         int       // instances kept in addition to needed, as far as group.max allows
	freshCapacity float64   // of an instance without neighbours
	stations      *stations // what groups of the instances carry together, if the models describe them as stations; else nil
	margins       bool      // the models' margins leave room for chance, in place of headroom
	plan          quell.Plan

	pooled bool          // the instances have credits, and what they carry is divided by them
	left   time.Duration // how long the credits last
	lasts  bool          // they run out at all
}

// smallest returns the smallest K for which the first K capacities, less headroom and margin, are together at least the
// load. If even the sum of all is less, it returns len(members)+1.
func (p *primaPlan) smallest(members []*Member, margin float64) int {
	usable := p.set.Headroom * (1 - margin)
	if p.stations != nil {
		return p.smallestStation(p.stations, members, usable)
	}
	var sum float64
	for i, m := range members {
		sum += m.counted
		if quell.AtMost(p.group.due, usable*sum) {
			return i + 1
		}
	}
	return len(members) + 1
}

// negligible is a load, as a fraction of the capacity of an instance without neighbours. One instance is always enough for less than
// that, because more machines do not help a few requests.
const negligible = 0.01

// idle returns whether there is almost no load.
func (p *primaPlan) idle() bool { return p.group.due < negligible*p.fresh() }

const (
	// mostRelaxed is how far relax raises the threshold, as a multiple of the objective.
	mostRelaxed = 64
	// nearlyAll is the part of the utilisation left by its neighbours that an instance may be sent. Above it, a queue
	// grows without limit.
	nearlyAll = 0.95
)

// relax sets the utilisation that each instance would carry at some threshold. That is the objective's threshold if shares in
// proportion then send no instance more than its neighbours leave, else the lowest higher threshold for which this holds.
// Reason: under overload only few instances may meet the objective. Shares in proportion to capacity alone would send these
// few nearly all requests and overload them, although others have room.
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

// drowns sets the utilisation that each instance carries at the objective's threshold times factor, and returns whether
// shares in proportion to it send some instance more load than its neighbours leave.
func (p *primaPlan) drowns(factor float64) bool {
	threshold, load := factor*p.in.Service.SLO.ThresholdMS(), p.group.due
	var sum float64
	for _, m := range p.sorted {
		if m.Fixed != nil {
			load -= *m.Fixed * p.group.Load
			continue
		}
		if factor > 1 {
			m.carry = math.Max(m.capacity, p.carriesAt(m, threshold))
		}
		sum += m.carry
	}
	if p.stations != nil && !quell.AtMost(load, sum) {
		return true // not yet what the group keeps together
	}
	for _, m := range p.sorted {
		if m.Fixed == nil && !quell.AtMost(load*m.carry/sum, nearlyAll*m.left) {
			return true
		}
	}
	return false
}

func total(members []*Member) float64 {
	var sum float64
	for _, m := range members {
		sum += m.capacity
	}
	return sum
}

// countable sums, over the instances, the part of its capacity that each may be given.
func countable(members []*Member) float64 {
	var sum float64
	for _, m := range members {
		sum += m.counted
	}
	return sum
}

// scaleOut is called if the load exceeds the summed capacities, or if spare instances are missing. It asks for instances, and
// divides the load in proportion to capacity until they are ready.
func (p *primaPlan) scaleOut() {
	mem, set := p.mem, p.set
	mem.ScaleIn, mem.Shift, mem.Calm = 0, 0, 0
	mem.ScaleOut++
	if slices.ContainsFunc(p.sorted, (*Member).clearlySuffers) {
		mem.ScaleOut = max(mem.ScaleOut, set.Confirm+1)
	}
	short, wanted := p.short(), p.wanted()
	room := max(0, p.group.MaxSize(p.in)-len(p.group.Ready)-p.group.Starting)
	helpless, joining := p.helpless(), p.joining()
	overload := min(wanted, p.lacking()-p.group.outstanding) > room
	stuck := overload && room == 0 && p.group.outstanding == 0 && !p.group.Weightless
	switch {
	case p.pooled: // shareByCredits divides the load
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
		p.reason("overload", "", "%s, and %s: sharing in proportion to usual capacity", short, p.group.Limit(p.in))
	default:
		p.reason("overload", "", "%s, and %s: sharing in proportion to capacity", short, p.group.Limit(p.in))
	}
}

// short describes what is missing: capacity, or only spares.
func (p *primaPlan) short() string {
	if p.needed <= len(p.sorted) {
		return fmt.Sprintf("%s needs %d instance(s), and with %d spare(s) there should be %d, not %d",
			p.group.loadText, p.needed, p.spare, p.needed+p.spare, len(p.sorted))
	}
	headroom := p.set.Headroom
	return fmt.Sprintf("%s exceeds %.3f, %.0f%% of the capacity of %d instance(s)", p.group.loadText, headroom*countable(p.sorted),
		headroom*100, len(p.sorted))
}

// helpless returns whether no instance has any capacity. In that case it adds a reason to the plan.
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

// futile returns whether more instances cannot meet the objective, because even a new one without load misses it.
func (p *primaPlan) futile() bool { return p.in.freshCapacity(p.group.Rates) == 0 }

// wanted returns how many instances the load and the spares need in addition to those that exist or are starting.
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

// lacking returns how many new instances would carry the missing load, at most one more than group.max.
func (p *primaPlan) lacking() int {
	if p.needed <= len(p.sorted) {
		return 0
	}
	headroom := p.set.Headroom
	if p.stations != nil {
		return p.lackingStation(headroom)
	}
	count := 1.0
	if fresh := headroom * p.fresh(); fresh > 0 {
		count = math.Max(1, math.Ceil((p.group.due-headroom*countable(p.sorted))/fresh-quell.SumTolerance))
	}
	return int(math.Min(count, float64(p.in.Service.Group.Max)+1))
}

// sufficient is called if the load is within the summed capacities. It removes instances that are not needed, ends scaling
// out, or shifts load away from an instance above its own capacity.
func (p *primaPlan) sufficient(recalibrated bool) {
	mem, set := p.mem, p.set
	mem.ScaleOut = 0
	if p.helpless() {
		mem.ScaleIn, mem.Shift = 0, 0
		p.share(p.sorted, set.Tolerance)
		return
	}
	surplus := p.surplus()
	mem.ScaleIn = Consecutive(mem.ScaleIn, len(surplus) > 0)
	over, by := p.overloaded()
	mem.Shift = Consecutive(mem.Shift, over != nil)
	clear := over != nil && over.clearlySuffers()
	if clear {
		mem.Shift = max(mem.Shift, set.Confirm+1)
	}
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
		if clear || recalibrated || over.prima().Usual.N < knownUsual {
			p.share(p.sorted, set.Tolerance)
		} else {
			p.settle(1)
		}
		p.reason("shift", over.ID, "%s: sharing by capacity", over.tooMuch(p.in, by))
	case over != nil:
		p.reason("confirming", over.ID, "%s; waiting for confirmation %d of %d", over.tooMuch(p.in, by), mem.Shift, set.Confirm+1)
	case len(surplus) > 0:
		p.reason("confirming", "", "%d instance(s) could go; waiting for confirmation %d of %d", len(surplus), mem.ScaleIn, set.Confirm+1)
	default:
		p.comeBack()
		return
	}
	mem.Calm = 0
}

// surplus returns the instances that the load does not need, sorted so that the lowest capacity is last. While instances are
// starting it returns none, because their capacity is unknown.
func (p *primaPlan) surplus() []*Member {
	if p.group.outstanding > 0 {
		return nil
	}
	service := p.in.Service
	keepers := p.protectedFirst()
	keep := max(p.fewest(keepers)+p.spare, service.Group.Min)
	if keep >= len(keepers) {
		return nil
	}
	return slices.DeleteFunc(keepers[keep:], func(m *Member) bool { return m.protected || m.Fixed != nil })
}

// protectedFirst returns the instances in the order in which they are kept: first those that stay in any case, because their
// capacity is there anyway, then the others by capacity. A protected instance with errors is sorted like the others.
func (p *primaPlan) protectedFirst() []*Member {
	sorted := slices.Clone(p.sorted)
	stays := func(m *Member) int {
		if m.Fixed != nil || m.protected && !m.Failing {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(sorted, func(a, b *Member) int { return stays(a) - stays(b) })
	return sorted
}

func (p *primaPlan) scaleIn(surplus []*Member) {
	gone := make(map[*Member]bool, len(surplus))
	ids := make([]string, len(surplus))
	for i, m := range surplus {
		gone[m], ids[i] = true, m.ID
		m.Planned = 0
	}
	kept := slices.DeleteFunc(slices.Clone(p.sorted), func(m *Member) bool { return gone[m] })
	p.rateKept(kept)
	p.divideAmong(kept)
	p.share(kept, 0)
	p.plan.Group, p.mem.Watch = &quell.GroupChange{Remove: ids}, watchedSteps
	p.reason("scale_in", "", "%d instance(s) with capacity %.3f suffice for %s: removing %s", len(kept), total(kept), p.group.loadText,
		strings.Join(ids, ", "))
}

// clearlySuffers returns whether new interference in the resource that limits the instance is so strong that it needs no confirmation.
func (m *Member) clearlySuffers() bool { return m.bound().clear }

// overloaded returns the instance that exceeds its capacity in some resource by most, and that resource, or nil if there is none. It skips
// instances whose share a person set, because their load cannot be shifted.
func (p *primaPlan) overloaded() (worst *Member, by int) {
	most := 0.0
	for _, m := range p.sorted {
		if m.Fixed != nil {
			continue
		}
		for i := range m.Senses {
			s := &m.Senses[i]
			if s.out || quell.AtMost(s.Use, s.capacity) || p.withinTogether(m, i) {
				continue
			}
			if above := (s.Use - s.capacity) * m.rates[i]; worst == nil || above > most {
				worst, by, most = m, i, above
			}
		}
	}
	return worst, by
}

// tooMuch is the text that says that an instance carries more of a resource than it can.
func (m *Member) tooMuch(in *Input, by int) string {
	s := &m.Senses[by]
	return fmt.Sprintf("%s carries %.3f%s, more than the %.3f it can within the threshold", m.ID, s.Use, in.of(by), s.capacity)
}

// joining returns whether an instance that can carry load has none yet, or the shares in force are another policy's.
func (p *primaPlan) joining() bool {
	return p.group.Weightless || p.group.handingOver ||
		slices.ContainsFunc(p.sorted, func(m *Member) bool { return m.WeightNow() == 0 && m.capacity > 0 && m.MayGain() })
}

// share gives the members weights by the utilisation that they can carry, or equal ones if they can carry none.
// Ready instances without a severity keep their weight. If no weight would change by more than the tolerance, all stay, and moved is false.
func (p *primaPlan) share(members []*Member, tolerance float64) (moved bool) {
	proportional, capacity := proportions(members)
	shares, rest := p.divide(members, proportional, capacity), p.rest()
	moves := false
	for i, m := range members {
		moves = moves || math.Abs(rest*shares[i]-m.Planned) > tolerance*m.Planned
	}
	if !moves {
		return false
	}
	for i, m := range members {
		m.Planned = rest * shares[i]
	}
	return true
}

// rest returns the part of the traffic that does not go to ready instances without a severity.
func (p *primaPlan) rest() float64 {
	rest := 1.0
	for _, m := range p.group.unrated {
		if p.group.Weightless {
			m.Planned = 0
		}
		rest -= m.Planned
	}
	return math.Max(0, rest)
}

// proportions returns each member's part of the total that the members can carry, or equal parts if the total is 0.
func proportions(members []*Member) (parts []float64, total float64) {
	for _, m := range members {
		total += m.carry
	}
	parts = make([]float64, len(members))
	for i, m := range members {
		if total > 0 {
			parts[i] = m.carry / total
		} else {
			parts[i] = m.even(members)
		}
	}
	return parts, total
}

// divide returns each member's part of the load by the rule of the settings. proportional are the members' parts of the capacity, which is
// the sum of what they can carry.
//
// With Tail, the parts are those with the shortest tail of all response times (DIAL, Eq. 2) that send no member more than its part of the
// capacity after headroom. As a queue, a member serves at most the utilisation that its neighbours leave. If the load is more than the
// capacity after headroom, the parts are in proportion to capacity.
func (p *primaPlan) divide(members []*Member, proportional []float64, capacity float64) []float64 {
	load := p.group.due
	if p.set.Share != divide.Tail || load <= 0 || capacity <= 0 {
		return proportional
	}
	whole := math.Max(p.set.Headroom*capacity, load)
	queues := make([]divide.Queue, len(members))
	for i, m := range members {
		most := proportional[i] * whole
		queues[i] = divide.Queue{Rate: math.Max(m.left, most), High: most}
	}
	parts := divide.Within(queues, load)
	floats.Scale(1/load, parts)
	return parts
}

func (p *primaPlan) reason(code, instance, format string, args ...any) {
	AddReason(&p.plan, code, instance, format, args...)
}
