package sim

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/route"
)

// balancer chooses instances as the live one does. Small groups are served by the very pickers of route, large ones by
// the same schedulings over an index.
type balancer struct {
	picker  route.Picker
	indexed route.Indexed
	large   bool
	learner route.Learner // the one of both that picks, if it learns; else nil

	candidates []*route.Candidate
	instances  []*instance // of the candidates
}

// largeGroup is from how many candidates on an index is faster than a look at all.
const largeGroup = 48

func newBalancer(s quell.Scheduling, seed uint64) (*balancer, error) {
	picker, err := route.New(s, seed)
	if err != nil {
		return nil, err
	}
	indexed, err := route.NewIndexed(s, seed)
	b := &balancer{picker: picker, indexed: indexed}
	b.learn()
	return b, err
}

// learn finds out whether a picker needs to know how requests end.
func (b *balancer) learn() {
	if b.large {
		b.learner, _ = b.indexed.(route.Learner)
	} else {
		b.learner, _ = b.picker.(route.Learner)
	}
}

// set tells the balancer which instances may get requests now. Weights may have changed.
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

// pick takes an instance for a request that comes now, nil if there is none.
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

// close takes note of a request's end.
func (b *balancer) close(now float64, in *instance, r *request, failed bool) {
	b.open(in, -1)
	if b.learner != nil {
		b.learner.Advance(duration(now))
		b.learner.Done(&in.candidate, route.Answer{Took: duration(now - r.entered), InFlight: int64(r.met), Failed: failed})
	}
}
