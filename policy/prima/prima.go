package prima

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/floats"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/divide"
)

var Spec = policy.Spec[Settings]{
	Name: "prima", About: "the fewest instances, and shares by how much load each can carry beside its neighbours",
	Scope: policy.ServiceScope, Scales: true, Needs: policy.AllModels,
	Defaults: Settings{
		Senses: policy.DefaultSenses(), ScaleInMargin: 0.05, ScaleOut: quell.Predicted, Share: divide.Proportional,
		Tolerance: 0.05, Calibrate: 0.1, CalibrationDecay: 0.05, Credits: policy.CreditSettings{Last: time.Hour},
	},
	Keys:     keys,
	Agree:    agrees,
	Senses:   func(s Settings) policy.Senses { return s.Senses },
	Suit:     Settings.suiting,
	Credits:  func(s Settings) policy.CreditSettings { return s.Credits },
	Variants: variants,
	Memory:   policy.Empty[memory],
	Instance: policy.Empty[instance],
	Decide:   decide,
}

// decide keeps every instance under the response-time threshold with the fewest instances (PRIMA, section III-B3). It
// estimates each instance's effective capacity under the present interference, compares the sum with the load, and
// then scales out, scales in, or shifts load.
func decide(in *policy.Input, set Settings, g *policy.Group, st *policy.State) quell.Plan {
	policy.RememberedOf[instance](g)
	set = set.found(in.Service.SLO)
	p := &plan{in: in, set: set, group: g, mem: policy.Remembered[memory](st)}
	p.forgetTypical()
	p.followCredits()
	recalibrated := calibrate(in, set, g, &p.plan)
	if p.margins = set.Margin && knowsMargins(in); p.margins {
		p.set.Headroom = 1
	}
	p.mem.Watch = max(0, p.mem.Watch-1)
	if slices.ContainsFunc(g.Rated, func(m *policy.Member) bool { return m.Fresh }) {
		p.mem.Seen = min(keptFor, p.mem.Seen+1)
	}
	p.station()
	p.followBudget()
	p.followReserve()
	p.freshCapacity = p.fresh()
	for _, m := range g.Rated {
		rateMember(m, in)
	}
	p.followVisits()
	p.sorted = p.bestFirst()
	keepCredited(&set.Credits, p.sorted)
	p.rateAll()
	p.relax()
	p.remember()
	p.left, p.lasts, p.pooled = divideByCredits(&set.Credits, p.sorted, g.Due, g.Load)
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
		p.mem.ScaleOut, p.mem.ScaleIn, p.mem.Shift, p.mem.Calm = 0, 0, 0, 0
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
func (p *plan) followCredits() {
	set := &p.set.Credits
	for i := range p.group.Members {
		m := &p.group.Members[i]
		own := instanceOf(m)
		own.Credits, p.mem.Laws = followCreditsOf(m, set, p.in, own.Credits, p.mem.Laws)
	}
	rates := loadPerUse(p.group)
	for _, m := range p.group.Rated {
		if tracks := instanceOf(m).Credits; len(tracks) > 0 {
			m.Credited = listBuckets(m, set, rates, tracks, p.mem.Laws)
		}
	}
	noteCredits(p.group.Rated, &p.plan)
}

// shareByCredits shares the load so that the credits of all instances last equally long, unless instances are removed.
func (p *plan) shareByCredits() {
	if !p.pooled || p.plan.Group != nil && len(p.plan.Group.Remove) > 0 {
		return
	}
	if p.share(p.sorted, p.set.Tolerance) {
		p.reason(policy.LimitedByCredits, "", "sharing so that the credits of all instances last equally long: %s", lastText(p.left, p.lasts))
	}
}

// plan is the state of one decision.
type plan struct {
	in            *policy.Input
	set           Settings
	group         *policy.Group
	mem           *memory
	sorted        []*policy.Member // rated instances, by capacity
	capacity      float64          // sum of their capacities
	needed        int              // smallest number of instances that carry the load; one more than there are if all of them are not enough
	spare         int              // instances kept in addition to needed, as far as group.max allows
	freshCapacity float64          // of an instance without neighbours
	stations      *stations        // what groups of the instances carry together, if the models describe them as stations; else nil
	margins       bool             // the models' margins leave room for chance, in place of headroom
	plan          quell.Plan

	pooled bool          // the instances have credits, and what they carry is divided by them
	left   time.Duration // how long the credits last
	lasts  bool          // they run out at all
}

// smallest returns the smallest K for which the first K capacities, less headroom and margin, are together at least the
// load. If even the sum of all is less, it returns len(members)+1.
func (p *plan) smallest(members []*policy.Member, margin float64) int {
	usable := p.set.Headroom * (1 - margin)
	if p.stations != nil {
		return p.smallestStation(p.stations, members, usable)
	}
	var sum float64
	for i, m := range members {
		sum += m.Counted
		if quell.AtMost(p.group.Due, usable*sum) {
			return i + 1
		}
	}
	return len(members) + 1
}

// negligible is a load, as a fraction of the capacity of an instance without neighbours. One instance is always enough for less than
// that, because more machines do not help a few requests.
const negligible = 0.01

// idle returns whether there is almost no load.
func (p *plan) idle() bool { return p.group.Due < negligible*p.fresh() }

const (
	// maxRelaxed is how far relax raises the threshold, as a multiple of the objective.
	maxRelaxed = 64
	// nearlyAll is the part of the utilisation left by its neighbours that an instance may be sent. Above it, a queue
	// grows without limit.
	nearlyAll = 0.95
)

// relax sets the utilisation that each instance would carry at some threshold. That is the objective's threshold if shares in
// proportion then send no instance more than its neighbours leave, else the lowest higher threshold for which this holds.
// Reason: under overload only few instances may meet the objective. Shares in proportion to capacity alone would send these
// few nearly all requests and overload them, although others have room. If the group may not grow, it is the lowest threshold at which
// the group carries the load: then all instances are as slow as each other, and the slowest is as fast as it can be.
func (p *plan) relax() {
	for _, m := range p.sorted {
		m.Carry = m.Capacity
	}
	if p.capacity == 0 && !evensOut(p) || !p.exceedsCapacity(1) {
		return
	}
	low, high := 0.0, math.Log(maxRelaxed)
	for range 10 {
		mid := (low + high) / 2
		if p.exceedsCapacity(math.Exp(mid)) {
			low = mid
		} else {
			high = mid
		}
	}
	p.exceedsCapacity(math.Exp(high))
}

// exceedsCapacity sets the utilisation that each instance carries at the objective's threshold times factor, and returns whether
// shares in proportion to it send some instance more load than its neighbours leave.
func (p *plan) exceedsCapacity(factor float64) bool {
	threshold, load := factor*p.in.Service.SLO.ThresholdMS(), p.group.Due
	var sum float64
	for _, m := range p.sorted {
		if m.Fixed != nil {
			load -= *m.Fixed * p.group.Load
			continue
		}
		if factor > 1 {
			m.Carry = math.Max(m.Capacity, p.carriesAt(m, threshold))
		}
		sum += m.Carry
	}
	if (p.stations != nil || evensOut(p)) && !quell.AtMost(load, sum) {
		return true // not yet what the group keeps together
	}
	return slices.ContainsFunc(p.sorted, func(m *policy.Member) bool {
		return m.Fixed == nil && !quell.AtMost(load*m.Carry/sum, nearlyAll*m.Left)
	})
}

func total(members []*policy.Member) float64 {
	var sum float64
	for _, m := range members {
		sum += m.Capacity
	}
	return sum
}

// countable sums, over the instances, the part of its capacity that each may be given.
func countable(members []*policy.Member) float64 {
	var sum float64
	for _, m := range members {
		sum += m.Counted
	}
	return sum
}

// scaleOut is called if the load exceeds the summed capacities, or if spare instances are missing. It asks for instances, and
// divides the load in proportion to capacity until they are ready.
func (p *plan) scaleOut() {
	mem, set := p.mem, p.set
	mem.ScaleIn, mem.Shift, mem.Calm = 0, 0, 0
	mem.ScaleOut++
	if slices.ContainsFunc(p.sorted, clearlySuffers) {
		mem.ScaleOut = max(mem.ScaleOut, set.Confirm+1)
	}
	short, wanted := p.short(), p.wanted()
	room := max(0, p.group.MaxSize(p.in)-len(p.group.Ready)-p.group.Starting)
	helpless, joining := p.noCapacity(), p.joining()
	overload := min(wanted, p.lacking()-p.group.Outstanding) > room
	stuck := overload && room == 0 && p.group.Outstanding == 0 && !p.group.Weightless
	carried := carriesWithoutReserve(p)
	if p.stations != nil && !p.group.Weightless {
		shareWithNewcomers(p)
	}
	switch {
	case p.pooled: // shareByCredits divides the load
	case stuck && carried:
		p.share(p.sorted, set.Tolerance)
	case stuck && mem.ScaleOut > set.Confirm && !joining:
		p.shareByTypical(halfway)
	case stuck && mem.ScaleOut > set.Confirm:
		p.shareByTypical(1)
	case helpless || joining || mem.ScaleOut > set.Confirm:
		p.share(p.sorted, set.Tolerance)
	}
	if helpless && p.unreachable() || !helpless && tellUnreachable(p) {
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
		p.reason("capacity_short", "", "%s: waiting for %d instance(s) that are coming", short, p.group.Outstanding)
	}
	switch {
	case !overload || helpless:
	case stuck && !carried:
		p.reason("overload", "", "%s, and %s: sharing by usual capacity", short, p.group.Limit(p.in))
	default:
		p.reason("overload", "", "%s, and %s: sharing by capacity", short, p.group.Limit(p.in))
	}
}

// evensOut returns whether an overload is shared so that all instances are about as slow: none may be added, and idle ones get no more.
func evensOut(p *plan) bool {
	return p.group.MaxSize(p.in) <= len(p.group.Ready)+p.group.Starting && !p.in.IdleFirst
}

// carriesWithoutReserve returns whether a group that is a station carries the load if nothing stays in reserve. Then each instance has
// the share that it can carry now: only where capacities are near 0 are they smaller than the noise of severity.
func carriesWithoutReserve(p *plan) bool {
	return p.stations != nil && quell.AtMost(p.group.Due, countable(p.sorted))
}

// short describes what is missing: capacity, or only spares.
func (p *plan) short() string {
	if p.needed <= len(p.sorted) {
		return fmt.Sprintf("%s needs %d instance(s), and with %d spare(s) there should be %d, not %d",
			p.group.LoadText, p.needed, p.spare, p.needed+p.spare, len(p.sorted))
	}
	headroom, room, less := p.set.Headroom, countable(p.sorted), ""
	if p.stations != nil {
		kept := p.stations.reserve(p.sorted, p.group.Rates)
		room, less = room-kept, fmt.Sprintf(", less %.3f for neighbours that may come", kept)
	}
	return fmt.Sprintf("%s exceeds %.3f, %.0f%% of the capacity of %d instance(s)%s", p.group.LoadText, headroom*room, headroom*100,
		len(p.sorted), less)
}

// noCapacity returns whether no instance has any capacity. In that case it adds a reason to the plan.
func (p *plan) noCapacity() bool {
	if p.capacity > 0 {
		return false
	}
	p.reason("overload", "", "no instance can keep the threshold, even without load")
	tellUnreachable(p)
	return true
}

// unreachable returns whether more instances cannot meet the objective, because even a new one without load misses it.
func (p *plan) unreachable() bool {
	if p.stations != nil {
		return p.freshCapacity == 0
	}
	return capacityOfFresh(p.in, p.group.Rates) == 0
}

func tellUnreachable(p *plan) bool {
	if !p.unreachable() {
		return false
	}
	p.reason("unreachable", "",
		"an instance without neighbours and without load is predicted to take %.1f ms: no number of instances keeps %.1f ms, so none is added",
		unloadedMS(p.in), p.in.Service.SLO.ThresholdMS())
	return true
}

// wanted returns how many instances the load and the spares need in addition to those that exist or are starting.
func (p *plan) wanted() int {
	if p.set.ScaleOut == quell.One {
		if p.group.Outstanding > 0 {
			return 0
		}
		return 1
	}
	missing := p.needed - len(p.sorted)
	if lacking := p.lacking(); lacking > 0 {
		missing = lacking
	}
	return max(0, missing+p.spare-p.group.Outstanding)
}

// lacking returns how many new instances would carry the missing load, at most one more than group.max.
func (p *plan) lacking() int {
	if p.needed <= len(p.sorted) {
		return 0
	}
	headroom := p.set.Headroom
	if p.stations != nil {
		return p.lackingStation(headroom)
	}
	count := 1.0
	if fresh := headroom * p.fresh(); fresh > 0 {
		count = math.Max(1, math.Ceil((p.group.Due-headroom*countable(p.sorted))/fresh-quell.SumTolerance))
	}
	return int(math.Min(count, float64(p.in.Service.Group.Max)+1))
}

// sufficient is called if the load is within the summed capacities. It removes instances that are not needed, ends scaling
// out, or shifts load away from an instance above its own capacity.
func (p *plan) sufficient(recalibrated bool) {
	mem, set := p.mem, p.set
	mem.ScaleOut = 0
	if p.noCapacity() {
		mem.ScaleIn, mem.Shift = 0, 0
		p.share(p.sorted, set.Tolerance)
		return
	}
	surplus := p.surplus()
	mem.ScaleIn = policy.Consecutive(mem.ScaleIn, len(surplus) > 0)
	over, by := p.overloaded()
	mem.Shift = policy.Consecutive(mem.Shift, over != nil)
	clear := over != nil && clearlySuffers(over)
	if clear {
		mem.Shift = max(mem.Shift, set.Confirm+1)
	}
	switch {
	case mem.ScaleIn > set.Confirm:
		p.scaleIn(surplus)
	case p.joining():
		p.share(p.sorted, set.Tolerance)
		if p.group.HandingOver {
			break
		}
		p.reason("join", "", "a new instance takes its share: %d instances, capacity %.3f for %s", len(p.sorted), p.capacity, p.group.LoadText)
	case mem.Shift > set.Confirm || recalibrated && over != nil:
		if clear || recalibrated || instanceOf(over).Typical.N < policy.KnownMean {
			p.share(p.sorted, set.Tolerance)
		} else {
			p.shareByTypical(1)
		}
		p.reason("shift", over.ID, "%s: sharing by capacity", tooMuch(over, p.in, by))
	case over != nil:
		p.reason("confirming", over.ID, "%s; waiting for confirmation %d of %d", tooMuch(over, p.in, by), mem.Shift, set.Confirm+1)
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
func (p *plan) surplus() []*policy.Member {
	if p.group.Outstanding > 0 {
		return nil
	}
	keepers := p.protectedFirst()
	all, enough := len(keepers), p.fewest(keepers)+p.spare
	surplus := keepers[min(all, max(enough, p.in.Service.Group.Min)):]
	surplus = slices.DeleteFunc(surplus, func(m *policy.Member) bool { return m.Protected || m.Fixed != nil })
	if len(surplus) > 0 && kept(p) {
		surplus = nil
	}
	if len(surplus) < all-enough || p.mem.Watch > 0 && p.needed+p.spare < all {
		p.mem.Reserve.Excess = 0 // the reserve did not size the group
	}
	return surplus
}

// protectedFirst returns the instances in the order in which they are kept: first those that stay in any case, because their
// capacity is there anyway, then the others by capacity. A protected instance with errors is sorted like the others.
func (p *plan) protectedFirst() []*policy.Member {
	stays := func(m *policy.Member) bool { return m.Fixed != nil || m.Protected && !m.Failing }
	first := slices.DeleteFunc(slices.Clone(p.sorted), func(m *policy.Member) bool { return !stays(m) })
	return append(first, slices.DeleteFunc(slices.Clone(p.sorted), stays)...)
}

func (p *plan) scaleIn(surplus []*policy.Member) {
	gone := make(map[*policy.Member]bool, len(surplus))
	ids := make([]string, len(surplus))
	for i, m := range surplus {
		gone[m], ids[i] = true, m.ID
		m.Planned = 0
	}
	kept := slices.DeleteFunc(slices.Clone(p.sorted), func(m *policy.Member) bool { return gone[m] })
	p.rateKept(kept)
	p.divideAmong(kept)
	p.share(kept, 0)
	p.plan.Group, p.mem.Watch = &quell.GroupChange{Remove: ids}, watchedSteps
	p.reason("scale_in", "", "%d instance(s) with capacity %.3f suffice for %s: removing %s", len(kept), total(kept), p.group.LoadText,
		policy.Named(ids))
}

// clearlySuffers returns whether new interference in the resource that limits the instance is so strong that it needs no confirmation.
func clearlySuffers(m *policy.Member) bool { return m.Bound().Clear }

// overloaded returns the instance that exceeds its capacity in some resource by most, and that resource, or nil if there is none. It skips
// instances whose share a person set, because their load cannot be shifted.
func (p *plan) overloaded() (worst *policy.Member, by int) {
	most := 0.0
	for _, m := range p.sorted {
		if m.Fixed != nil || m.Capacity == 0 && m.WeightNow() == 0 { // nothing can be taken from it
			continue
		}
		for i := range m.Senses {
			s := &m.Senses[i]
			if s.Out || quell.AtMost(s.Use, s.Capacity) || p.withinTogether(m, i) {
				continue
			}
			if above := (s.Use - s.Capacity) * m.Rates[i]; worst == nil || above > most {
				worst, by, most = m, i, above
			}
		}
	}
	return worst, by
}

// tooMuch is the text that says that an instance carries more of a resource than it can.
func tooMuch(m *policy.Member, in *policy.Input, by int) string {
	s := &m.Senses[by]
	return fmt.Sprintf("%s carries %.3f%s, more than the %.3f it can within the threshold", m.ID, s.Use, in.Of(by), s.Capacity)
}

// joining returns whether an instance that can carry load has none yet, or the shares in force are another policy's.
func (p *plan) joining() bool {
	return p.group.Weightless || p.group.HandingOver ||
		slices.ContainsFunc(p.sorted, func(m *policy.Member) bool {
			return m.WeightNow() == 0 && m.Uncut > 0 && m.Capacity > 0 && m.MayGain()
		})
}

// share gives the members weights by the utilisation that they can carry, or equal ones if they can carry none.
// Ready instances without a severity keep their weight. If no weight would change by more than the tolerance, all stay, and moved is false.
func (p *plan) share(members []*policy.Member, tolerance float64) (moved bool) {
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
func (p *plan) rest() float64 {
	rest := 1.0
	for _, m := range p.group.Unrated {
		if p.group.Weightless {
			m.Planned = 0
		}
		rest -= m.Planned
	}
	return math.Max(0, rest)
}

// proportions returns each member's part of the total that the members can carry, or equal parts if the total is 0.
func proportions(members []*policy.Member) (parts []float64, total float64) {
	for _, m := range members {
		total += m.Carry
	}
	parts = make([]float64, len(members))
	even := policy.Even(members)
	for i, m := range members {
		if total > 0 {
			parts[i] = m.Carry / total
		} else {
			parts[i] = even(m)
		}
	}
	return parts, total
}

// divide returns each member's part of the load by the rule of the settings. proportional are the members' parts of what they can carry.
// With Tail, the parts are those with the shortest tail of all response times (DIAL, Eq. 2) that send no member more than its part of the
// capacity after headroom. As a queue, a member serves at most the utilisation that its neighbours leave. If the load is more than the
// capacity after headroom, the parts are in proportion to capacity.
func (p *plan) divide(members []*policy.Member, proportional []float64, capacity float64) []float64 {
	load := p.group.Due
	if p.set.Share != divide.Tail || load <= 0 || capacity <= 0 {
		return proportional
	}
	whole := math.Max(p.set.Headroom*capacity, load)
	queues := make([]divide.Queue, len(members))
	for i, m := range members {
		most := proportional[i] * whole
		queues[i] = divide.Queue{Rate: math.Max(m.Left, most), High: most}
	}
	parts := divide.Within(queues, load)
	floats.Scale(1/load, parts)
	return parts
}

func (p *plan) reason(code, instance, format string, args ...any) {
	policy.AddReason(&p.plan, code, instance, format, args...)
}
