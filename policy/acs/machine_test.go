package acs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// shared is a small model of a machine whose kernel divides its processors among groups by their weights, within their caps and what they
// want (the water level of weighted fair sharing).
type shared struct {
	cores  float64
	groups []sharer
	noise  float64 // standard deviation of measured waiting, as a fraction
	delay  int     // periods until a cap, which the kernel shows at once, has an effect
	rng    *rand.Rand
	at     time.Time
	coming []map[string]float64 // caps, the next first
	caps   map[string]float64
	asked  map[string]float64 // the last caps
	within string             // the group that the groups lie in
}

// sharer is a group of the model.
type sharer struct {
	id     string
	want   float64 // processors that it would use alone
	weight float64 // of the kernel
	share  float64 // given to acs; 0: none
	lies   float64 // slowdown that it reports; 0: none
	first  bool    // it runs at once, whatever its weight, as a program that hardly runs does
}

// run returns what each group gets.
func (m *shared) run() []float64 {
	got := make([]float64, len(m.groups))
	left, open := m.cores, map[int]bool{}
	for i, g := range m.groups {
		open[i] = g.want > 0
	}
	for {
		weights := 0.0
		for i, is := range open {
			if is {
				weights += m.groups[i].weight
			}
		}
		full := false
		for i, g := range m.groups {
			limit := g.want
			if processors, ok := m.caps[g.id]; ok {
				limit = min(limit, processors)
			}
			if open[i] && (g.first || limit <= left*g.weight/weights) {
				got[i], open[i], full = limit, false, true
				left -= limit
				break
			}
		}
		if !full {
			for i, g := range m.groups {
				if open[i] {
					got[i] = left * g.weight / weights
				}
			}
			return got
		}
	}
}

// step runs one second and returns what is measured of it, and the true slowdowns.
func (m *shared) step() (*quell.Snapshot, []float64) {
	if len(m.coming) > m.delay {
		m.caps, m.coming = m.coming[0], m.coming[1:]
	}
	got, slowdowns := m.run(), make([]float64, len(m.groups))
	m.at = m.at.Add(time.Second)
	s := &quell.Snapshot{At: m.at, Host: "h"}
	all := 0.0
	for i, g := range m.groups {
		all += got[i]
		wait := 0.0 // of a task that works and sleeps in turns, or of several that never sleep
		if g.want > 0 {
			wait = max(1, g.want) * (1 - got[i]/g.want)
		}
		if m.noise > 0 {
			wait *= math.Exp(m.noise * m.rng.NormFloat64())
		}
		in := quell.Instance{ID: g.id, State: quell.Ready, Within: m.within, Observation: &quell.Observation{At: m.at, WindowS: 1,
			Sched: &quell.Sched{RunS: got[i], WaitS: &wait}}}
		if g.share > 0 {
			in.Share = &g.share
		}
		if g.lies > 0 {
			in.Observation.Slowdown = &g.lies
		}
		if quota, ok := m.asked[g.id]; ok {
			in.Limits = map[quell.Resource]float64{quell.CPU: quota}
		}
		s.Instances = append(s.Instances, in)
		slowdowns[i] = 1
		if g.want > 0 {
			slowdowns[i] = min(g.want, m.cores) / max(got[i], 1e-9)
		}
	}
	s.Machine = &quell.Observation{At: m.at, WindowS: 1, CPU: &quell.CPUTime{User: all / m.cores},
		Sched: &quell.Sched{Cores: m.cores, RunS: all}}
	return s, slowdowns
}

func (m *shared) apply(p quell.Plan) {
	caps := map[string]float64{}
	for _, l := range p.Limits {
		if l.Unit != quell.WeightUnit {
			caps[l.Instance] = l.Value
			continue
		}
		for i := range m.groups {
			if m.groups[i].id == l.Instance {
				m.groups[i].weight = l.Value
			}
		}
	}
	m.coming, m.asked = append(m.coming, caps), caps
}

func machineOf(cores float64, groups ...sharer) *shared {
	for i := range groups {
		groups[i].id = fmt.Sprintf("g%d", i)
		if groups[i].weight == 0 {
			groups[i].weight = 1
		}
	}
	return &shared{cores: cores, groups: groups, rng: rand.New(rand.NewPCG(1, 1)), at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// acsEngine runs acs by caps, with the other settings at their defaults. change may change all of them.
func acsEngine(t interface{ Fatal(...any) }, change func(*Settings)) *policy.HostEngine {
	set := Spec.Defaults
	set.By = Caps
	if change != nil {
		change(&set)
	}
	e, err := all.NewHostEngine(quell.Policy{Name: Spec.Name, Settings: set})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func byWeights(s *Settings) { s.By = Weights }

// play runs a machine under acs, and calls see after each period with the true slowdowns of the period.
func (m *shared) play(e *policy.HostEngine, st policy.State, periods int,
	see func(period int, slowdowns []float64, p quell.Plan)) policy.State {
	for i := range periods {
		s, slowdowns := m.step()
		var p quell.Plan
		p, st = e.Decide(s, st)
		m.apply(p)
		if see != nil {
			see(i+1, slowdowns, p)
		}
	}
	return st
}

func unfairness(levels []float64) float64 {
	least, most := math.Inf(1), 0.0
	for _, l := range levels {
		least, most = min(least, l), max(most, l)
	}
	return most / least
}
