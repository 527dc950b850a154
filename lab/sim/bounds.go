package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// Present and Foresight are the names of two further policies that decide with data that nobody can measure. Both know the law of the
// group. Present knows what is true now, and nothing of later; Foresight also knows the next start-up time.
const (
	Present   = "present"
	Foresight = "foresight"
)

// Bounds lists the policies that only a simulator can have.
var Bounds = []string{Clairvoyant, Present, Foresight}

// Bound says whether a name is that of a bound.
func Bound(name string) bool { return slices.Contains(Bounds, name) }

// site is what a bound knows of a machine in a period.
type site struct {
	ready   bool
	seconds [kinds]float64 // how long a request of mean size takes on each resource beside the neighbours, without other requests
	most    [kinds]float64 // requests per second that use what neighbours leave of each resource; +Inf if requests do not use it
	servers [kinds]float64
}

// alone is how long a request of mean size takes without other requests, in seconds.
func (s *site) alone() float64 { return sumOf(s.seconds[:]) }

// saturation is the rate that uses all that neighbours leave of the scarcest resource.
func (s *site) saturation() float64 { return slices.Min(s.most[:]) }

// pool is the law of a group behind a balancer that looks for idle instances; see model.Station.
type pool struct {
	pooling   float64
	ratio     model.RatioCurve
	threshold float64 // seconds
}

// keeps says whether an instance meets the objective without other requests.
func (p *pool) keeps(s *site) bool { return s.alone()*p.ratio.At(1) <= p.threshold }

// carries returns the highest rate, in requests per second, at which all these sites meet the objective, if each has the same use.
func (p *pool) carries(sites []*site) float64 {
	if len(sites) == 0 {
		return 0
	}
	var most, servers [kinds]float64
	slowest := sites[0]
	for _, s := range sites {
		for k := range most {
			most[k] += s.most[k]
			servers[k] += s.servers[k] / float64(len(sites))
		}
		if s.alone() > slowest.alone() {
			slowest = s
		}
	}
	size := math.Pow(float64(len(sites)), p.pooling)
	low, high := 0.0, slices.Min(most[:])
	for range bisections {
		rate, seconds := (low+high)/2, 0.0
		for k, d := range slowest.seconds {
			if d > 0 {
				seconds += d * (1 + model.WaitFactor(servers[k]*size, rate/most[k]))
			}
		}
		if seconds*p.ratio.At(seconds/slowest.alone()) <= p.threshold {
			low = rate
		} else {
			high = rate
		}
	}
	return low
}

// best returns those of the sites that together carry most, and what they carry: a slow site may be worth more outside the group.
func (p *pool) best(sites []*site) (kept []*site, most float64) {
	sorted := slices.Clone(sites)
	slices.SortStableFunc(sorted, func(a, b *site) int { return cmp.Compare(a.alone(), b.alone()) })
	for n := 1; n <= len(sorted); n++ {
		if n < len(sorted) && sorted[n].alone() == sorted[n-1].alone() {
			continue
		}
		if carries := p.carries(sorted[:n]); carries >= most {
			kept, most = sorted[:n], carries
		}
	}
	return kept, most
}

// outlooks is what a bound knows of the coming periods.
type outlooks struct {
	load    []float64 // requests per second, by period
	startup int       // first period in which an instance that is started now can answer requests
	margin  float64   // instances are removed if the others carry this many times the load
	strain  float64   // the group may be loaded up to this share of what it carries
	group   map[string][]site
	free    [][]site // of the next machines, in order
	law     pool
}

// newBound returns an engine that calls know for every decision. Its guard keeps the group within its bounds, and does not check readings.
func newBound(service quell.Service, name string, know func() *outlooks) *policy.Engine {
	service.Guard = quell.Guard{}
	return policy.NewOutside(service, name, func(_ *quell.Snapshot, candidates []policy.Candidate, most int) quell.Plan {
		return decideBound(&service, know(), candidates, most)
	})
}

// decideBound keeps the fewest instances that carry the load of every coming period by the law of the group.
func decideBound(service *quell.Service, know *outlooks, candidates []policy.Candidate, most int) quell.Plan {
	b := &bounded{outlooks: know}
	for i := range candidates {
		m := &candidates[i]
		if _, known := know.group[m.ID]; known && m.Held == nil && (m.State == quell.Ready || m.State == quell.Starting) {
			b.staying = append(b.staying, m)
		}
	}
	var plan quell.Plan
	gone := b.shed(max(1, service.Group.Min))
	add := b.lack(min(max(0, most-len(b.staying)), len(know.free)))
	if change := (quell.GroupChange{Add: add, Remove: gone}); !change.Empty() {
		plan.Group = &change
	}
	if add > 0 {
		plan.Reasons = append(plan.Reasons, quell.Reason{Code: "capacity_short",
			Text: fmt.Sprintf("load up to %.1f requests/s: adding %d", slices.Max(know.load), add)})
	}
	if len(gone) > 0 {
		plan.Reasons = append(plan.Reasons, quell.Reason{Code: "scale_in",
			Text: fmt.Sprintf("the others suffice for up to %.1f requests/s: removing %s", slices.Max(know.load), strings.Join(gone, ", "))})
	}
	b.share()
	return plan
}

// bounded is the state of one decision.
type bounded struct {
	*outlooks
	staying []*policy.Candidate
	added   [][]site
}

// useful lists the sites of a period that are ready and can meet the objective, without those of one instance.
func (b *bounded) useful(period int, without *policy.Candidate) (sites []*site) {
	take := func(s *site) {
		if s.ready && b.law.keeps(s) {
			sites = append(sites, s)
		}
	}
	for _, m := range b.staying {
		if m != without {
			take(&b.group[m.ID][period])
		}
	}
	for _, list := range b.added {
		take(&list[period])
	}
	return sites
}

// suffices says whether the group carries a number of times the load from a period on.
func (b *bounded) suffices(from int, times float64, without *policy.Candidate) bool {
	for period := from; period < len(b.load); period++ {
		if _, carries := b.law.best(b.useful(period, without)); !quell.AtMost(times*b.load[period], b.strain*carries) {
			return false
		}
	}
	return true
}

// shed removes instances that are not needed, those that carry least first.
func (b *bounded) shed(least int) (gone []string) {
	candidates := slices.Clone(b.staying)
	worth := func(m *policy.Candidate) (sum float64) {
		for i := range b.group[m.ID] {
			if s := &b.group[m.ID][i]; s.ready && b.law.keeps(s) {
				sum += s.saturation()
			}
		}
		return sum
	}
	slices.SortStableFunc(candidates, func(a, c *policy.Candidate) int {
		return cmp.Or(cmp.Compare(worth(a), worth(c)), cmp.Compare(age(a), age(c)))
	})
	for _, m := range candidates {
		if len(b.staying) <= least {
			break
		}
		if m.Protected || worth(m) > 0 && !b.suffices(0, b.margin, m) {
			continue
		}
		gone = append(gone, m.ID)
		b.staying = slices.DeleteFunc(b.staying, func(other *policy.Candidate) bool { return other == m })
		m.Share = 0
	}
	return gone
}

// lack is how many instances must be started now.
func (b *bounded) lack(room int) int {
	for len(b.added) < room && !b.suffices(b.startup, 1, nil) {
		b.added = append(b.added, b.free[len(b.added)])
	}
	return len(b.added)
}

// share divides the load among the sites that together carry most, in proportion to what neighbours leave of them.
func (b *bounded) share() {
	b.added = nil
	kept, carries := b.useful(0, nil), 0.0
	if carries = b.strain * b.law.carries(kept); carries < b.load[0] {
		kept, _ = b.law.best(kept)
	}
	sum := 0.0
	for _, m := range b.staying {
		s := &b.group[m.ID][0]
		if m.Share = 0; m.State == quell.Ready && (slices.Contains(kept, s) || len(kept) == 0) {
			m.Share = s.saturation()
		}
		sum += m.Share
	}
	for _, m := range b.staying {
		if sum > 0 {
			m.Share /= sum
		}
	}
}
