package rivals

import (
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/setting"
)

// CSWRRSettings are the settings of cswrr.
type CSWRRSettings struct {
	Resource  quell.Resource // whose utilisation counts
	Blackout  time.Duration  // an instance must have reported for this long before its weight counts
	Expiry    time.Duration  // a weight without a newer report for this long no longer counts
	Penalty   float64        // utilisation that is added for each failed request per request
	Tolerance float64        // no weight changes by less than this fraction of itself
}

var CSWRR = policy.Spec[CSWRRSettings]{
	Name: "cswrr", About: "weight = request rate over utilisation, like the client-side weighted round robin of gRPC and Envoy",
	Scope: policy.ServiceScope,
	Defaults: CSWRRSettings{
		Resource: quell.Network, Blackout: 10 * time.Second, Expiry: 3 * time.Minute, Penalty: 1, Tolerance: 0.05,
	},
	Keys: func(s *CSWRRSettings) setting.Table {
		return setting.Table{
			policy.ResourceKey(&s.Resource),
			setting.Opt("blackout", setting.Duration(&s.Blackout).Between(0, time.Hour),
				"an instance must have reported for this long before its weight counts"),
			setting.Opt("expiry", setting.Duration(&s.Expiry).Between(time.Second, 24*time.Hour),
				"a weight without a newer report for this long no longer counts"),
			setting.Opt("penalty", setting.Decimal(&s.Penalty).Between(0, 100),
				"added to the utilisation, times the share of requests that fail"),
			policy.ToleranceKey(&s.Tolerance),
		}
	},
	Senses:   func(s CSWRRSettings) policy.Senses { return policy.Sensing(s.Resource) },
	Instance: policy.Empty[cswrrInstance],
	Decide:   cswrr,
}

// cswrrInstance is what cswrr remembers of an instance.
type cswrrInstance struct {
	Since  time.Time `json:"since,omitzero"` // first report of the present series; zero: there is none
	At     time.Time `json:"at,omitzero"`    // last report
	Weight float64   `json:"weight,omitempty"`
}

func cswrrOf(m *policy.Member) *cswrrInstance { return policy.MemoryOf[cswrrInstance](m) }

// cswrr is the weighted_round_robin policy of gRPC (proposal A58), which Envoy has as client-side weighted round robin: an instance's
// weight is its request rate divided by its utilisation, which failed requests increase. Instances whose weight does not count get the mean
// of the others. It does not scale the group.
func cswrr(in *policy.Input, set CSWRRSettings, g *policy.Group, _ *policy.State) quell.Plan {
	policy.RememberedOf[cswrrInstance](g)
	var plan quell.Plan
	for i := range g.Members {
		weigh(&g.Members[i], set)
	}
	shares := byReports(g, in.Snapshot.At, set)
	shift(g, &plan, shares, set.Tolerance, "shares in proportion to request rate over utilisation")
	return plan
}

// leastUse is the utilisation below which an instance counts as having none: a rate over it would be a weight without bound.
const leastUse = 1e-6

// weigh takes an instance's newest report, unless it has no requests or no utilisation. An instance that is not ready begins again.
func weigh(m *policy.Member, set CSWRRSettings) {
	mem := cswrrOf(m)
	if m.State != quell.Ready {
		*mem = cswrrInstance{}
		return
	}
	o := m.Observation
	if !m.Fresh || !o.At.After(mem.At) || !m.HasUse || m.Use < leastUse || o.RequestRate == nil || *o.RequestRate <= 0 {
		return
	}
	use := m.Use
	if o.ErrorRate != nil {
		use += *o.ErrorRate * set.Penalty
	}
	if mem.Since.IsZero() {
		mem.Since = o.At
	}
	mem.At, mem.Weight = o.At, *o.RequestRate/use
}

// counts returns the weight, or 0 if it does not count now.
func (mem *cswrrInstance) counts(now time.Time, set CSWRRSettings) float64 {
	if now.Sub(mem.At) >= set.Expiry {
		mem.Since = time.Time{}
	}
	if mem.Since.IsZero() || now.Sub(mem.Since) < set.Blackout {
		return 0
	}
	return mem.Weight
}

// byReports returns the shares of the ready instances: equal ones if the weights of fewer than two count.
func byReports(g *policy.Group, now time.Time, set CSWRRSettings) []float64 {
	shares, sum, known := make([]float64, len(g.Ready)), 0.0, 0
	for i, m := range g.Ready {
		if shares[i] = cswrrOf(m).counts(now, set); shares[i] > 0 {
			sum += shares[i]
			known++
		}
	}
	n := float64(len(g.Ready))
	for i := range shares {
		if known < 2 || shares[i] == 0 {
			shares[i] = 1 / n // which is also the mean of the others
			continue
		}
		shares[i] *= float64(known) / n / sum
	}
	return shares
}
