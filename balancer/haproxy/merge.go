package haproxy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/managed"
)

// merge combines what the processes report into one state per instance, ordered by id.
func (d *Driver) merge(targets []target, views []*view) []quell.BackendState {
	found := map[string]quell.BackendState{}
	if d.asked == nil && len(d.entries) == 0 {
		addUp(views, func(string) bool { return true })
		d.discover(found, views)
	} else {
		instances := map[string]bool{}
		for _, t := range targets {
			instances[t.server] = true
		}
		addUp(views, func(server string) bool { return instances[server] })
	}
	kept, bases := d.asked != nil, d.bases(d.entries, views)
	for _, v := range views {
		kept = kept && (v == nil || faithful(v, targets))
	}
	d.away = map[string]string{}
	for i, t := range targets {
		id, probe, address := t.server, "", ""
		if i < len(d.entries) {
			id, probe, address = d.entries[i].ID, d.entries[i].Probe, d.entries[i].Address
		}
		s, there := d.join(&t, views)
		if !there {
			continue
		}
		s.ID, s.Probe, s.Base = id, probe, bases[t.server]
		if s.Address != "" {
			s.Address = address
		}
		if kept && t.serves() && s.ByHand == nil {
			s.Weight = t.share
		}
		if s.ByHand != nil {
			d.away[id] = s.ByHand.Why
		}
		found[id] = s
	}
	var states []quell.BackendState
	for _, s := range found {
		states = append(states, s)
	}
	slices.SortFunc(states, func(a, b quell.BackendState) int { return strings.Compare(a.ID, b.ID) })
	return states
}

// join combines what the processes report about one server. Requests in flight are summed, and the server is healthy if any process finds
// it healthy. Before the first Apply, its state is correct if all processes have the same one. there is false if no process has the server,
// or if it has left.
func (d *Driver) join(t *target, views []*view) (state quell.BackendState, there bool) {
	right, draining, first := true, true, true
	held, forgotten, has, why := 0, 0, 0, ""
	for i, v := range views {
		if v == nil {
			continue
		}
		s := v.servers[t.server]
		if s == nil || t.leaving && s.inMaint() && !t.added {
			right = false
			continue
		}
		there = true
		has++
		if t.held(v) {
			held++
			why = cmp.Or(why, t.why(v))
			if s.forced() != t.byHand(v) || t.zeroed(v) && s.weight > 0 {
				forgotten++
			}
		}
		state.InFlight += s.sessions
		if (s.isDraining() || s.inMaint()) && d.processes[i].recentlyRestarted() {
			state.InFlight = max(1, state.InFlight) // the process before the restart may still have some
		}
		placed := !t.placeless(s)
		state.Healthy = state.Healthy || s.up && placed
		switch {
		case !placed:
			state.Health = placeless(d.opts.Backend, s).Error()
		case !s.up && state.Health == "":
			state.Health = s.check
		}
		draining = draining && t.drained && s.forced() == drainState
		share := shareOf(s, v)
		right = right && (t.held(v) && t.isAt(s) || d.asked != nil && inForce(s, t) || d.asked == nil && (first || share == state.Weight))
		state.Weight, first = max(state.Weight, share), false
	}
	if state.Healthy {
		state.Health = ""
	}
	out := held > 0 && held == has
	if out {
		state.ByHand = heldHere(why)
	}
	state.Draining = t.leaving || t.draining || d.asked == nil && draining && !out
	if state.Draining && !t.waited && slices.Contains(views, nil) {
		state.InFlight = max(1, state.InFlight) // a HAProxy that cannot be reached may still have some
	}
	state.Held = state.Draining && !t.leaving && t.person
	if state.Draining || out {
		state.Weight = 0
	}
	if right && forgotten == 0 || t.leaving {
		state.Address = t.address
	}
	return state, there
}

// why returns what keeps a held target out of service, "" if a person's command does.
func (t *target) why(v *view) string {
	switch other := t.outside(v); {
	case t.byHand(v) != "":
		return ""
	case other != "":
		return other
	}
	return zeroWeight
}

// addUp sums up the weights in service of the servers that have a part in the shares.
func addUp(views []*view, has func(server string) bool) {
	for _, v := range views {
		if v == nil {
			continue
		}
		v.sum = 0
		for name, s := range v.servers {
			if has(name) && s.serves() {
				v.sum += float64(s.weight)
			}
		}
	}
}

// serves returns whether a server gets requests while it is healthy.
func (s *server) serves() bool { return !s.inMaint() && !s.isDraining() && !s.backup }

// shareOf returns a server's share of the weights that count.
func shareOf(s *server, v *view) float64 {
	if v.sum == 0 || !s.serves() {
		return 0
	}
	return float64(s.weight) / v.sum
}

// discover adds the backend's servers that Quell has never managed, so that a first controller starts with their present weights. A server
// of an instance has the instance's id, others have their own name. Servers without an address are shown only if they are an instance's:
// others may be places for servers to come.
func (d *Driver) discover(found map[string]quell.BackendState, views []*view) {
	d.recognised = d.recognise(views)
	for _, v := range views {
		if v == nil {
			continue
		}
		for _, name := range v.order {
			s := v.servers[name]
			if d.isSlot(name) || s.address == "" && d.recognised[name] == "" {
				continue
			}
			state, _ := d.join(&target{server: name, address: s.address}, views)
			if why, out := outEverywhere(name, views); out {
				state.ByHand, state.Weight = heldHere(why), 0
			}
			state.Foreign = true
			found[name] = state
		}
	}
	var entries []*entry
	for _, name := range slices.Sorted(maps.Keys(found)) {
		entries = append(entries, &entry{Entry: managed.Entry{ID: name}, Server: name})
	}
	bases := d.bases(entries, views)
	for name, s := range found {
		s.ID, s.Base = cmp.Or(d.recognised[name], name), bases[name]
		found[name] = s
	}
}
