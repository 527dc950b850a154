package policy

import (
	"fmt"
	"math"
	"slices"

	"github.com/quellhq/quell"
)

// perceive reads the snapshot, and fills gaps from the memory of its instances.
func perceive(in *Input, remembered map[string]*InstanceState, probed map[string]Probed) *Group {
	n, k := len(in.Snapshot.Instances), len(in.Contended)
	g := &Group{Members: make([]Member, n), Ready: make([]*Member, 0, n), Rated: make([]*Member, 0, n)}
	g.Starting, g.Outstanding = in.Snapshot.Coming, in.Snapshot.Coming
	senses, memories := make([]Sense, n*k), make([]InstanceState, n)
	for i := range g.Members {
		m := &g.Members[i]
		m.Instance, m.Position, m.Senses, m.mem = &in.Snapshot.Instances[i], i, senses[i*k:(i+1)*k], &memories[i]
		mem, known := remembered[m.ID]
		if known {
			*m.mem = *mem
		}
		m.Protected = in.protected[m.ID]
		m.judgeStart(in, known)
		m.perceive(in)
	}
	g.probed = g.doubtProber(in, probed)
	used := g.used(in)
	g.mixed = in.blend(used)
	g.Rates = exchange(in, g.mixed)
	sized := in.sized(g.Rates)
	for i := range g.Members {
		m := &g.Members[i]
		m.Rates = sized.of(m.Type)
	}
	if in.byCapacity {
		g.bySize(in)
	}
	for i := range g.Members {
		m := &g.Members[i]
		m.carries(used[0] > 0)
		g.place(m)
	}
	g.addArrivals(in)
	fixByHand(g.Ready)
	return g
}

// minPart is a fraction of the use of the first resource. If the use of another resource is below it, that resource limits nothing,
// because requests hardly need it.
const minPart = 1e-6

// used sums the use of each resource over the instances that reported every resource.
func (g *Group) used(in *Input) (sum [MaxContended]float64) {
	if !in.Several() {
		return sum
	}
	for i := range g.Members {
		m := &g.Members[i]
		if slices.ContainsFunc(m.Senses, func(s Sense) bool { return !s.hasUse }) {
			continue
		}
		for j := range m.Senses {
			sum[j] += m.Senses[j].Use * in.Contended[j].size(m.Type)
		}
	}
	return sum
}

// MixRequests is how many recent requests the ratio between the uses of two resources is measured over. Requests differ, and a short period
// has few of them. If, for example, one request in three does one disk operation, the number of operations in 200 requests is typically
// off by a tenth, and the lowest of several capacities with it.
const MixRequests = 4000

// latest is the weight of the newest snapshot in recent use if the number of requests is not known.
const latest = 0.1

// blend returns the recent use of several resources: the use in this snapshot plus the earlier use, which fades so that the sum covers
// about MixRequests requests.
func (in *Input) blend(used [MaxContended]float64) [MaxContended]float64 {
	part := latest
	if rate := in.Snapshot.ArrivalRate; rate != nil {
		part = math.Min(1, *rate*in.Service.Sampling.Seconds()/MixRequests)
	}
	for i, c := range in.Contended {
		used[i] += (1 - part) * in.used[c.Resource]
	}
	return used
}

// exchange computes how much of the first resource the service uses per unit of each resource. It uses the instances' recent use or, if
// there is no load, what one request used in training.
func exchange(in *Input, used [MaxContended]float64) []float64 {
	rates := make([]float64, len(in.Contended))
	for i := range rates {
		switch {
		case i == 0:
			rates[i] = 1
		case used[0] > 0:
			rates[i] = used[0] / math.Max(used[i], minPart*used[0])
		default:
			rates[i] = trainedRate(&in.Contended[0], &in.Contended[i])
		}
	}
	return rates
}

// trainedRate returns how much of the resource first is used per unit of other according to the training, or 1 if that is unknown.
func trainedRate(first, other *Contended) float64 {
	if first.Predictor == nil || other.Predictor == nil {
		return 1
	}
	a, knowsA := first.Predictor.PerRequest()
	b, knowsB := other.Predictor.PerRequest()
	if !knowsA || !knowsB {
		return 1
	}
	return a / math.Max(b, minPart*a)
}

// carries sets an instance's load (use) in units of the first resource. If the first resource was not reported or nobody
// uses it, the load is converted from the other resources.
func (m *Member) carries(byFirst bool) {
	if first := &m.Senses[0]; first.hasUse && (byFirst || len(m.Rates) == 1) {
		m.Use, m.HasUse = first.Use*m.Rates[0], true
		return
	}
	for i := range m.Senses {
		if s := &m.Senses[i]; s.hasUse {
			m.Use, m.HasUse = math.Max(m.Use, s.Use*m.Rates[i]), true
		}
	}
}

// uses returns the recent use of each resource, to be remembered. It returns nil if the policy considers only one.
func (g *Group) uses(in *Input) map[quell.Resource]float64 {
	if !in.Several() {
		return nil
	}
	uses := make(map[quell.Resource]float64, len(in.Contended))
	for i, c := range in.Contended {
		uses[c.Resource] = g.mixed[i]
	}
	return uses
}

// memories returns what is remembered of each instance until the next snapshot, by ID.
func (g *Group) memories() map[string]*InstanceState {
	memories := make(map[string]*InstanceState, len(g.Members))
	for i := range g.Members {
		memories[g.Members[i].ID] = g.Members[i].mem
	}
	return memories
}

// place puts an instance into its lists and adds its load to the load U of the group; for a stale instance it uses the last
// reading. It waits for an instance that never reported a severity, but not longer than a reading may be old, because a
// machine without an agent or a probe must not block changes of the group for ever. After that, the other instances are not
// expected to carry that instance's load.
func (g *Group) place(m *Member) {
	if m.Stuck {
		g.stuck++
	}
	if m.Held != nil {
		g.held++
		if m.Fresh {
			g.Load += m.Use // its load goes to the others
		}
		return
	}
	switch m.State {
	case quell.Starting:
		if m.Replaces != "" {
			return // the instance that this one will replace is counted instead
		}
		if m.late > 0 {
			g.late++
			return // it may never come, and must not keep another one from being started
		}
		g.Starting++
		g.Outstanding++
	case quell.Draining:
		g.Load += m.Use
	case quell.Ready:
		g.Load += m.Use
		g.Ready = append(g.Ready, m)
		if m.rated() {
			g.Rated = append(g.Rated, m)
			return
		}
		g.Unrated = append(g.Unrated, m)
		if Awaited(m) {
			g.Outstanding++
		}
	}
}

// Awaited returns whether the first readings of a ready instance are still waited for.
func Awaited(m *Member) bool { return m.State == quell.Ready && !m.rated() && m.mem.StaleFor == 0 }

// addArrivals raises the load by the demand that saturated instances cannot carry, and computes the part of the load that
// the rated instances must carry. Unrated instances for which the policy no longer waits carry their part of it.
func (g *Group) addArrivals(in *Input) {
	out, weight := 0, 0.0
	g.Due = g.Load
	for _, m := range g.Unrated {
		if m.mem.StaleFor > 0 {
			g.Due -= m.Use
			weight += m.WeightNow()
			out++
		}
	}
	g.Due = math.Max(0, g.Due)
	g.LoadText = fmt.Sprintf("load %.3f%s", g.Due, in.Of(0))
	if offered, ok := in.offered(); ok {
		if part := offered * math.Max(0, 1-weight); part > g.Due {
			g.LoadText = fmt.Sprintf("load %.3f%s (%.1f requests/s at %.5f; carried %.3f)",
				part, in.Of(0), *in.Snapshot.ArrivalRate, offered / *in.Snapshot.ArrivalRate, g.Load)
			g.Due = part
		}
		g.Load = math.Max(g.Load, offered)
	}
	if out > 0 {
		g.LoadText += fmt.Sprintf(" without that of %d instance(s) of unknown capacity", out)
	}
}

// offered returns the load that clients offer, if it can be computed. It prefers resources whose use per request is known.
func (in *Input) offered() (load float64, ok bool) {
	if !in.byCapacity || in.Snapshot.ArrivalRate == nil {
		return 0, false
	}
	perRequest, ok := in.Contended[0].Predictor.PerRequest()
	return *in.Snapshot.ArrivalRate * perRequest, ok
}
