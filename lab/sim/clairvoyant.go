package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// Clairvoyant is the name of a policy that decides with data that nobody can measure. It shows how well a policy could do at best. It
// cannot be configured, because only a simulator has the data.
const Clairvoyant = "clairvoyant"

// Truth is what the clairvoyant policy knows: the load and the machines' capacities in the coming sampling periods, until an instance that
// is started now could answer requests.
type Truth struct {
	Load     []float64          // requests per second, by period
	Startup  int                // first period in which an instance that is started now can answer requests
	Machines map[string]Machine // by instance
	Free     []Machine          // machines of the next instances to be started, in order
	Strain   float64            // the machines may be loaded up to this share of their capacity within the objective
}

// Machine knows how much load an instance can carry.
type Machine interface {
	// Within is the highest rate, in requests per second, that the instance can carry throughout a period while the objective's metric is at
	// most ms milliseconds. It is 0 while the instance cannot answer requests. If ms is infinite, it is the rate that saturates the machine.
	Within(period int, ms float64) float64
}

// newClairvoyant returns an engine that calls truth for every decision. Its guard keeps the group within its bounds, but does not check
// readings, because the decision uses none.
func newClairvoyant(service quell.Service, truth func() *Truth) *policy.Engine {
	service.Guard = quell.Guard{}
	return policy.NewOutside(service, Clairvoyant, func(_ *quell.Snapshot, candidates []policy.Candidate, most int) quell.Plan {
		return clairvoyant(&service, truth(), candidates, most)
	})
}

// clairvoyant keeps the fewest instances that can carry the load of every coming period within the threshold, and distributes the load so
// that all answer equally fast.
func clairvoyant(service *quell.Service, truth *Truth, candidates []policy.Candidate, most int) quell.Plan {
	c := newForeseen(service, truth, candidates, most)
	var plan quell.Plan
	gone := c.shed()
	add := c.lack()
	if change := (quell.GroupChange{Add: add, Remove: gone}); !change.Empty() {
		plan.Group = &change
	}
	if add > 0 {
		plan.Reasons = append(plan.Reasons, quell.Reason{Code: "capacity_short",
			Text: fmt.Sprintf("load will be up to %.1f requests/s: adding %d", slices.Max(truth.Load), add)})
	}
	if len(gone) > 0 {
		plan.Reasons = append(plan.Reasons, quell.Reason{Code: "scale_in",
			Text: fmt.Sprintf("the others suffice for up to %.1f requests/s: removing %s", slices.Max(truth.Load), strings.Join(gone, ", "))})
	}
	c.share()
	return plan
}

// foreseen is the state of one decision of the clairvoyant.
type foreseen struct {
	service *quell.Service
	truth   *Truth
	most    int // most instances that may get requests
	staying []*policy.Candidate
	sum     []float64 // capacity of the instances that stay, by period
	of      map[*policy.Candidate][]float64
}

func newForeseen(service *quell.Service, truth *Truth, candidates []policy.Candidate, most int) *foreseen {
	c := &foreseen{service: service, truth: truth, most: most, sum: make([]float64, len(truth.Load)), of: map[*policy.Candidate][]float64{}}
	for i := range candidates {
		m := &candidates[i]
		machine, known := truth.Machines[m.ID]
		if !known || m.Held != nil || m.State != quell.Ready && m.State != quell.Starting {
			continue
		}
		c.staying = append(c.staying, m)
		c.of[m] = c.capacities(machine)
		for period, capacity := range c.of[m] {
			c.sum[period] += capacity
		}
	}
	return c
}

// capacities is what a machine carries within the threshold in each period, times Truth.Strain.
func (c *foreseen) capacities(m Machine) []float64 {
	list := make([]float64, len(c.truth.Load))
	for period := range list {
		list[period] = c.truth.Strain * m.Within(period, c.service.SLO.ThresholdMS())
	}
	return list
}

// shed removes the instances that no period's load needs, beginning with those of least capacity.
func (c *foreseen) shed() (gone []string) {
	candidates := slices.Clone(c.staying)
	slices.SortStableFunc(candidates, func(a, b *policy.Candidate) int {
		return cmp.Or(cmp.Compare(sumOf(c.of[a]), sumOf(c.of[b])), cmp.Compare(age(a), age(b)))
	})
	for _, m := range candidates {
		if len(c.staying) <= max(1, c.service.Group.Min) {
			break
		}
		if m.Protected || !c.dispensable(m) {
			continue
		}
		gone = append(gone, m.ID)
		c.staying = slices.DeleteFunc(c.staying, func(other *policy.Candidate) bool { return other == m })
		for period, capacity := range c.of[m] {
			c.sum[period] -= capacity
		}
		m.Share = 0
	}
	return gone
}

func (c *foreseen) dispensable(m *policy.Candidate) bool {
	for period, capacity := range c.of[m] {
		if capacity > 0 && !quell.AtMost(c.truth.Load[period], c.sum[period]-capacity) {
			return false
		}
	}
	return true
}

// age is in seconds; 0 if it is not known.
func age(c *policy.Candidate) float64 {
	if c.AgeS == nil {
		return 0
	}
	return *c.AgeS
}

func sumOf(list []float64) (sum float64) {
	for _, x := range list {
		sum += x
	}
	return sum
}

// lack is how many instances must be started now. It is 0 if starting more would not help.
func (c *foreseen) lack() (add int) {
	room := min(max(0, c.most-len(c.staying)), len(c.truth.Free))
	for i, machine := range c.truth.Free[:room] {
		if !c.short() {
			break
		}
		for period, capacity := range c.capacities(machine) {
			if capacity > 0 && !quell.AtMost(c.truth.Load[period], c.sum[period]) {
				add = i + 1
			}
			c.sum[period] += capacity
		}
	}
	return add
}

// short says whether the instances that stay are too few in some period in which an instance that is started now could already help.
func (c *foreseen) short() bool {
	for period := c.truth.Startup; period < len(c.sum); period++ {
		if !quell.AtMost(c.truth.Load[period], c.sum[period]) {
			return true
		}
	}
	return false
}

// share sets the shares so that all ready instances answer equally fast in the coming period: it searches for the response time within
// which all together carry exactly the load. Under overload, shares are in proportion to the rates that saturate the machines.
func (c *foreseen) share() {
	ready := slices.DeleteFunc(slices.Clone(c.staying), func(m *policy.Candidate) bool { return m.State != quell.Ready })
	rates := make([]float64, len(ready))
	carried := func(ms float64) (sum float64) {
		for i, m := range ready {
			rates[i] = c.truth.Machines[m.ID].Within(0, ms)
			sum += rates[i]
		}
		return sum
	}
	load := c.truth.Load[0]
	if carried(math.Inf(1)) > load {
		quick, slow := leastMS, mostMS
		for range bisections {
			if middle := math.Sqrt(quick * slow); carried(middle) < load {
				quick = middle
			} else {
				slow = middle
			}
		}
		carried(slow)
	}
	sum := sumOf(rates)
	for i, m := range ready {
		if sum > 0 {
			m.Share = rates[i] / sum
		} else {
			m.Share = 1 / float64(len(ready))
		}
	}
}

// The range of response times in which share searches, and the number of its steps.
const (
	leastMS    = 1e-3
	mostMS     = 1e6
	bisections = 50
)
