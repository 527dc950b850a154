package lvs

import (
	"context"
	"errors"
	"fmt"

	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/managed"
)

// recordBefore records the weights of an instance's real servers before Quell changes them, unless they were another instance's, of which
// they are recorded. In a fixed group, a person set a weight of 0.
func (d *Driver) recordBefore(e *entry, views []*service) {
	for i, view := range views {
		if view == nil {
			continue
		}
		r := view.find(e.Numeric)
		if tr := e.trace(d.services[i]); r != nil && r.weight == 0 && !tr.Out && managed.Fixed(d.opts.Members, e.ID) {
			tr.ByHand = true
		}
		if _, recorded := e.Before[d.services[i].String()]; r != nil && r.weight > 0 && !recorded {
			if e.Before == nil {
				e.Before = map[string]int{}
			}
			e.Before[d.services[i].String()] = r.weight
		}
	}
}

// bases returns the weights that people chose for these instances in the first virtual service that has them, divided by their mean; nil if
// all are equal. An instance without a record has the weight in force.
func (d *Driver) bases(entries []*entry, views []*service) map[string]*float64 {
	for i, view := range views {
		if view == nil {
			continue
		}
		chosen := map[string]int{}
		for _, e := range entries {
			if e.Gone {
				continue
			}
			w, recorded := e.Before[d.services[i].String()]
			if r := view.find(e.Numeric); !recorded && r != nil && d.asked == nil {
				w = r.weight
			}
			chosen[e.ID] = w
		}
		return balancer.Bases(chosen)
	}
	return nil
}

// Restore gives the real servers the weights that they had before Quell. It returns what it cannot know. Afterwards Quell manages none.
func (d *Driver) Restore(context.Context) (unknown []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	views, err := d.look()
	if err != nil {
		return nil, err
	}
	if len(d.entries) == 0 {
		return []string{"the record of the virtual services is missing, and IPVS does not tell earlier weights: set them with ipvsadm -e"}, nil
	}
	index(views, d.entries)
	d.entries = ours(d.entries, views)
	var errs []error
	for i, view := range views {
		if view == nil {
			continue
		}
		for _, e := range d.entries {
			v := d.services[i]
			r := view.find(e.Numeric)
			if r == nil || e.trace(v).ByHand {
				continue
			}
			weight, recorded := e.Before[v.String()]
			if !recorded {
				unknown = append(unknown, fmt.Sprintf("the weight of %s in %s before Quell is not recorded: it stays %d", e.ID, v, r.weight))
				continue
			}
			if r.weight != weight {
				errs = append(errs, d.kernel.setWeight(v, r, weight))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return unknown, err
	}
	d.entries, d.asked = nil, nil
	d.memory.Keep(d.entries)
	return unknown, nil
}

var _ balancer.Restorer = (*Driver)(nil)
