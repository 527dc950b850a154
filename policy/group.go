package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// group is a snapshot's instances by what can be done with them.
type group struct {
	members     []member  // all, in the snapshot's order
	ready       []*member // in the same order
	rated       []*member // ready, with utilisation and severity known: their capacity can be told
	unrated     []*member // ready, without
	starting    int       // those that were ordered and are not listed yet among them
	held        int       // taken out by a person: they take up room, and are nobody's to use or to remove
	outstanding int       // starting, or ready without a first severity
	weightless  bool      // no ready instance has a weight yet
	handingOver bool      // the weights in force are another policy's
	rates       []float64 // of exchange: how much of the first resource is used for a unit of each
	load        float64
	due         float64 // what of it those have to carry whose capacity can be told
	loadText    string  // of due
}

// perceive reads the snapshot, with what is remembered of its instances.
func perceive(in *Input, remembered map[string]InstanceState) *group {
	n, k := len(in.Snapshot.Instances), len(in.contended)
	g := &group{members: make([]member, n), ready: make([]*member, 0, n), rated: make([]*member, 0, n)}
	g.starting, g.outstanding = in.Snapshot.Coming, in.Snapshot.Coming
	senses := make([]sense, n*k)
	for i := range g.members {
		m := &g.members[i]
		m.Instance, m.position, m.senses = &in.Snapshot.Instances[i], i, senses[i*k:(i+1)*k]
		m.mem = remembered[m.ID]
		m.protected = in.protected[m.ID]
		m.perceive(in)
	}
	used := g.used(in)
	g.rates = exchange(in, used)
	for i := range g.members {
		m := &g.members[i]
		m.carries(g.rates, used[0] > 0)
		g.place(m)
	}
	g.addArrivals(in)
	fixByHand(g.ready)
	return g
}

// leastPart is the least use of a resource, as a part of that of the first one, by which it is judged: what requests do not want binds
// nobody.
const leastPart = 1e-6

// used sums what the instances that told all use of each of several resources.
func (g *group) used(in *Input) (sum [maxContended]float64) {
	if !in.several() {
		return sum
	}
	for i := range g.members {
		m := &g.members[i]
		if slices.ContainsFunc(m.senses, func(s sense) bool { return !s.hasUse }) {
			continue
		}
		for j := range m.senses {
			sum[j] += m.senses[j].use
		}
	}
	return sum
}

// exchange finds how much of the first resource the service uses for a unit of each: by what instances use at present, or, without any
// load, by what training learned of a request.
func exchange(in *Input, used [maxContended]float64) []float64 {
	rates := make([]float64, len(in.contended))
	for i := range rates {
		switch {
		case i == 0:
			rates[i] = 1
		case used[0] > 0:
			rates[i] = used[0] / math.Max(used[i], leastPart*used[0])
		default:
			rates[i] = trainedRate(&in.contended[0], &in.contended[i])
		}
	}
	return rates
}

// trainedRate is the exchange by what a request took in training; 1 where that is not known.
func trainedRate(first, other *contended) float64 {
	if first.predictor == nil || other.predictor == nil {
		return 1
	}
	a, knowsA := first.predictor.PerRequest()
	b, knowsB := other.predictor.PerRequest()
	if !knowsA || !knowsB {
		return 1
	}
	return a / math.Max(b, leastPart*a)
}

// carries tells what an instance uses, by the first resource, or by the others where that was not told or nobody uses it.
func (m *member) carries(rates []float64, byFirst bool) {
	if first := &m.senses[0]; first.hasUse && (byFirst || len(rates) == 1) {
		m.use, m.hasUse = first.use, true
		return
	}
	for i := range m.senses {
		if s := &m.senses[i]; s.hasUse {
			m.use, m.hasUse = math.Max(m.use, s.use*rates[i]), true
		}
	}
}

// memories is what is to be remembered of the instances.
func (g *group) memories() map[string]InstanceState {
	memories := make(map[string]InstanceState, len(g.members))
	for i := range g.members {
		memories[g.members[i].ID] = g.members[i].mem
	}
	return memories
}

// place sums the load U over the instances that carry some, a stale one with its last reading. An instance that
// never told its severity is waited for, but not beyond the time after which it counts as stale: a machine without
// an agent or a probe must not keep the group from changing for ever. What it carries then is no load of the others.
func (g *group) place(m *member) {
	if m.Held != nil {
		g.held++
		if m.fresh {
			g.load += m.use // what it still carried goes to the others
		}
		return
	}
	switch m.State {
	case quell.Starting:
		if m.Replaces != "" {
			return // the one whose place it is to take still counts
		}
		g.starting++
		g.outstanding++
	case quell.Draining:
		g.load += m.use
	case quell.Ready:
		g.load += m.use
		g.ready = append(g.ready, m)
		if m.rated() {
			g.rated = append(g.rated, m)
			return
		}
		g.unrated = append(g.unrated, m)
		if m.mem.StaleFor == 0 {
			g.outstanding++
		}
	}
}

// addArrivals corrects the load for demand that saturated instances cannot carry, and tells what of it is due to those whose
// capacity is known. Those for which nothing waits any more take their part of it.
func (g *group) addArrivals(in *Input) {
	out, weight := 0, 0.0
	g.due = g.load
	for _, m := range g.unrated {
		if m.mem.StaleFor > 0 {
			g.due -= m.use
			weight += m.weight()
			out++
		}
	}
	g.due = math.Max(0, g.due)
	g.loadText = fmt.Sprintf("load %.3f%s", g.due, in.of(0))
	if offered, ok := in.offered(); ok {
		if part := offered * math.Max(0, 1-weight); part > g.due {
			g.loadText = fmt.Sprintf("load %.3f%s (%.1f requests/s at %.5f; carried %.3f)",
				part, in.of(0), *in.Snapshot.ArrivalRate, offered / *in.Snapshot.ArrivalRate, g.load)
			g.due = part
		}
		g.load = math.Max(g.load, offered)
	}
	if out > 0 {
		g.loadText += fmt.Sprintf(" without that of %d instance(s) of unknown capacity", out)
	}
}

// offered is the load that arrives, where that can be told. Resources of which it is known what a request takes come first.
func (in *Input) offered() (load float64, ok bool) {
	if !in.byCapacity || in.Snapshot.ArrivalRate == nil {
		return 0, false
	}
	perRequest, ok := in.contended[0].predictor.PerRequest()
	return *in.Snapshot.ArrivalRate * perRequest, ok
}

// present begins the plan with the weights in force: as they are where they form a whole, in proportion where an
// instance left, equal where none is known. Where the guard clamped the last plan and that plan is in force, it
// begins with what the policy wanted instead: otherwise a ramp or a step would end where it began. While another policy's
// weights are handed over it begins with equal shares, or with what this policy wanted since: the other one's extremes
// say nothing of what this one would have done.
func (g *group) present(handingOver, begun bool) {
	g.handingOver = handingOver
	applied := g.lastPlanInForce() && (begun || !handingOver)
	g.weightless = true
	var sum float64
	for _, m := range g.ready {
		m.share = m.weight()
		g.weightless = g.weightless && m.share == 0
		if c := m.mem.Clamped; applied && c != nil {
			m.share = c.Wanted
		}
		sum += m.share
	}
	switch {
	case g.weightless || sum == 0 || handingOver && !applied:
		g.equal()
	case !isWhole(sum):
		for _, m := range g.ready {
			m.share /= sum
		}
	}
}

// lastPlanInForce says whether the instances whose weights were clamped have the weights that came out. Balancers
// round weights, so a hundredth is no difference.
func (g *group) lastPlanInForce() bool {
	equal := 1 / float64(len(g.ready))
	return !slices.ContainsFunc(g.ready, func(m *member) bool {
		c := m.mem.Clamped
		return c != nil && math.Abs(m.weight()-c.Planned) > 0.01*math.Max(c.Planned, equal)
	})
}

// arrived says whether the weights in force are those of the plan, as nearly as any balancer rounds them.
func (g *group) arrived() bool {
	equal := 1 / float64(len(g.ready))
	return !slices.ContainsFunc(g.ready, func(m *member) bool {
		return m.stays && math.Abs(m.weight()-m.share) > 0.05*math.Max(m.share, equal)
	})
}

// isWhole says whether weights with this sum are complete.
func isWhole(sum float64) bool { return quell.AtMost(sum, 1) && quell.AtMost(1, sum) }

// equal gives every ready instance the same share.
func (g *group) equal() {
	for _, m := range g.ready {
		m.share = 1 / float64(len(g.ready))
	}
}

// byCapacity sorts the rated instances by capacity, largest first, behind those whose share a person set; of equals the older one is first,
// then the one that comes first in the snapshot. Instances that answer with errors come last: where some can go, they do, rather than be
// left with a load that they must not gain. (An unstable sort is three times as fast for thousands of them.)
func (g *group) byCapacity() []*member {
	sorted := slices.Clone(g.rated)
	slices.SortFunc(sorted, func(a, b *member) int {
		switch {
		case a.fixed != nil && b.fixed == nil:
			return -1
		case b.fixed != nil && a.fixed == nil:
			return 1
		case a.failing && !b.failing:
			return 1
		case b.failing && !a.failing:
			return -1
		}
		if c := cmp.Compare(b.capacity, a.capacity); c != 0 {
			return c
		}
		if c := cmp.Compare(b.age(), a.age()); c != 0 {
			return c
		}
		return cmp.Compare(a.position, b.position)
	})
	return sorted
}

// addOne asks for one more instance, unless some are coming or the group is full.
func (g *group) addOne(in *Input, plan *quell.Plan, code, why string) {
	switch {
	case g.starting > 0:
		addReason(plan, code, "", "%s: waiting for %d instance(s) that are coming", why, g.starting)
	case in.Service.Group.Fixed:
		addReason(plan, "overload", "", "%s, and the fleet is fixed: nothing can be added", why)
	case len(g.ready) >= g.most(in):
		addReason(plan, "overload", "", "%s, and %s", why, g.limit(in))
	default:
		plan.Group = &quell.GroupChange{Add: 1}
		addReason(plan, code, "", "%s: adding 1", why)
	}
}

// most is how many instances may be in rotation or on their way there: held ones take up room.
func (g *group) most(in *Input) int { return max(0, in.Service.Group.Max-g.held) }

// limit says in words how large the group may be.
func (g *group) limit(in *Input) string {
	text := fmt.Sprintf("the group may have at most %d instance(s)", in.Service.Group.Max)
	if g.held > 0 {
		text += fmt.Sprintf(", %d of them held", g.held)
	}
	return text
}

// noteHeld says which instances a person took out.
func noteHeld(g *group, plan *quell.Plan) {
	for i := range g.members {
		if m := &g.members[i]; m.Held != nil {
			addReason(plan, "held", m.ID, "%s is held by %s since %s: it gets no requests and counts as no capacity",
				m.ID, m.Held.By, m.Held.Since.UTC().Format(time.DateTime)+" UTC")
		}
	}
}

func addReason(plan *quell.Plan, code, instance, format string, args ...any) {
	plan.Reasons = append(plan.Reasons, quell.Reason{Code: code, Instance: instance, Text: fmt.Sprintf(format, args...)})
}
