package policy

import (
	"fmt"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// member is an instance as a policy sees it: readings in the policy's resource, filled up from memory.
type member struct {
	*quell.Instance
	fresh bool // there is an observation that is not stale

	use    float64 // U_m, the instance's own utilisation
	hasUse bool

	severity    float64 // SF_m, calibration included
	hasSeverity bool

	interfering float64 // U_int
	capacity    float64 // U_m^max
}

func (m *member) weight() float64 {
	if m.Weight == nil {
		return 0
	}
	return *m.Weight
}

func (m *member) age() time.Duration {
	if m.AgeS == nil {
		return 0
	}
	return time.Duration(*m.AgeS * float64(time.Second))
}

// rated says whether enough is known of the instance to tell its capacity.
func (m *member) rated() bool { return m.hasUse && m.hasSeverity }

// group is a snapshot's instances by what can be done with them.
type group struct {
	ready       []*member // in the snapshot's order
	rated       []*member // ready, with utilisation and severity known: their capacity can be told
	unrated     []*member // ready, without
	outstanding int       // starting, or ready without a first severity
	starting    int
	load        float64 // U: summed utilisation, or what the arrivals would use if that is larger
	loadText    string
}

// perceive reads the snapshot, remembers what it says, and fills gaps with the last readings.
func perceive(in Input, st *State) *group {
	s, resource := in.Snapshot, in.Service.Policy.Resource
	g := &group{}
	members := make([]member, len(s.Instances))
	remembered := make(map[string]InstanceState, len(s.Instances))
	g.ready = make([]*member, 0, len(s.Instances))
	g.rated = make([]*member, 0, len(s.Instances))
	for i := range s.Instances {
		m := &members[i]
		m.Instance = &s.Instances[i]
		mem := st.Instances[m.ID]
		m.fresh = isFresh(in, m.Observation)
		if m.fresh {
			remember(in, m, &mem, resource)
		}
		m.recall(&mem)
		mem.count(m, in.Service.Guard)
		remembered[m.ID] = mem
		g.place(m)
	}
	st.Instances = remembered
	g.addArrivals(in)
	return g
}

func isFresh(in Input, o *quell.Observation) bool {
	if o == nil {
		return false
	}
	after := in.Service.Guard.StaleAfter
	return after == 0 || in.Snapshot.At.Sub(o.At) <= time.Duration(after)*in.Service.Sampling
}

// remember stores a fresh observation's utilisation and severity. A severity that is present wins over the probe.
func remember(in Input, m *member, mem *InstanceState, resource quell.Resource) {
	o := m.Observation
	if u, ok := o.Utilization[resource]; ok {
		mem.Utilization = &u
	}
	if sf, ok := o.Severity[resource]; ok {
		mem.Severity, mem.Significant = &sf, sf > 0
		return
	}
	probe, ok := o.Probe[resource]
	if !ok || in.Baseline == nil || mem.Utilization == nil {
		return
	}
	if *mem.Utilization > in.Baseline.MaxUtilization() {
		// What the probe would take alone is not known here, and its own load explains a slow one: the severity
		// stays what it was.
		if mem.Severity == nil {
			mem.Severity = new(float64)
		}
		return
	}
	sf, significant := in.Baseline.Severity(*mem.Utilization, probe, mem.Significant)
	mem.Severity, mem.Significant = &sf, significant
}

func (m *member) recall(mem *InstanceState) {
	if mem.Utilization != nil {
		m.use, m.hasUse = *mem.Utilization, true
	}
	if mem.Severity != nil {
		m.severity, m.hasSeverity = *mem.Severity, true
	}
}

// count keeps the guard's counters of snapshots spent failed and stale.
func (mem *InstanceState) count(m *member, guard quell.Guard) {
	if m.State == quell.Failed {
		mem.FailedFor++
	} else {
		mem.FailedFor = 0
	}
	if m.fresh || m.State != quell.Ready || guard.StaleAfter == 0 {
		mem.StaleFor = 0
	} else {
		mem.StaleFor++
	}
}

func (g *group) place(m *member) {
	switch m.State {
	case quell.Starting:
		g.starting++
		g.outstanding++
	case quell.Draining:
		g.load += m.use
	case quell.Ready:
		g.load += m.use
		g.ready = append(g.ready, m)
		if m.rated() {
			g.rated = append(g.rated, m)
		} else {
			g.unrated = append(g.unrated, m)
			g.outstanding++
		}
	}
}

// addArrivals corrects the load for demand that saturated instances cannot carry.
func (g *group) addArrivals(in Input) {
	g.loadText = fmt.Sprintf("load %.3f", g.load)
	if in.Predictor == nil || in.Snapshot.ArrivalRate == nil {
		return
	}
	perRequest, ok := in.Predictor.PerRequest()
	if !ok {
		return
	}
	if offered := *in.Snapshot.ArrivalRate * perRequest; offered > g.load {
		g.loadText = fmt.Sprintf("load %.3f (%.1f requests/s at %.5f; carried %.3f)", offered, *in.Snapshot.ArrivalRate, perRequest, g.load)
		g.load = offered
	}
}

// byCapacity sorts the rated instances by capacity, largest first; of equals the older one is first.
func (g *group) byCapacity() []*member {
	sorted := slices.Clone(g.rated)
	slices.SortStableFunc(sorted, func(a, b *member) int {
		switch {
		case a.capacity > b.capacity:
			return -1
		case a.capacity < b.capacity:
			return 1
		case a.age() > b.age():
			return -1
		case a.age() < b.age():
			return 1
		}
		return 0
	})
	return sorted
}

// present returns the weights in force over the ready instances: as they are where they form a whole, in
// proportion where an instance left, equal where none is known.
func (g *group) present() map[string]float64 {
	var sum float64
	for _, m := range g.ready {
		sum += m.weight()
	}
	if sum == 0 {
		return g.equal()
	}
	whole := quell.AtMost(sum, 1) && quell.AtMost(1, sum)
	weights := make(map[string]float64, len(g.ready))
	for _, m := range g.ready {
		weights[m.ID] = m.weight()
		if !whole {
			weights[m.ID] /= sum
		}
	}
	return weights
}

func (g *group) equal() map[string]float64 {
	weights := make(map[string]float64, len(g.ready))
	for _, m := range g.ready {
		weights[m.ID] = 1 / float64(len(g.ready))
	}
	return weights
}

// weightless says whether no ready instance has a weight yet.
func (g *group) weightless() bool {
	return !slices.ContainsFunc(g.ready, func(m *member) bool { return m.weight() > 0 })
}
