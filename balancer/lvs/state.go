package lvs

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/managed"
)

// states returns the backends in force, ordered by id.
func (d *Driver) states(targets []target, views []*service) (states []quell.BackendState) {
	taken := map[netip.AddrPort]bool{}
	if manages(d.entries) {
		count(views, d.instances())
	}
	kept, bases := d.asked != nil, d.bases(d.instances(), views)
	for i, view := range views {
		kept = kept && (view == nil || faithful(d.services[i], view, targets))
	}
	for i := range targets {
		t := &targets[i]
		if s, there := d.join(t, views, taken); there && !t.Gone {
			if kept && t.serves() && s.ByHand == nil && s.Healthy {
				s.Weight = t.share
			}
			states = append(states, s)
		}
	}
	if d.asked == nil {
		states = append(states, d.discover(views, taken, !manages(d.entries))...)
	}
	for i := range states {
		states[i].Base = bases[states[i].ID]
	}
	slices.SortFunc(states, func(a, b quell.BackendState) int { return strings.Compare(a.ID, b.ID) })
	return states
}

// join combines what the virtual services say about one instance. If a service has no real server for it, or one whose weight is not as
// requested, the state has no address. It then differs from the request, and so Apply is called again. there is false if no service has a
// real server for it.
func (d *Driver) join(t *target, views []*service, taken map[netip.AddrPort]bool) (state quell.BackendState, there bool) {
	state = quell.BackendState{Backend: quell.Backend{ID: t.ID, Address: t.Address, Probe: t.Probe}}
	has, held, out, back := 0, 0, 0, false
	for i, view := range views {
		if view == nil {
			continue
		}
		r := view.find(t.Numeric)
		if r == nil {
			state.Address = ""
			continue
		}
		taken[r.address] = true
		has++
		if t.held(d.services[i]) {
			held++
		}
		if r.weight == 0 {
			out++
		}
		state.InFlight += r.active
		state.Weight = max(state.Weight, shareOf(r, view))
		switch tr := t.trace(d.services[i]); {
		case tr.Back:
			back = true
		case t.known && !t.held(d.services[i]) && (r.weight == 0) != (t.weight == 0):
			state.Address = ""
		}
	}
	if has == 0 {
		return state, false
	}
	state.Healthy = true
	state.Draining = t.Drain && out == has
	state.Held = state.Draining && t.entry.Held
	if held == has {
		d.outByOthers(&state)
	}
	if state.Draining || back {
		state.Weight = 0
	}
	return state, true
}

// shareOf returns a real server's share of the sum of the weights.
func shareOf(r *realServer, s *service) float64 {
	if r.weight == 0 {
		return 0
	}
	return float64(r.weight) / s.sum
}

// unmanaged lists the instances of a fixed group that Quell has never managed.
func (d *Driver) unmanaged() (list []*entry) {
	known := make(map[string]bool, len(d.entries))
	for _, e := range d.entries {
		known[e.ID] = true
	}
	for _, m := range d.opts.Members {
		if address, err := netip.ParseAddrPort(m.Address); err == nil && !known[m.ID] {
			list = append(list, &entry{Entry: managed.OfMember(m), Numeric: balancer.Plain(address)})
		}
	}
	return list
}

// manages returns whether Quell has given real servers their weights: then the others are nobody's.
func manages(entries []*entry) bool {
	return slices.ContainsFunc(entries, func(e *entry) bool { return !e.Gone })
}

// discover returns the real servers that Quell has never managed, so that a controller starts with their present weights. Those of a fixed
// group's instances have the instance's id. The others, which are listed if all are wanted, have their address as id.
func (d *Driver) discover(views []*service, taken map[netip.AddrPort]bool, all bool) (states []quell.BackendState) {
	for _, e := range d.unmanaged() {
		states = append(states, d.foreign(e, views, taken)...)
	}
	for _, view := range views {
		if view == nil || !all {
			continue
		}
		for _, r := range view.reals {
			if !taken[r.address] {
				e := &entry{Entry: managed.Entry{ID: r.address.String(), Address: r.address.String()}, Numeric: r.address}
				states = append(states, d.foreign(e, views, taken)...)
			}
		}
	}
	return states
}

func (d *Driver) foreign(e *entry, views []*service, taken map[netip.AddrPort]bool) []quell.BackendState {
	s, there := d.join(&target{entry: e}, views, taken)
	if !there {
		return nil
	}
	s.Foreign = true
	if s.Weight == 0 {
		d.outByOthers(&s)
	}
	return []quell.BackendState{s}
}
