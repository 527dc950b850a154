// Package ownwork tells what instances do beside their requests from what requests cost: backups, log rotation, other services.
package ownwork

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

const (
	Least        = 0.1  // least use, as a fraction of the resource, that counts as own work
	Clearly      = 0.25 // use of own work that needs no second window
	OverRequests = 0.3  // how much more than requests explain an instance must use, as a part of what they explain,
	OverSpread   = 3    // and as a multiple of the usual deviation
	Fewest       = 20   // requests that a window must have to tell what one costs

	settled  = 5   // windows from which on a usual cost is known
	longest  = 60  // windows that count in a usual cost at most, so that it follows slow changes
	leastTop = 0.5 // part of own work that the agent must have seen another user of the processors do

	// costGrows is the factor by which the usual cost grows in a window with own work. So dearer requests of one instance alone, which look
	// like own work, are taken for what they are within minutes to hours.
	costGrows = 1.002
)

// Cost is how much of a resource one request per second usually uses on an instance.
type Cost struct {
	Per    float64   `json:"per"`
	Spread float64   `json:"spread,omitempty"` // mean relative deviation of single windows
	N      int       `json:"n,omitempty"`      // windows, up to longest
	Over   int       `json:"over,omitempty"`   // consecutive windows with more use than requests explain
	Own    float64   `json:"own,omitempty"`    // use that requests did not explain in the last window
	Rate   float64   `json:"rate,omitempty"`   // requests per second of the last window
	At     time.Time `json:"at,omitzero"`      // end of the last window
}

// Costs are the costs by instance. What they point to is never changed.
type Costs map[string]ByResource

// ByResource are the costs of an instance; nil: none is known. It is no map, because each decision makes one for each instance.
type ByResource struct {
	CPU     *Cost `json:"cpu,omitempty"`
	Disk    *Cost `json:"disk,omitempty"`
	Memory  *Cost `json:"memory,omitempty"`
	Network *Cost `json:"network,omitempty"`
}

// of returns where the cost in a resource is kept.
func (c *ByResource) of(r quell.Resource) **Cost {
	switch r {
	case quell.CPU:
		return &c.CPU
	case quell.Disk:
		return &c.Disk
	case quell.Memory:
		return &c.Memory
	}
	return &c.Network
}

// consumed is what an instance used of a resource in a new window.
type consumed struct {
	in        *quell.Instance
	position  int // in the snapshot
	use, rate float64
	requests  float64 // in the window
	open      float64 // requests that were open, on average, per second of the window
	resource  quell.Resource
	alike     string // instances of equal text are compared
	size      float64
}

// cost is the use per request per second on an instance of size 1; known is false if there were too few requests.
func (u *consumed) cost() (per float64, known bool) {
	if u.requests < Fewest {
		return 0, false
	}
	return u.use / u.rate * u.size, true
}

// Find finds use that requests do not explain, and enters it into a copy of the snapshot. learned returns the use per request that
// the models know for a type of instance; 0: they do not.
func Find(s *quell.Snapshot, before Costs, learned func(quell.Resource, string) float64) (*quell.Snapshot, Costs) {
	was, is := make([]ByResource, len(s.Instances)), make([]ByResource, len(s.Instances))
	for i := range was {
		was[i] = before[s.Instances[i].ID]
	}
	own := map[int]map[quell.Resource]float64{}
	for _, list := range consumption(s) {
		costs, after := costsOf(list), make([]Cost, len(list))
		for k := range list {
			u, now := &list[k], &after[k]
			if last := *was[u.position].of(u.resource); last != nil {
				*now = *last
			}
			if !u.in.Observation.At.Equal(now.At) { // an earlier one is of a clock that was set back
				others, known := costs.of(u)
				*now = now.after(u, others, known, learned(u.resource, u.in.Type))
			}
			*is[u.position].of(u.resource) = now
			if now.isOwn() {
				if own[u.position] == nil {
					own[u.position] = map[quell.Resource]float64{}
				}
				own[u.position][u.resource] = now.Own
			}
		}
	}
	next := make(Costs, len(s.Instances))
	for i := range is {
		if is[i] != (ByResource{}) {
			next[s.Instances[i].ID] = is[i]
		}
	}
	return withOwnWork(s, own), next
}

// bothUses adds uses of resources.
func bothUses(a, b map[quell.Resource]float64) map[quell.Resource]float64 {
	if len(b) == 0 {
		return a
	}
	sum := maps.Clone(b)
	for r, use := range a {
		sum[r] += use
	}
	return sum
}

// withOwnWork returns the snapshot with this own work, by position of the instance, that for other services, and no other.
func withOwnWork(s *quell.Snapshot, own map[int]map[quell.Resource]float64) *quell.Snapshot {
	old := slices.ContainsFunc(s.Instances, func(in quell.Instance) bool {
		return in.Observation != nil && (in.Observation.OwnWork != nil || in.Observation.Others != nil)
	})
	if len(own) == 0 && !old {
		return s
	}
	next := *s
	next.Instances = slices.Clone(s.Instances)
	for i := range next.Instances {
		in := &next.Instances[i]
		if o := in.Observation; o != nil && (own[i] != nil || o.OwnWork != nil || o.Others != nil) {
			changed := *o
			changed.OwnWork = bothUses(own[i], o.Others)
			in.Observation = &changed
		}
	}
	return &next
}

// consumption lists, for each resource, what the ready instances used of it, if their use and their rate of requests are known.
func consumption(s *quell.Snapshot) [][]consumed {
	lists := make([][]consumed, len(quell.Resources))
	for i := range s.Instances {
		in := &s.Instances[i]
		o := in.Observation
		if in.State != quell.Ready || o == nil || o.RequestRate == nil || o.WindowS <= 0 {
			continue
		}
		u := consumed{in: in, position: i, rate: *o.RequestRate, alike: in.Type, size: in.BaseWeight()}
		if answered := o.LatencyMS; answered != nil { // requests of before may still be answered
			u.rate = math.Max(u.rate, float64(answered.N)/o.WindowS)
		}
		u.requests = u.rate * o.WindowS
		if o.InFlight != nil { // each of those that are open may have been served in part
			u.open = *o.InFlight / o.WindowS
		}
		for k, r := range quell.Resources {
			use, known := o.Utilization[r]
			if !known {
				continue
			}
			if lists[k] == nil {
				lists[k] = make([]consumed, 0, len(s.Instances))
			}
			u.resource, u.use = r, math.Max(0, use-o.Others[r])
			lists[k] = append(lists[k], u)
		}
	}
	return lists
}

// evident returns whether own work of this size can be told from dearer requests. Neighbours in the caches make the processor time of an
// instance's requests longer, so there the agent must have seen another user.
func (u *consumed) evident(own float64) bool {
	if u.resource == quell.Network || u.resource == quell.Disk {
		return true
	}
	return u.in.Observation.Top[u.resource].Use >= own*leastTop
}

// peerCosts is what a request costs on the instances that tell it, in increasing order, by the text that is equal for those that are
// compared. Costs are of size 1.
type peerCosts map[string][]float64

func costsOf(list []consumed) peerCosts {
	costs := peerCosts{}
	for i := range list {
		u := &list[i]
		if cost, known := u.cost(); known {
			costs[u.alike] = append(costs[u.alike], cost)
		}
	}
	for _, sorted := range costs {
		slices.Sort(sorted)
	}
	return costs
}

// of returns what one request costs on the instances like u, itself included: the lower median, so that one or several that do other work
// do not count. known is false if no other instance tells.
func (c peerCosts) of(u *consumed) (per float64, known bool) {
	costs, others := c[u.alike], len(c[u.alike])
	if _, tells := u.cost(); tells {
		others--
	}
	if others == 0 {
		return 0, false
	}
	return costs[(len(costs)-1)/2] / u.size, true
}

// after returns what is known after one more window. others is the cost on instances like this one, and told whether any tells it.
func (c Cost) after(u *consumed, others float64, told bool, learned float64) Cost {
	rate := u.rate
	if c.Over == 0 {
		rate = math.Max(rate, c.Rate) // what waited at the end of the last window is served in this one
	}
	c.At, c.Rate = u.in.Observation.At, u.rate
	per := math.Max(others, learned)
	if c.N > 0 {
		per = math.Max(per, c.Per)
	}
	explained := per * (rate + u.open)
	c.Own = u.use - explained
	least := math.Max(Least, explained*math.Max(OverRequests, OverSpread*c.Spread))
	if told && (learned > 0 || c.N >= settled) && c.Own > least && u.evident(c.Own) {
		c.Over++
		c.Per *= costGrows
		return c
	}
	c.Own, c.Over = 0, 0
	if now, known := u.cost(); known {
		now /= u.size
		c.N = min(c.N+1, longest)
		gain := 1 / float64(c.N)
		if c.N > 1 && c.Per > 0 {
			c.Spread += gain * (math.Abs(now/c.Per-1) - c.Spread)
		}
		c.Per += gain * (now - c.Per)
	}
	return c
}

// isOwn returns whether the use that requests do not explain counts as own work.
func (c *Cost) isOwn() bool { return c.Own >= Clearly || c.Over >= 2 }
