package prima

import (
	"math"

	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// A balancer that sends a request to any idle instance makes all shares above 0 alike: an instance beside a neighbour gets what it finds
// time for, and how long that takes does not depend on its share. So if it was measured to miss the objective there, it carries nothing
// while that neighbour stays, whatever the models say of a smaller share.

// avoided is what is remembered of such an instance.
type avoided struct {
	Taken  float64 `json:"taken,omitempty"`  // what neighbours took then; 0: the instance may carry what the models say
	Times  int     `json:"times,omitempty"`  // how often it missed the objective beside this neighbour
	Missed int     `json:"missed,omitempty"` // consecutive periods in which it missed the objective
	Kept   int     `json:"kept,omitempty"`   // consecutive periods in which it kept to it, although it should carry nothing
	Eased  int     `json:"eased,omitempty"`  // consecutive readings in which neighbours took clearly less
	For    int     `json:"for,omitempty"`    // periods since it was to carry nothing
}

func (a *avoided) on() bool { return a != nil && a.Taken > 0 }

const (
	// missedBy is the factor by which a response time must be above the threshold to count as missed, and clearlyMissed that at which one
	// period is enough.
	missedBy, clearlyMissed = 1.05, 1.3
	// easedTo is the part of what neighbours took to which they must go back before the instance is tried again.
	easedTo = 0.5
	// easedFor is how many such readings that takes at first, and avoidedFor after how many periods it is tried again in any case. Both double
	// each time, because the probes of an instance without requests feel less of a neighbour.
	easedFor, avoidedFor, mostDoubled = 2, 60, 5
)

// seen is what a period showed of an instance.
type seen struct {
	taken     float64 // what neighbours took
	served    bool    // it had enough requests to judge it
	over      float64 // its response time over the threshold
	confirm   int     // after so many periods in a row, plus one, something is no chance
	overloads bool    // the load explains long response times
}

// next returns what is remembered after a period.
func (a avoided) next(s seen) avoided {
	if a.Taken > 0 {
		return a.follow(s)
	}
	a.Missed = policy.Consecutive(a.Missed, s.served && s.over > missedBy && s.taken >= model.SignificantUse && !s.overloads)
	switch {
	case a.Missed > s.confirm, a.Missed > 0 && s.over > clearlyMissed:
		return avoided{Taken: s.taken, Times: a.Times + 1}
	case s.served && s.taken < model.SignificantUse:
		return avoided{}
	}
	return a
}

// follow returns what is remembered after a period in which the instance was to carry nothing.
func (a avoided) follow(s seen) avoided {
	doubled := min(max(a.Times-1, 0), mostDoubled)
	a.For++
	a.Kept = policy.Consecutive(a.Kept, s.served && s.over <= 1)
	a.Eased = policy.Consecutive(a.Eased, s.taken < easedTo*a.Taken)
	if a.Kept > s.confirm || a.Eased >= easedFor<<doubled || a.For >= avoidedFor<<doubled {
		return avoided{Times: a.Times}
	}
	return a
}

// avoid marks the instances that were measured to miss the objective beside neighbours, where shares do not act.
func avoid(p *plan) {
	overloads := !somebodyKeeps(p)
	for _, m := range p.group.Rated {
		own := instanceOf(m)
		if !p.in.IdleFirst || m.Fixed != nil {
			own.Avoided = nil
			continue
		}
		if m.Fresh {
			own.Avoided = avoidedNext(p, m, own.Avoided, overloads)
		}
		if own.Avoided.on() {
			m.Able = false
			carryNothing(m)
		}
	}
}

// avoidedNext returns what is remembered of an instance after its newest period.
func avoidedNext(p *plan, m *policy.Member, before *avoided, overloads bool) *avoided {
	ms, _, served := m.Measured(p.in.Service.SLO.Metric)
	s := seen{taken: strongestNeighbour(m), served: served, over: ms / p.in.Service.SLO.ThresholdMS(), confirm: int(p.set.Confirm),
		overloads: overloads}
	var after avoided
	if before != nil {
		after = *before
	}
	if after = after.next(s); after == (avoided{}) {
		return nil
	}
	if after.on() && !before.on() {
		p.reason("shift", m.ID, "%s takes %.1f ms beside neighbours, longer than the objective allows, and with this balancer a smaller share "+
			"does not change that: it is to carry nothing until they take half as much, or for a while", m.ID, ms)
	}
	return &after
}

// somebodyKeeps returns whether at least a quarter of the instances kept to the objective. Else it is the load: that slows probes, too.
func somebodyKeeps(p *plan) bool {
	served, missed := 0, 0
	for _, m := range p.group.Rated {
		if ms, _, ok := m.Measured(p.in.Service.SLO.Metric); ok {
			if served++; ms > p.in.Service.SLO.ThresholdMS() {
				missed++
			}
		}
	}
	return 4*missed <= 3*served
}

// strongestNeighbour is the largest part of a resource that neighbours take.
func strongestNeighbour(m *policy.Member) (most float64) {
	for i := range m.Senses {
		if s := &m.Senses[i]; !s.Out && s.Measured > 0 { // else it is a correction by response times
			most = math.Max(most, s.Interfering)
		}
	}
	return most
}
