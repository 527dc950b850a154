package haproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/quellhq/quell/balancer"
)

// before is what a server had before Quell first changed it.
type before struct {
	Weight int `json:"weight"` // in force then
	Given  int `json:"given"`  // in HAProxy's configuration then
}

// recordBefore records what a declared server has, before Quell changes it. A weight that its configuration gives it later is newer than
// the record. fresh says that Quell has not managed the server yet.
func (d *Driver) recordBefore(e *entry, fresh bool, views []*view) {
	if e.Added || d.isSlot(e.Server) {
		return
	}
	for _, v := range views {
		if v == nil || v.servers[e.Server] == nil {
			continue
		}
		s, socket := v.servers[e.Server], d.opts.Sockets[v.index]
		if was, known := e.Before[socket]; known && was.Given == s.given {
			continue
		}
		now := before{s.weight, s.given}
		if !fresh || d.processes[v.index].wasDriven() {
			now.Weight = s.given // what is in force may be Quell's
		}
		next := maps.Clone(e.Before)
		if next == nil {
			next = map[string]before{}
		}
		next[socket], e.Before = now, next
	}
}

// wasDriven returns whether a controller without this memory has driven the backend in this process.
func (p *process) wasDriven() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claim.found
}

// chosen returns the weight that people chose for a server, 0 if nobody did.
func (d *Driver) chosen(e *entry, v *view) int {
	s := v.servers[e.Server]
	switch was, known := e.Before[d.opts.Sockets[v.index]]; {
	case s == nil || e.Added || d.isSlot(e.Server):
		return 0
	case known && was.Given == s.given:
		return was.Weight
	case len(e.Before) == 0 && len(d.entries) == 0 && !d.processes[v.index].wasDriven():
		return s.weight
	}
	return s.given
}

// bases returns the weights that people chose for these servers, divided by their mean; nil if all are equal. A weight of 0 is no size.
func (d *Driver) bases(entries []*entry, views []*view) map[string]*float64 {
	i := slices.IndexFunc(views, func(v *view) bool { return v != nil })
	if i < 0 {
		return nil
	}
	chosen := map[string]int{}
	for _, e := range entries {
		chosen[e.Server] = d.chosen(e, views[i])
	}
	return balancer.Bases(chosen)
}

// Restore puts back what HAProxy had before Quell: weights, servers that Quell took out, and no servers that Quell added. What a person
// took out stays out. It returns what it cannot know. Afterwards Quell manages no server. Where Quell never changed anything, it changes
// nothing. If some HAProxy cannot be reached, that is an error, and a further call goes on with that one.
func (d *Driver) Restore(ctx context.Context) (unknown []string, err error) {
	d.owning.Lock()
	defer d.owning.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	views, err := d.views(ctx, (*process).look)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i, v := range views {
		p := d.processes[i]
		if v == nil {
			errs = append(errs, fmt.Errorf("HAProxy at %s cannot be reached: nothing was put back there", d.opts.Sockets[i]))
			continue
		}
		if d.restored[p] {
			continue
		}
		text, err := d.restoreAt(ctx, p, v)
		if unknown = append(unknown, text...); err != nil {
			errs = append(errs, err)
			continue
		}
		if d.restored == nil {
			d.restored = map[*process]bool{}
		}
		d.restored[p] = true
	}
	if err := errors.Join(errs...); err != nil {
		return unknown, err
	}
	d.entries, d.asked, d.restored = nil, nil, nil
	d.remember()
	d.saveState(ctx)
	return unknown, nil
}

// restoreAt puts back one HAProxy.
func (d *Driver) restoreAt(ctx context.Context, p *process, v *view) (unknown []string, err error) {
	owner, err := p.owner(ctx)
	if err != nil {
		return nil, err
	}
	driven := owner != "" && owner != noOwner
	switch {
	case len(d.entries) > 0:
	case driven:
		unknown = append(unknown, fmt.Sprintf("the record of what HAProxy at %s had before Quell is missing: weights are those of HAProxy's "+
			"configuration. Whether somebody had changed them at run time, and which servers Quell added or drained, is not known",
			p.socket.address))
	case owner == noOwner:
		return nil, nil
	default:
		return []string{fmt.Sprintf("HAProxy at %s shows no trace of Quell, and there is no record: nothing was changed there. If Quell set "+
			"weights before the data folder was lost and HAProxy was restarted, set them yourself", p.socket.address)}, nil
	}
	if todo := d.backTo(v); len(todo) > 0 {
		d.stale = true
		if err := p.carryOut(ctx, todo); err != nil {
			return unknown, err
		}
	}
	return unknown, p.disclaim(ctx)
}

// backTo lists the commands that bring one HAProxy back.
func (d *Driver) backTo(v *view) []command {
	b := builder{backend: d.opts.Backend}
	known := map[string]*entry{}
	for _, e := range d.entries {
		known[e.Server] = e
	}
	for _, name := range v.order {
		s, e := v.servers[name], known[name]
		switch {
		case d.isSlot(name) && e != nil, e != nil && e.Added:
			b.remove(&target{server: name, added: e.Added, overdue: true}, s)
			continue
		case d.isSlot(name):
			continue
		}
		weight := s.given
		if e != nil {
			weight = d.chosen(e, v)
			if was, recorded := e.Before[d.opts.Sockets[v.index]]; recorded && was.Given == s.given {
				weight = was.Weight
			}
			tr := cmp.Or(e.At[d.opts.Sockets[v.index]], &trace{})
			if (e.Drain || e.Leaving) && s.forced() != "" && tr.ByHand == "" {
				b.set(name, "state ready")
			}
			if tr.Zero && s.weight == 0 {
				weight = 0
			}
		}
		if s.weight != weight {
			b.set(name, fmt.Sprintf("weight %d", weight))
		}
	}
	return b.all
}

var _ balancer.Restorer = (*Driver)(nil)
