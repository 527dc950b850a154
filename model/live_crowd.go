package model

import (
	"github.com/quellhq/quell"
)

// crowds returns the size and the use of the group by resource: the load of all instances over what neighbours leave of them. Instances of
// different types count by the requests that they can serve. It has only resources that are probed.
func (l Live) crowds(s *quell.Snapshot) map[quell.Resource]Crowd {
	size, load, room := 0.0, map[quell.Resource]float64{}, map[quell.Resource]float64{}
	for i := range s.Instances {
		in := &s.Instances[i]
		if in.State != quell.Ready || in.Held != nil || in.Weight != nil && *in.Weight == 0 {
			continue
		}
		size++
		for r, use := range usesOf(in.Observation) {
			taken, worth := l.taken(r, in)
			load[r], room[r] = load[r]+use*worth, room[r]+(1-taken)*worth
		}
	}
	crowds := make(map[quell.Resource]Crowd, len(load))
	for r := range load {
		crowds[r] = Even(size, min(load[r]/room[r], 1))
	}
	return crowds
}

// usesOf returns the uses of an observation's probed resources by its requests. Other work is part of what neighbours take (taken).
func usesOf(o *quell.Observation) map[quell.Resource]float64 {
	if o == nil {
		return nil
	}
	uses := make(map[quell.Resource]float64, len(o.Probe))
	for r := range o.Probe {
		if use, ok := o.ForRequests(r); ok && use >= 0 {
			uses[r] = min(use, 1)
		}
	}
	return uses
}

// taken returns the neighbours' use of an instance's resource that its newest probes show, and how many requests it is worth. If the law is
// not known yet, neighbours are not, and all instances are worth the same.
func (l Live) taken(r quell.Resource, in *quell.Instance) (taken, worth float64) {
	law := l.of(r, in.Type)
	if law == nil {
		return 0, 1
	}
	worth = 1
	if law.PerRequest > 0 {
		worth = 1 / law.PerRequest
	}
	w, ok := windowOf(in.Observation, r, quell.Mean, 0)
	if !ok {
		return 0, worth
	}
	return law.interfering(w.Use, law.felt(&w)), worth
}
