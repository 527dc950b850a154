package nginx

import (
	"context"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/managed"
	"github.com/quellhq/quell/balancer/nginx/include"
	"github.com/quellhq/quell/balancer/nginx/peers"
	"github.com/quellhq/quell/balancer/nginx/record"
)

// states returns what the file declares, ordered by id.
func (d *Driver) states(ctx context.Context, f *include.File) (states []quell.BackendState) {
	open, err := peers.Connections()
	d.counting.Report(err)
	list := d.wanted(ctx, f)
	if d.asked == nil {
		list = d.found(ctx, f)
	}
	sum := 0 // of the instances' weights: other servers have no part in the shares
	for _, t := range list {
		if t.line != nil && !t.line.Down {
			sum += t.line.Weight
		}
	}
	bases := d.bases(list)
	for i := range list {
		if t := &list[i]; (t.line != nil || t.held() || t.Unsure && d.asked != nil) && !t.gone() {
			s := t.state(sum, d.asked != nil)
			s.Healthy, s.Health = d.checks.Of(t.ID)
			s.Base = bases[t.ID]
			s.InFlight = d.names.Open(ctx, open, t.Address)
			states = append(states, s)
		}
	}
	managed.Sort(states)
	return states
}

// gone returns whether a target has left for good. A line that a person wrote stays, and is down.
func (t *target) gone() bool {
	return t.Leaving && !t.Added && !t.Unsure && t.line != nil && t.line.Down
}

// state returns what is in force for a target. If that is not what is wanted, the state has no address: it then differs from the request,
// and so Apply is called again. What was asked to drain gets requests as long as its line is up, or nginx may not have read it: it may have
// refused the file, or be late.
func (t *target) state(sum int, asked bool) quell.BackendState {
	s := quell.BackendState{Foreign: t.foreign, Backend: t.Backend(0)}
	s.Draining = s.Draining && !t.Unsure && (t.line == nil || t.line.Down)
	switch {
	case t.held():
		s.ByHand, s.Draining = &quell.Held{By: "nginx"}, false
	case t.line == nil || t.Unsure || asked && t.line.Down != t.down:
		s.Address = ""
	case !t.line.Down && asked && t.line.Weight == t.weight:
		s.Weight = t.share
	case !t.line.Down:
		s.Weight = float64(t.line.Weight) / float64(sum)
	}
	return s
}

// found lists what a controller finds: the known entries, the lines of a fixed group's instances and, if nothing is known, all other
// servers, whose address is their id.
func (d *Driver) found(ctx context.Context, f *include.File) (list []target) {
	taken := map[*include.Server]bool{}
	add := func(e *record.Entry, foreign bool) {
		t := target{Entry: e, line: d.find(ctx, f, e.Address), foreign: foreign}
		if t.line != nil {
			t.ByHand = e.ByHand || foreign && t.line.Down
			taken[t.line] = true
		}
		list = append(list, t)
	}
	for _, e := range d.entries {
		known := *e
		add(&known, false)
	}
	for _, m := range d.opts.Members {
		if !slices.ContainsFunc(d.entries, func(e *record.Entry) bool { return e.ID == m.ID }) {
			add(&record.Entry{Entry: managed.OfMember(m)}, true)
		}
	}
	for _, s := range f.Servers {
		if len(d.entries) == 0 && !taken[s] && s.Address != include.Nobody {
			add(&record.Entry{Entry: managed.Entry{ID: s.Address, Address: s.Address}}, true)
		}
	}
	return list
}

// bases returns the weights that people chose, divided by their mean; nil if all are equal.
func (d *Driver) bases(list []target) map[string]*float64 {
	chosen := map[string]int{}
	for _, t := range list {
		if t.Leaving {
			continue
		}
		if chosen[t.ID] = t.Base; t.Base == 0 && t.line != nil && d.asked == nil {
			chosen[t.ID] = t.line.Weight
		}
	}
	return balancer.Bases(chosen)
}
