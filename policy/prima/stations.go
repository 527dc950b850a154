package prima

import (
	"math"
	"slices"
	"sort"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// With models of the group as a station, capacity is a function of the group: the largest use at which every instance that is kept stays
// within the threshold. PRIMA's rule stays the same: the smallest K whose capacity suffices.

// station prepares the group's capacity if the models describe the group as a station.
func (p *plan) station() {
	if !p.in.Stationed() {
		return
	}
	threshold := p.in.Service.SLO.ThresholdMS()
	for i := range p.in.Contended {
		threshold = math.Min(threshold, p.stationWithin(p.in.Contended[i].Predictor))
	}
	p.stations = newStations(p.in, threshold)
	p.stations.visits, p.stations.late, p.stations.asks = p.mem.Visits, untilReady(p.in), p.mem.Seen >= keptFor
}

// stationWithin returns the response time, in milliseconds, up to which a group may be loaded.
func (p *plan) stationWithin(of *model.Predictor) float64 {
	threshold := p.in.Service.SLO.ThresholdMS()
	if p.margins {
		threshold, _ = of.WithMargin(threshold)
	}
	return threshold
}

// bestFirst returns the rated instances by capacity.
func (p *plan) bestFirst() []*policy.Member {
	if p.stations != nil {
		for _, m := range p.group.Rated {
			p.stations.patient(m)
		}
	}
	avoid(p)
	if p.stations != nil {
		p.stations.capacities(p.group.Rated, 0)
	}
	p.limitAll(p.group.Rated)
	return p.group.ByCapacity()
}

// limitAll sets which part of their capacities the members may be given, and returns the sum.
func (p *plan) limitAll(members []*policy.Member) (counted float64) {
	for _, m := range members {
		m.ByCredits = false
		limitByCredits(m, &p.set.Credits)
		m.Usable = m.Capacity
		p.leaveRoom(m)
		limitMember(m, p.group.Load, p.set.Headroom, p.freshCapacity)
		counted += m.Counted
	}
	return counted
}

// rateAll sets the capacities of the instances as one group. If they do not suffice together although a part of them would carry more,
// because the others are too slow, it sets those of that part, and the others carry nothing.
func (p *plan) rateAll() {
	if p.stations != nil {
		p.rateTogether()
	}
	p.capacity = total(p.sorted)
}

func (p *plan) rateTogether() {
	all := p.carried(p.stations, p.sorted, len(p.sorted))
	if quell.AtMost(p.group.Due, p.set.Headroom*all) {
		return
	}
	best, most := len(p.sorted), all
	for _, k := range sizes(1, len(p.sorted)) {
		if counted := p.carried(p.stations, p.sorted, k); counted > most {
			best, most = k, counted
		}
	}
	p.carried(p.stations, p.sorted, best)
}

// carried sets the capacities of the first k members as a group, and returns how much of them counts. The others carry nothing.
func (p *plan) carried(by *stations, members []*policy.Member, k int) float64 {
	by.capacities(members[:k], 0)
	for _, m := range members[k:] {
		carryNothing(m)
		m.Usable, m.Counted = 0, 0
	}
	return p.limitAll(members[:k])
}

// rateKept sets the capacities of the instances that are kept.
func (p *plan) rateKept(kept []*policy.Member) {
	if p.stations == nil {
		return
	}
	p.carried(p.stations, kept, len(kept))
	for _, m := range kept {
		m.Carry = m.Capacity
	}
}

// sizes lists the sizes of groups that are tried: all small ones, and from fewSizes on in steps of an eighth.
func sizes(least, most int) (list []int) {
	for k := least; k <= most; k += max(1, (k-fewSizes)/8) {
		list = append(list, k)
	}
	if n := len(list); n > 0 && list[n-1] < most {
		list = append(list, most)
	}
	return list
}

const fewSizes = 64

// smallestStation is smallest for a group that is a station; usable is the part of the capacity that may be used.
func (p *plan) smallestStation(by *stations, members []*policy.Member, usable float64) int {
	first := p.minSize(members)
	suffices := func(k int) bool {
		return quell.AtMost(p.group.Due, usable*(p.carried(by, members, k)-by.reserve(members[:k], p.group.Rates)))
	}
	below := first - 1
	for _, k := range sizes(first, len(members)) {
		if suffices(k) {
			for k-below > 1 {
				if mid := (below + k) / 2; suffices(mid) {
					k = mid
				} else {
					below = mid
				}
			}
			return k
		}
		below = k
	}
	return len(members) + 1
}

// minSize returns the number of first members that could carry the load if they were used to the full. Fewer need not be tried.
func (p *plan) minSize(members []*policy.Member) int {
	room := 0.0
	for k, m := range members {
		if room += m.Room(0); m.Fixed != nil || room >= p.group.Due {
			return k + 1
		}
	}
	return len(members) + 1
}

// fewest returns how many of the keepers are enough after a removal. A use beyond what was seen to hold is not assumed, but the group may
// be made smaller by one instance, if its present use was seen to hold. If nothing was seen yet, as with few requests, it may, too: else it
// never would.
func (p *plan) fewest(keepers []*policy.Member) int {
	usable := p.set.Headroom * (1 - p.set.ScaleInMargin)
	if p.stations == nil {
		return p.smallest(keepers, p.set.ScaleInMargin)
	}
	defer p.rateTogether()
	if p.mem.Watch > 0 {
		return len(keepers)
	}
	p.stations.asks = true
	seen := p.smallestStation(p.stations.careful(), keepers, usable)
	unseen := slices.ContainsFunc(p.in.Contended, func(c policy.Contended) bool { return c.Predictor.Station().Held() == 0 })
	if unseen {
		return max(seen, len(keepers)-1)
	}
	if seen < len(keepers) || !p.seenToHold() {
		return seen
	}
	return max(p.smallestStation(p.stations, keepers, usable), len(keepers)-1)
}

// kept returns whether the group keeps its size because it was not seen for long enough, and says so.
func kept(p *plan) bool {
	left := keptFor - p.mem.Seen
	if p.stations == nil || left <= 0 {
		return false
	}
	p.reason("stabilizing", "", "fewer instances would do now; the group keeps its size until it was seen for %d more period(s)", left)
	return true
}

// keptFor is for how many snapshots a group is seen before it is made smaller for the first time: until then neighbours have not shown how
// often they come. At a period of 10 s these are the 5 minutes that autoscalers wait by default.
const keptFor = 30

// watchedSteps is for how many snapshots a group is watched after it was made smaller, before it is made smaller again.
const watchedSteps = 3

// seenToHold returns whether the objective was seen to hold at about the present use of the group.
func (p *plan) seenToHold() bool {
	for i := range p.in.Contended {
		if held := p.in.Contended[i].Predictor.Station().Held(); held < aboutHeld*p.group.Now[i].Use {
			return false
		}
	}
	return true
}

// aboutHeld is which part of the present use must have been seen to hold.
const aboutHeld = 0.9

// lackingStation is lacking for a group that is a station: how many instances without neighbours carry the load with it. If only a reserve
// is short, that is one: a reserve is not urgent, and all of it at once made stormy fleets 5% larger without a gain.
func (p *plan) lackingStation(headroom float64) int {
	defer p.rateTogether()
	able := slices.DeleteFunc(slices.Clone(p.sorted), func(m *policy.Member) bool { return m.Capacity == 0 })
	suffices := func(add int) bool {
		p.stations.capacities(able, add)
		counted := p.limitAll(able) + float64(add)*p.stations.fresh(len(able)+add, p.group.Rates)
		return quell.AtMost(p.group.Due, headroom*counted)
	}
	above, most := 1, p.in.Service.Group.Max+1
	for above < most && !suffices(above) {
		above *= 2
	}
	below := above / 2
	return below + 1 + sort.Search(min(above, most)-below-1, func(k int) bool { return suffices(below + 1 + k) })
}

// withinTogether returns whether an instance is within what it can carry because the others of its station take over what it cannot.
func (p *plan) withinTogether(m *policy.Member, i int) bool {
	if p.stations == nil {
		return false
	}
	station := p.in.Contended[i].Of(m.Type).Predictor.Station()
	var c model.Crowd = m.Sees(i, &p.group.Now, m.Senses[i].Use*m.Rates[i])
	use := station.Pooling()*c.Use + (1-station.Pooling())*c.Own
	return m.Able && use <= p.stations.limit(i, m.Type, max(len(p.sorted), 1), m.Senses[i].Waits)
}

// shareWithNewcomers gives each ready instance that has told nothing yet the share of one without neighbours. Only an overload needs it
// so soon: each period of waiting for its first reading makes the others' queues longer.
func shareWithNewcomers(p *plan) {
	newcomers := slices.DeleteFunc(slices.Clone(p.group.Unrated), func(m *policy.Member) bool {
		return !policy.Awaited(m) || m.Planned > 0 || !m.MayGain()
	})
	n := len(newcomers)
	fresh := p.stations.fresh(len(p.sorted)+n, p.group.Rates)
	if n == 0 || fresh == 0 || !saturated(p) {
		return
	}
	_, carry := proportions(p.sorted)
	share := p.rest() * fresh / (carry + float64(n)*fresh)
	for _, m := range newcomers {
		m.Planned = share
	}
	p.share(p.sorted, 0)
	p.reason("join", "", "%d new instance(s) take a share before their first readings, because the others cannot carry the load", n)
}

// saturated returns whether the load takes nearly all that neighbours leave of the instances.
func saturated(p *plan) bool {
	var left float64
	for _, m := range p.sorted {
		left += m.Left
	}
	return p.group.Due > nearlyAll*left
}
