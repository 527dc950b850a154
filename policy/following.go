package policy

import (
	"math"

	"github.com/quellhq/quell"
)

// Following is what is known of how requests follow the weights. Clients that stick to instances by a cookie, a stick table or persistence,
// or that are few and keep their connections, do not.
type Following struct {
	Apart int32   `json:"apart,omitempty"` // consecutive windows in which the measured shares were not those of the weights
	Part  float64 `json:"part,omitempty"`  // which part of a change of weights the measured shares showed, from 0 to 1; mean over these windows
}

const (
	apartFor    = 5   // windows in a row until it is said
	minApart    = 0.1 // the least part of all requests that goes elsewhere than the weights say
	apartBeyond = 4   // and this many times as much as chance explains
	minFollowed = 50  // the least number of requests in a window
)

// unfollowed returns whether it is said that requests do not follow the weights.
func (f Following) unfollowed() bool { return f.Apart >= apartFor }

// Follow judges the last window. Rules that look for idle or fast instances choose those whatever the weights are: nothing is said of them.
func (f Following) Follow(g *Group, rule quell.Scheduling) Following {
	if rule != "" && rule != quell.RoundRobin {
		return Following{}
	}
	list, requests := g.sharing()
	apart, chance, part := distances(list, requests)
	if requests < minFollowed {
		return f
	}
	if apart < minApart || apart < apartBeyond*chance {
		return Following{}
	}
	f.Apart++
	f.Part += (part - f.Part) / float64(min(f.Apart, 2*apartFor))
	return f
}

// sharing returns the instances in service that have a weight and fresh readings, and the number of their requests. It returns none if one
// that has a weight shows no share.
func (g *Group) sharing() (list []*Member, requests float64) {
	list = make([]*Member, 0, len(g.Ready))
	for _, m := range g.Ready {
		switch {
		case m.WeightNow() == 0:
		case m.Share == nil || m.Observation == nil || !m.Fresh:
			return nil, 0
		default:
			list, requests = append(list, m), requests+Arrived(m.Observation)
		}
	}
	return list, requests
}

// distances returns which part of the requests went elsewhere than the weights say, which part chance explains, and which part of the
// weights' distance from even ones the shares show, 1 if the weights are even.
func distances(list []*Member, requests float64) (apart, chance, part float64) {
	var weights, shares, along, all float64
	for _, m := range list {
		weights, shares = weights+m.WeightNow(), shares+*m.Share
	}
	if weights == 0 || shares == 0 || requests == 0 {
		return 0, 0, 1
	}
	even := Even(list)
	for _, m := range list {
		w, s, e := m.WeightNow()/weights, *m.Share/shares, even(m)
		apart += math.Abs(s-w) / 2
		chance += math.Sqrt(w*(1-w)/requests) / 2
		along, all = along+(s-e)*(w-e), all+(w-e)*(w-e)
	}
	if all < minApart*minApart {
		return apart, chance, 1
	}
	return apart, chance, math.Min(1, math.Max(0, along/all))
}

// Expected returns the share that an instance is likely to get under the plan. If requests do not follow the weights, only a part of the
// change is expected.
func (f Following) Expected(m *Member) float64 {
	if !f.unfollowed() || m.Share == nil {
		return m.Planned
	}
	return math.Max(0, *m.Share+f.Part*(m.Planned-m.WeightNow()))
}

// noteFollowing says once that requests do not follow the weights, and once that they do again.
func noteFollowing(g *Group, before, now Following, plan *quell.Plan) {
	switch {
	case now.unfollowed() && !before.unfollowed():
		list, _ := g.sharing()
		worst := list[0]
		for _, m := range list {
			if math.Abs(*m.Share-m.WeightNow()) > math.Abs(*worst.Share-worst.WeightNow()) {
				worst = m
			}
		}
		AddReason(plan, "unfollowed", worst.ID, "requests do not follow the weights: it has weight %.2f and got %.2f of them, and so for %d "+
			"windows. Clients stick to instances (cookie, stick-table, persistence), few clients keep their connections, or the balancer looks "+
			"for idle instances. Of a change of weights %.0f%% is expected", worst.WeightNow(), *worst.Share, now.Apart, 100*now.Part)
	case before.unfollowed() && !now.unfollowed():
		AddReason(plan, "followed", "", "requests follow the weights again")
	}
}
