package haproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/managed"
)

// assign finds a server for every backend, and marks servers that are no longer wanted as leaving. It stores changes before they are made,
// so that every server is known after a crash. If one instance has no server, the others still get theirs; assign returns an error only if
// no instance has a server.
func (d *Driver) assign(ctx context.Context, backends []quell.Backend, views []*view) error {
	d.entries = slices.DeleteFunc(d.entries, func(e *entry) bool { return e.Leaving && d.gone(e, views) || d.misplaced(e, views) })
	byID := managed.Leave(d.entries)
	var errs []error
	wanted := make(map[string]bool, len(backends))
	for _, b := range backends {
		wanted[b.ID] = true
	}
	for _, b := range backends {
		e, known := byID[b.ID]
		if !known {
			e = &entry{Entry: managed.Entry{ID: b.ID}}
		}
		if err := d.assignOne(ctx, e, b, wanted, views); err != nil {
			errs = append(errs, err)
		} else if !known {
			d.entries = append(d.entries, e)
		}
	}
	d.remember()
	if len(errs) > 0 && len(errs) == len(backends) {
		return errors.Join(errs...)
	}
	d.placed.Report(errors.Join(errs...))
	return nil
}

// remember stores the memory. If that fails, it is tried again later, because passing requests on is more important.
func (d *Driver) remember() {
	d.changed = false
	if d.memory.Keep(d.entries) {
		d.stale = true // the state file must be updated, so that a restarted HAProxy begins with the present state
	}
}

// assignOne updates the entry of an instance. If the instance is new, it finds a server for it. After an error the entry is unchanged.
func (d *Driver) assignOne(ctx context.Context, e *entry, b quell.Backend, wanted map[string]bool, views []*view) error {
	e.Leaving = false
	fresh := e.Server == ""
	if e.Address != b.Address {
		numeric, err := resolve(ctx, b.Address, b.ID, views)
		if err != nil {
			return err
		}
		if e.Server == "" {
			var begins bool
			if e.Server, begins, err = d.place(b, numeric, wanted, views); err != nil {
				return err
			}
			e.Added = begins && d.opts.Slots == ""
			if begins {
				d.unborn(e)
			} else {
				d.adopt(e, views)
			}
		}
		e.Address, e.Numeric = b.Address, numeric
	}
	d.recordBefore(e, fresh, views)
	e.Ask(b)
	e.Added = e.Added || d.opts.Slots == "" && !anywhere(e.Server, views)
	return nil
}

// place picks the server of a new instance. It takes the first of these that exists: a server of the same name in HAProxy's configuration,
// or with the same address; a slot that already has the instance's address, if the memory was lost; a free slot; a server that is added.
// Free slots and added servers start out of service.
func (d *Driver) place(b quell.Backend, address string, wanted map[string]bool, views []*view) (name string, begins bool, err error) {
	id := b.ID
	taken := map[string]bool{}
	for _, other := range d.entries {
		taken[other.Server] = true
	}
	first := views[slices.IndexFunc(views, func(v *view) bool { return v != nil })]
	others := func(name string) bool { return taken[name] || name != id && wanted[name] }
	name, err = d.declaredFor(id, b.Address, address, first, others)
	if name != "" || err != nil {
		return name, false, err
	}
	if d.opts.Slots == "" {
		if !names.MatchString(id) {
			return "", false, fmt.Errorf("%q cannot be the name of a server in HAProxy: give instances other ids, or use slots", id)
		}
		d.warnAboutAdded(id, first)
		return id, true, nil
	}
	its := func(s *server) bool { return !s.inMaint() && sameAddress(s.address, address) }
	for i, fits := range []func(*server) bool{its, (*server).inMaint} {
		for _, name := range first.order {
			if d.isSlot(name) && !taken[name] && fits(first.servers[name]) {
				return name, i > 0, nil
			}
		}
	}
	return "", false, fmt.Errorf("no slot is free for %s: declare more servers %s... in backend %s (server-template), and reload HAProxy", id,
		d.opts.Slots, d.opts.Backend)
}

// misplaced returns whether a server has vanished from all HAProxies' configurations while slots can replace it.
func (d *Driver) misplaced(e *entry, views []*view) bool {
	return d.opts.Slots != "" && !slices.Contains(views, nil) && !anywhere(e.Server, views)
}

// isSlot returns whether a name is a slot's: server-template appends a number to the prefix.
func (d *Driver) isSlot(server string) bool {
	number, ok := strings.CutPrefix(server, d.opts.Slots)
	return d.opts.Slots != "" && ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// anywhere returns whether any of the HAProxies has the server.
func anywhere(server string, views []*view) bool {
	return slices.ContainsFunc(views, func(v *view) bool { return v != nil && v.servers[server] != nil })
}

// Lacks returns an error if, at the last look, instances had no server in the backend while servers of other names were there.
func (d *Driver) Lacks(instances []quell.Member) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opts.Slots != "" {
		return nil // the controller gives an instance a slot
	}
	for _, m := range instances {
		if s := d.serverOf(m.ID); s != nil && (&target{}).placeless(s) {
			return placeless(d.opts.Backend, s)
		}
	}
	stands := map[string]bool{}
	for _, e := range d.entries {
		stands[e.Server] = true
	}
	var absent, others []string
	for _, m := range instances {
		if d.serverOf(m.ID) == nil {
			absent = append(absent, m.ID)
		}
		stands[m.ID] = true
	}
	for _, name := range d.serverNames() {
		if !stands[name] {
			others = append(others, name)
		}
	}
	if len(absent) == 0 || len(others) == 0 {
		return nil
	}
	return fmt.Errorf("backend %s has no server %s, but %s: name instances like their servers, or Quell adds servers beside those",
		d.opts.Backend, listed(absent), listed(others))
}

// serverOf returns an instance's server in the first HAProxy that has it, nil if none has.
func (d *Driver) serverOf(id string) *server {
	name := id
	if i := slices.IndexFunc(d.entries, func(e *entry) bool { return e.ID == id }); i >= 0 {
		name = d.entries[i].Server
	}
	for _, p := range d.processes {
		p.mu.Lock()
		last := p.last
		p.mu.Unlock()
		if last != nil && last.servers[name] != nil {
			return last.servers[name]
		}
	}
	return nil
}

// serverNames lists the servers of the backend at the last look.
func (d *Driver) serverNames() (names []string) {
	for _, p := range d.processes {
		p.mu.Lock()
		if p.last != nil {
			names = append(names, p.last.order...)
		}
		p.mu.Unlock()
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// listed joins at most five names.
func listed(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// gone returns whether a leaving server is out of service everywhere and may be forgotten. A server that HAProxy's configuration declares
// is not forgotten, because a reload brings it back. An added server is not forgotten while any HAProxy cannot be reached. A slot may be
// forgotten at once, because Quell sees it again if it returns to service.
func (d *Driver) gone(e *entry, views []*view) bool {
	if !e.Added && !d.isSlot(e.Server) {
		return false
	}
	for _, v := range views {
		if v == nil && e.Added {
			return false
		}
		if v == nil {
			continue
		}
		if s := v.servers[e.Server]; s != nil && (e.Added || !s.inMaint()) {
			return false
		}
	}
	return true
}

// resolve turns host:port into ip:port. If HAProxy itself resolves the name, its result is used; while there is none, the address stays as
// it is.
func resolve(ctx context.Context, address, id string, views []*view) (string, error) {
	if a, err := netip.ParseAddrPort(address); err == nil {
		return a.String(), nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("address of %s: %w", id, err)
	}
	if numeric := resolvedThere(address, host, port, views); numeric != "" {
		return numeric, nil
	}
	found, err := balancer.Resolve(ctx, address)
	if err != nil {
		return "", fmt.Errorf("address of %s: %w", id, err)
	}
	return found[0].String(), nil
}

// resolvedThere returns what HAProxy made of a name that it resolves itself: ip:port, or the address as it is while it has none. It returns
// "" if HAProxy does not resolve the name.
func resolvedThere(address, host, port string, views []*view) string {
	for _, v := range views {
		if v == nil {
			continue
		}
		for _, name := range v.order {
			s := v.servers[name]
			if s.fqdn != host {
				continue
			}
			if ip, _, err := net.SplitHostPort(s.address); err == nil {
				return net.JoinHostPort(ip, port)
			}
			if s.port == port {
				return address
			}
		}
	}
	return ""
}
