package sim

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/route"
)

// balancer chooses instances as the live balancer does. For small groups it uses the pickers of package route; for large ones it follows
// the same schedulings with an index, which is faster.
type balancer struct {
	picker  route.Picker
	indexed route.Indexed
	large   bool
	learner route.Learner // the one of both pickers that is in use, if it learns from answers; else nil

	candidates []*route.Candidate
	instances  []*instance // by place of the candidate
}

// largeGroup is the number of candidates from which an index is faster than looking at all of them.
const largeGroup = 48

// idleFirst returns whether a run's balancer sends a request to an idle instance whatever its weight.
func idleFirst(r scenario.Run) bool {
	return r.Balancer == scenario.HAProxy && r.Scheduling == quell.LeastConn
}

func newBalancer(r scenario.Run, seed uint64) (*balancer, error) {
	picker, err := route.New(r.Scheduling, seed)
	if err != nil {
		return nil, err
	}
	indexed, err := route.NewIndexed(r.Scheduling, seed)
	if idleFirst(r) {
		picker, indexed = route.NewIdleFirst(), route.NewIndexedIdleFirst()
	}
	b := &balancer{picker: picker, indexed: indexed}
	b.learn()
	return b, err
}

// learn finds out whether the picker learns from how requests end.
func (b *balancer) learn() {
	if b.large {
		b.learner, _ = b.indexed.(route.Learner)
	} else {
		b.learner, _ = b.picker.(route.Learner)
	}
}

// set tells the balancer which instances may get requests from now on, with their present weights.
func (b *balancer) set(members []*instance) {
	for _, in := range b.instances {
		in.place = -1
	}
	b.candidates, b.instances = b.candidates[:0], b.instances[:0]
	for _, in := range members {
		if in.state != quell.Ready || !in.shown || in.draining || in.monitor.ejected {
			continue
		}
		in.place = len(b.instances)
		b.candidates = append(b.candidates, &in.candidate)
		b.instances = append(b.instances, in)
	}
	if b.large {
		b.indexed.Reset(nil) // writes the picker's state into the candidates
	}
	if b.large = len(b.candidates) >= largeGroup; b.large {
		b.indexed.Reset(b.candidates)
	}
	b.learn()
}

// pick chooses the instance for a request that arrives now; nil if there is none.
func (b *balancer) pick(now float64) *instance {
	if b.learner != nil {
		b.learner.Advance(duration(now))
	}
	var i int
	var ok bool
	if b.large {
		i, ok = b.indexed.Pick()
	} else {
		i, ok = b.picker.Pick(b.candidates)
	}
	if !ok {
		return nil
	}
	b.open(b.instances[i], 1)
	return b.instances[i]
}

// open changes the number of an instance's open requests.
func (b *balancer) open(in *instance, by int64) {
	in.candidate.InFlight += by
	if b.large && in.place >= 0 {
		b.indexed.Changed(in.place)
	}
}

// close tells the picker that a request has ended.
func (b *balancer) close(now float64, in *instance, r *request, failed bool) {
	b.open(in, -1)
	if b.learner != nil {
		b.learner.Advance(duration(now))
		b.learner.Done(&in.candidate, route.Answer{Took: duration(now - r.entered), InFlight: int64(r.met), Failed: failed})
	}
}
