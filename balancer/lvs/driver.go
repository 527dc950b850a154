// Package lvs drives Linux Virtual Server: it sets the weights of IPVS's real servers through netlink. Virtual services and real servers
// are made by others, and everything but the weights stays as it is.
package lvs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/managed"
	"github.com/quellhq/quell/internal/outage"
)

// mostWeight is the largest weight that Quell sets. IPVS allows larger ones, but its scheduler wrr sends each server its requests in
// succession, which takes longer with larger weights.
const mostWeight = 100

// Options configure a Driver.
type Options struct {
	Services []string       // virtual services, see Settings
	Zero     ZeroMeans      // what a weight of 0 means that Quell did not set; "" is ZeroHeld
	Members  []quell.Member // the instances of a fixed group, to recognise their real servers before the first Apply
	// Memory is a file that stores which real server belongs to which instance, and who took it out. Empty: there is none.
	Memory string
	Logger *slog.Logger
}

// Driver sets the weights of the instances' real servers. Its methods may be called concurrently.
type Driver struct {
	opts     Options
	services []virtual
	kernel   kernel

	mu      sync.Mutex
	entries []*entry
	memory  balancer.Memory[entry]
	asked   map[string]quell.Backend // the list that the last Apply got; nil before the first Apply
	told    map[string]bool          // texts that were already reported

	placed  outage.Log
	reading []outage.Log // by virtual service
}

// New checks the options and reads the memory. IPVS need not be there yet.
func New(o Options) (*Driver, error) { return newDriver(o, &netlink{}) }

func newDriver(o Options, k kernel) (*Driver, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	d := &Driver{opts: o, kernel: k, told: map[string]bool{}}
	if len(o.Services) == 0 {
		return nil, &quell.UserError{Err: errors.New("lvs: no virtual service is given")}
	}
	for _, text := range o.Services {
		v, err := parseVirtual(text)
		if err != nil {
			return nil, &quell.UserError{Err: fmt.Errorf("lvs: %w", err)}
		}
		d.services = append(d.services, v)
		d.reading = append(d.reading, outage.Log{Logger: o.Logger, What: "reading the virtual service " + text})
	}
	d.placed = outage.Log{Logger: o.Logger, What: "finding the real server of every instance"}
	d.memory = memory(&o)
	var err error
	if d.entries, err = d.memory.Read(); err != nil {
		return nil, err
	}
	for _, e := range d.entries {
		if managed.Fixed(o.Members, e.ID) {
			e.Leaving, e.Gone = false, false // it is back
		}
	}
	return d, nil
}

// Apply gives each backend's real server its weight in every virtual service, and weight 0 to those that drain or are no longer wanted. A
// virtual service that is missing, or an instance without a real server, is logged; it is an error only if none is left.
func (d *Driver) Apply(ctx context.Context, backends []quell.Backend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := balancer.CheckBackends(backends); err != nil {
		return err
	}
	views, err := d.look()
	if err != nil {
		return err
	}
	d.takeBack()
	unplaced := d.assign(ctx, backends, views)
	d.entries = ours(d.entries, views)
	d.asked = make(map[string]quell.Backend, len(backends))
	for _, b := range backends {
		d.asked[b.ID] = b
	}
	targets := d.targets()
	d.notice(targets, views)
	d.disclaim(targets)
	errs := []error{unplaced}
	for i, view := range views {
		if view != nil {
			errs = append(errs, d.set(d.services[i], view, targets))
		}
	}
	d.forget(views)
	d.memory.Keep(d.entries)
	return errors.Join(errs...)
}

// State returns what is in force. In flight are the established connections. IPVS does not check health: an instance is healthy as long as
// it has a real server.
func (d *Driver) State(context.Context) ([]quell.BackendState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	views, err := d.look()
	if err != nil {
		return nil, err
	}
	index(views, d.instances())
	d.entries = ours(d.entries, views)
	targets := d.targets()
	d.notice(targets, views)
	d.memory.Keep(d.entries)
	return d.states(targets, views), nil
}

// instances lists all instances that are known: before the first Apply, also those of a fixed group that have no entry yet.
func (d *Driver) instances() []*entry {
	if d.asked != nil {
		return d.entries
	}
	return slices.Concat(d.entries, d.unmanaged())
}

// look reads all virtual services. Those that are missing have no view; it is an error if all are.
func (d *Driver) look() ([]*service, error) {
	views, missing := make([]*service, len(d.services)), 0
	var errs []error
	for i, v := range d.services {
		view, err := d.kernel.look(v)
		if err != nil && !errors.Is(err, errNoService) {
			return nil, fmt.Errorf("virtual service %s: %w", v, err)
		}
		if err != nil {
			missing++
			err = fmt.Errorf("virtual service %s: %w: make it, for example with ipvsadm -A", v, err)
			errs = append(errs, err)
		}
		if len(d.services) > 1 {
			d.reading[i].Report(err)
		}
		views[i] = view
		if view != nil {
			d.warn(v, view)
		}
	}
	if missing == len(views) {
		return nil, errors.Join(errs...)
	}
	return views, nil
}

// unweighted are the schedulers that ignore weights, or that do not divide the traffic in proportion to weights.
var unweighted = []string{"rr", "lc", "dh", "fo", "ovf"}

// warn reports once that a service's scheduler does not follow weights.
func (d *Driver) warn(v virtual, s *service) {
	if key := v.String() + s.scheduler; slices.Contains(unweighted, s.scheduler) && !d.told[key] {
		d.told[key] = true
		d.opts.Logger.Warn("this scheduler does not share requests by weights: use wlc or wrr (ipvsadm -E)", "service", v.String(),
			"scheduler", s.scheduler)
	}
}

// assign updates the entries to a list of backends, and indexes the views. If an instance has no real server, the others still get their
// weights; it is an error only if no instance has one.
func (d *Driver) assign(ctx context.Context, backends []quell.Backend, views []*service) error {
	byID, known := managed.Leave(d.entries), make(map[netip.AddrPort]entry, len(d.entries))
	for _, e := range d.entries {
		known[e.Numeric] = *e
	}
	wanted, errs := make([]*entry, 0, len(backends)), []error(nil)
	for _, b := range backends {
		e := byID[b.ID]
		if e == nil {
			e = &entry{Entry: managed.Entry{ID: b.ID}}
		}
		if err := d.update(ctx, e, b); err != nil {
			errs = append(errs, err)
			continue
		}
		wanted = append(wanted, e)
	}
	d.bequeath(wanted, known)
	index(views, slices.Concat(wanted, d.entries))
	placed := 0
	for _, e := range wanted {
		there, err := d.place(e, views)
		errs = append(errs, err)
		if there {
			placed++
		}
		if there && e.moved {
			d.recordBefore(e, views)
			e.moved = false
		}
		if there && byID[e.ID] == nil {
			d.entries = append(d.entries, e)
		}
	}
	if placed == 0 {
		return errors.Join(errs...)
	}
	d.placed.Report(errors.Join(errs...))
	return nil
}

// bequeath gives instances whose address is new what is known of their real servers. It drops entries of instances that left, if their real
// server now belongs to another one.
func (d *Driver) bequeath(wanted []*entry, known map[netip.AddrPort]entry) {
	taken := make(map[netip.AddrPort]bool, len(wanted))
	for _, e := range wanted {
		taken[e.Numeric] = true
		if e.In == nil {
			e.In = known[e.Numeric].In
		}
		if e.moved && e.Before == nil {
			e.Before = known[e.Numeric].Before
		}
	}
	d.entries = slices.DeleteFunc(d.entries, func(e *entry) bool { return e.Leaving && taken[e.Numeric] })
}

// update sets the entry of an instance to what is requested.
func (d *Driver) update(ctx context.Context, e *entry, b quell.Backend) error {
	e.Leaving, e.Gone = false, false
	if e.Address != b.Address {
		numeric, err := balancer.Resolve(ctx, b.Address)
		if err != nil {
			return fmt.Errorf("address of %s: %w", b.ID, err)
		}
		e.Address, e.Numeric, e.In = b.Address, numeric[0], nil // a name is resolved once, when an instance's address is new
		e.Before, e.moved = nil, true
		if !managed.Fixed(d.opts.Members, b.ID) {
			e.unborn(d.services)
		}
	}
	e.Ask(b)
	return nil
}

// place returns whether an instance has a real server in any virtual service. The error says in which it has none.
func (d *Driver) place(e *entry, views []*service) (there bool, err error) {
	var errs []error
	for i, view := range views {
		switch {
		case view == nil:
		case view.find(e.Numeric) == nil:
			errs = append(errs, fmt.Errorf("virtual service %s has no real server %s for %s: add it, for example with ipvsadm -a",
				d.services[i], e.Numeric, e.ID))
		default:
			there = true
		}
	}
	return there, errors.Join(errs...)
}

// index prepares the views to be asked for the real servers of instances.
func index(views []*service, instances []*entry) {
	shared := sharedMachines(instances)
	for _, view := range views {
		if view != nil {
			view.index(shared)
		}
	}
}

// unborn marks the real servers of an instance that has just started. Whoever added them may have given them the weight 0.
func (e *entry) unborn(services []virtual) {
	for _, v := range services {
		*e.trace(v) = trace{Out: true}
	}
}

// trace returns what is known about an entry in a virtual service.
func (e *entry) trace(v virtual) *trace {
	if e.In == nil {
		e.In = map[string]*trace{}
	}
	key := v.String()
	if e.In[key] == nil {
		e.In[key] = &trace{}
	}
	return e.In[key]
}

// target is the wanted state of an entry.
type target struct {
	*entry
	share  float64
	weight int  // 0: no new requests
	known  bool // the last Apply asked for it
}

// serves returns whether the target gets a share of the requests.
func (t *target) serves() bool { return t.known && !t.Drain && !t.Leaving }

// leaves returns whether the target is to get no new requests, whatever its share.
func (t *target) leaves() bool { return t.Drain || t.Leaving }

// idle returns whether Quell wants the weight 0.
func (t *target) idle() bool { return t.leaves() || t.known && t.weight == 0 }

// held returns whether somebody else took the target out of a virtual service.
func (t *target) held(v virtual) bool { return !t.Drain && !t.Leaving && t.trace(v).ByHand }

// targets returns the wanted state of all entries. Before the first Apply the shares are not known.
func (d *Driver) targets() []target {
	targets := make([]target, len(d.entries))
	var shares []float64
	for i, e := range d.entries {
		b, known := d.asked[e.ID]
		targets[i] = target{entry: e, share: b.Weight, known: known}
		if targets[i].serves() {
			shares = append(shares, b.Weight)
		}
	}
	weights := balancer.Whole(shares, mostWeight)
	for i := range targets {
		if targets[i].serves() {
			targets[i].weight, weights = weights[0], weights[1:]
		}
	}
	return targets
}

// notice updates the traces from the weights in force, and reports whoever changes weights beside Quell.
func (d *Driver) notice(targets []target, views []*service) {
	for i, view := range views {
		for k := range targets {
			t := &targets[k]
			if view == nil {
				continue
			}
			r, tr := view.find(t.Numeric), t.trace(d.services[i])
			if r == nil {
				if !managed.Fixed(d.opts.Members, t.ID) {
					*tr = trace{Out: true} // whoever adds it again may give it the weight 0
				}
				continue
			}
			before := *tr
			tr.follow(r.weight, t.idle(), t.leaves())
			switch {
			case tr.ByHand && !before.ByHand:
				d.opts.Logger.Warn("somebody set the weight of a real server to 0: "+d.opts.Zero.text(), "instance", t.ID, "service",
					d.services[i].String())
			case before.ByHand && !tr.ByHand:
				d.opts.Logger.Info("a real server that somebody took out has a weight again", "instance", t.ID, "service", d.services[i].String())
			case d.asked != nil && tr.weight != 0 && r.weight != tr.weight && !tr.ByHand:
				d.opts.Logger.Warn("somebody else changed the weight of a real server: Quell sets it again", "instance", t.ID,
					"service", d.services[i].String(), "from", tr.weight, "to", r.weight)
			}
			tr.weight = r.weight
		}
	}
	d.memory.Keep(d.entries)
}

// takeBack ends the time in which servers keep the weight that somebody else put back: the state has told that they are in service again,
// so whoever applies a list now means it.
func (d *Driver) takeBack() {
	for _, e := range d.entries {
		for _, tr := range e.In {
			tr.Back = false
		}
	}
}

// disclaim records which real servers Quell itself is about to take out.
func (d *Driver) disclaim(targets []target) {
	for i := range targets {
		for _, v := range d.services {
			if tr := targets[i].trace(v); targets[i].idle() && !tr.ByHand && !tr.Back {
				tr.Out = true
			}
		}
	}
	d.memory.Keep(d.entries)
}

// set changes the weights of a virtual service that differ. Weights that give the shares as precisely as Quell's own stay as they are.
func (d *Driver) set(v virtual, view *service, targets []target) error {
	agree := faithful(v, view, targets)
	var errs []error
	for i := range targets {
		t := &targets[i]
		r := view.find(t.Numeric)
		if r == nil || t.held(v) || r.weight == t.weight || t.serves() && agree && r.weight > 0 || t.weight == 0 && t.trace(v).Back {
			continue
		}
		if err := d.kernel.setWeight(v, r, t.weight); err != nil {
			errs = append(errs, fmt.Errorf("weight of %s in virtual service %s: %w", r.address, v, err))
			continue
		}
		r.weight, t.trace(v).weight = t.weight, t.weight
	}
	return errors.Join(errs...)
}

// faithful returns whether the weights in force give the shares as precisely as the wanted ones would.
func faithful(v virtual, view *service, targets []target) bool {
	var shares []float64
	var have, want []int
	for i := range targets {
		t := &targets[i]
		if !t.serves() || t.held(v) || t.trace(v).Back {
			continue
		}
		if r := view.find(t.Numeric); r != nil {
			shares, have, want = append(shares, t.share), append(have, r.weight), append(want, t.weight)
		}
	}
	return balancer.AsPrecise(have, want, shares)
}

// forget drops entries of instances that are no longer wanted and get no new requests. In a fixed group they stay while they have a real
// server: a person lists the instances, and may list this one again.
func (d *Driver) forget(views []*service) {
	d.entries = slices.DeleteFunc(d.entries, func(e *entry) bool {
		missing := slices.Contains(views, nil) // it may return with its old weights
		e.Gone = e.Leaving && (e.Gone || !missing && !e.has(views, 1))
		return e.Gone && !missing && (len(d.opts.Members) == 0 || !e.has(views, 0))
	})
}

// ours drops entries of instances that left if somebody has given their real servers a weight since: they are no longer Quell's.
func ours(entries []*entry, views []*service) []*entry {
	return slices.DeleteFunc(entries, func(e *entry) bool { return e.Gone && e.has(views, 1) })
}

// has returns whether an instance has a real server with at least this weight.
func (e *entry) has(views []*service, weight int) bool {
	return slices.ContainsFunc(views, func(view *service) bool {
		if view == nil {
			return false
		}
		r := view.find(e.Numeric)
		return r != nil && r.weight >= weight
	})
}
