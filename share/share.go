// Package share divides the use of machines among the services that run on them. An agent measures what a whole machine uses. Each
// service's balancer counts that service's requests. From both, a regression finds what one request of each service costs, and with that
// what the requests of the other services use of a machine. Pure.
package share

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// lasting is how many periods a service's rate counts if no new one arrives.
const lasting = 3

// Ledger is what is known of services that share machines. The zero value knows nothing.
type Ledger struct {
	laws     map[kind]*law
	machines map[string]*machine // by id of the instance
}

// kind is a kind of machine and one of its resources: there a request costs the same.
type kind struct {
	Type     string
	Resource quell.Resource
}

// machine is what was reported of one machine.
type machine struct {
	rates  map[string]rate            // by service
	window map[string]float64         // requests per second of the services that have reported in this period
	use    map[quell.Resource]float64 // in this period
}

// rate is how many requests per second a service had on a machine.
type rate struct {
	perS  float64
	until time.Time // it does not count afterwards
}

// Enter notes a snapshot of one service, and sets Observation.Others of its instances: what the requests of other services explain of their
// use, at most all of it. An instance is a machine: services that list the same id share it.
func (l *Ledger) Enter(s *quell.Snapshot) {
	if l.laws == nil {
		l.laws, l.machines = map[kind]*law{}, map[string]*machine{}
	}
	for i := range s.Instances {
		in := &s.Instances[i]
		m := l.machines[in.ID]
		if m == nil {
			m = &machine{rates: map[string]rate{}, window: map[string]float64{}}
			l.machines[in.ID] = m
		}
		if in.Observation == nil {
			continue
		}
		if _, again := m.window[s.Service]; again {
			m.teach(l, s.At, in)
		}
		m.note(s, in.Observation)
		in.Observation.Others = m.others(l, s.Service, in)
	}
	l.forgetGone(s.At)
}

// note keeps the rate of a service's requests. A service without a rate has none until it reports one again.
func (m *machine) note(s *quell.Snapshot, o *quell.Observation) {
	if o.RequestRate != nil && o.WindowS > 0 {
		perS := *o.RequestRate
		if o.LatencyMS != nil { // requests that began before may still be answered
			perS = math.Max(perS, float64(o.LatencyMS.N)/o.WindowS)
		}
		period := time.Duration(o.WindowS * float64(time.Second))
		m.rates[s.Service] = rate{perS: perS, until: o.At.Add(lasting * period)}
		m.window[s.Service], m.use = perS, o.Utilization
	}
	maps.DeleteFunc(m.rates, func(_ string, r rate) bool { return s.At.After(r.until) })
}

// teach adds the machine's use in the period that has ended to what is known, if several services have all reported their rates in it.
func (m *machine) teach(l *Ledger, at time.Time, in *quell.Instance) {
	if len(m.window) > 1 && len(m.window) == len(m.rates) {
		for r, use := range m.use {
			k := kind{in.Type, r}
			if l.laws[k] == nil {
				l.laws[k] = &law{}
			}
			l.laws[k].learn(m.window, use, at, in.Observation.WindowS)
		}
	}
	clear(m.window)
}

// others returns what the other services' requests use of a machine, by resource; nil if there is none.
func (m *machine) others(l *Ledger, service string, in *quell.Instance) map[quell.Resource]float64 {
	var uses map[quell.Resource]float64
	for r, use := range in.Observation.Utilization {
		known := l.laws[kind{in.Type, r}]
		if known == nil {
			continue
		}
		explained, others := known.explain(m.rates, service)
		if explained > use && explained > 0 { // this machine is faster than others of its kind
			others = min(use, others*use/explained)
		}
		if others > 0 {
			quell.Put(&uses, r, others)
		}
	}
	return uses
}

// forgetGone drops machines of which no service reports any more.
func (l *Ledger) forgetGone(now time.Time) {
	maps.DeleteFunc(l.machines, func(_ string, m *machine) bool {
		return !slices.ContainsFunc(slices.Collect(maps.Values(m.rates)), func(r rate) bool { return !now.After(r.until) })
	})
}
