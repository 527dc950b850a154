package haproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/internal/outage"
)

// Driver controls the servers of one backend. Its methods may be called concurrently.
type Driver struct {
	opts      Options
	processes []*process
	owning    sync.Mutex // held during Own

	mu      sync.Mutex
	entries []*entry
	memory  balancer.Memory[entry]
	changed bool                     // traces (see external.go) differ from the stored ones
	asked   map[string]quell.Backend // the list that the last Apply got; nil before the first Apply
	since   map[string]time.Time     // when each server began to leave
	drains  map[string]time.Time     // when each server began to drain
	out     map[string]bool          // servers, by process, that were held since the last Apply
	away    map[string]string        // by instance: what keeps it out of service, if that is no command of a person
	// recognised are the instances of a fixed group that declared servers stand for, before the first Apply.
	recognised map[string]string
	algorithms []string          // the backend's, as each HAProxy named it last; empty: it never did
	told       map[string]bool   // texts that were already reported
	stale      bool              // the state file is older than the state in force
	restored   map[*process]bool // where Restore has finished, while it has not everywhere

	placed, saved outage.Log
}

// New checks the options and reads the memory. HAProxy need not run yet. Invalid options are a *quell.UserError.
func New(o Options) (*Driver, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	d := &Driver{opts: o.withDefaults(), since: map[string]time.Time{}, drains: map[string]time.Time{}, told: map[string]bool{},
		out: map[string]bool{}}
	d.placed = outage.Log{Logger: d.opts.Logger, What: "giving every instance a server in HAProxy"}
	d.saved = outage.Log{Logger: d.opts.Logger, What: "keeping HAProxy's state file"}
	d.memory = memory(&d.opts)
	var err error
	if d.entries, err = d.memory.Read(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(o.StateFile); o.StateFile != "" && errors.Is(err, fs.ErrNotExist) {
		d.stale = true
	}
	for _, address := range o.Sockets {
		d.processes = append(d.processes, newProcess(&d.opts, address, len(d.processes)))
	}
	d.algorithms = make([]string, len(d.processes))
	return d, nil
}

// Close updates the state file and closes the connections to HAProxy.
func (d *Driver) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked != nil {
		d.saveState(context.Background())
	}
	for _, p := range d.processes {
		p.socket.close()
	}
}

// Apply makes every HAProxy have exactly these servers, except servers that Quell does not manage. If a HAProxy cannot be reached, that
// is logged and the others are still changed. Apply returns an error only if no HAProxy can be reached, or if no instance has a server.
// Servers that are no longer wanted drain first; a later Apply removes them when their last request has ended. The next State updates the
// state file.
func (d *Driver) Apply(ctx context.Context, backends []quell.Backend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := balancer.CheckBackends(backends); err != nil {
		return err
	}
	views, err := d.views(ctx, (*process).seen)
	if err != nil {
		return err
	}
	d.restored = nil
	unplaced := d.assign(ctx, backends, views)
	clear(d.out)
	d.asked = make(map[string]quell.Backend, len(backends))
	for _, b := range backends {
		d.asked[b.ID] = b
	}
	targets := d.targets(views)
	d.noticeAll(targets, views)
	d.disclaim(targets)
	changed, err := d.applyAll(ctx, targets, views)
	d.remember()
	d.stale = d.stale || changed
	return errors.Join(unplaced, err)
}

// saveState updates the state file.
func (d *Driver) saveState(ctx context.Context) {
	if d.stale && d.opts.StateFile != "" {
		err := d.processes[0].saveState(ctx)
		d.saved.Report(err)
		d.stale = err != nil
	}
}

// State returns what is in force, merged over all HAProxies that can be reached. If every HAProxy has what the last Apply requested, the
// weights are the requested ones, although HAProxy rounds them. If an instance is missing or different in one of them, it is returned
// without an address: it then differs from the request, and so Apply is called again.
func (d *Driver) State(ctx context.Context) ([]quell.BackendState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	views, err := d.views(ctx, (*process).look)
	if err != nil {
		return nil, err
	}
	d.warn(views)
	targets := d.targets(views)
	d.noticeAll(targets, views)
	d.settle(targets, views)
	d.saveState(ctx)
	return d.merge(targets, views), nil
}

// IdleFirst returns whether a HAProxy said that the backend's algorithm is leastconn: it sends a request to an idle server whatever its
// weight.
func (d *Driver) IdleFirst() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.algorithms, string(quell.LeastConn))
}

// views asks all processes at the same time. A process that cannot be reached has no view.
func (d *Driver) views(ctx context.Context, look func(*process, context.Context) (*view, error)) ([]*view, error) {
	views, errs := make([]*view, len(d.processes)), make([]error, len(d.processes))
	var all sync.WaitGroup
	for i, p := range d.processes {
		all.Go(func() { views[i], errs[i] = look(p, ctx) })
	}
	all.Wait()
	return views, unlessSome(d.processes, errs)
}

// unlessSome returns an error only if all processes failed. If only some failed, it logs when their errors begin and end.
func unlessSome(processes []*process, errs []error) error {
	if len(errs) > 1 {
		for i, err := range errs {
			processes[i].report(err)
		}
	}
	if slices.Contains(errs, nil) {
		return nil
	}
	return errors.Join(errs...)
}

func (d *Driver) applyAll(ctx context.Context, targets []target, views []*view) (changed bool, err error) {
	done, errs := make([]bool, len(d.processes)), make([]error, len(d.processes))
	var all sync.WaitGroup
	for i, p := range d.processes {
		if views[i] != nil {
			all.Go(func() { done[i], errs[i] = p.apply(ctx, targets) })
		}
	}
	all.Wait()
	away := func(i int) bool { return errors.As(errs[i], new(unreachable)) }
	reached := false
	for i := range errs {
		reached = reached || views[i] != nil && !away(i)
	}
	for _, p := range d.processes {
		d.changed = p.takeNoticed() || d.changed
	}
	for i := range errs { // a process that became unreachable meanwhile does not delay the others
		if reached && away(i) {
			d.processes[i].report(errs[i])
			errs[i] = nil
		}
	}
	return slices.Contains(done, true), errors.Join(errs...)
}

// targets returns the requested servers. Before the first Apply the request is unknown; then servers only have to exist.
func (d *Driver) targets(views []*view) []target {
	var targets []target
	var shares []float64
	now := d.opts.Now()
	taken := map[string]bool{}
	for _, e := range d.entries {
		taken[e.Server] = true
		b, known := d.asked[e.ID]
		t := target{server: e.Server, address: e.Numeric, named: e.Address, share: b.Weight, draining: b.Draining, leaving: e.Leaving,
			added: e.Added, known: known}
		t.drained, t.person, t.begins, t.traces = e.Drain, e.Held, e.Added || d.isSlot(e.Server), d.tracesOf(e)
		targets = append(targets, d.timed(t, now))
		if t.serves() {
			shares = append(shares, t.share)
		}
	}
	weights := balancer.Whole(shares, maxWeight)
	for i := range targets {
		if targets[i].serves() {
			targets[i].weight, weights = weights[0], weights[1:]
		}
	}
	for _, name := range d.strays(views, taken) {
		targets = append(targets, d.timed(target{server: name, leaving: true}, now))
	}
	return targets
}

// timed records since when a server leaves, and since when it drains. If it began to leave before the first Apply, the time of that Apply
// counts.
func (d *Driver) timed(t target, now time.Time) target {
	t.overdue = waited(d.since, t.server, t.leaving && d.asked != nil, now, d.opts.Drain)
	t.waited = waited(d.drains, t.server, t.leaving || t.draining, now, d.opts.Drain)
	return t
}

// waited returns whether something is so of a server for as long as a limit.
func waited(since map[string]time.Time, server string, is bool, now time.Time, limit time.Duration) bool {
	if !is {
		delete(since, server)
		return false
	}
	if _, known := since[server]; !known {
		since[server] = now
	}
	return now.Sub(since[server]) >= limit
}

// strays returns slots in service that belong to no instance, for example after a start with an old state file.
func (d *Driver) strays(views []*view, taken map[string]bool) []string {
	var found []string
	for _, v := range views {
		if v == nil {
			continue
		}
		for _, name := range v.order {
			if d.isSlot(name) && !taken[name] && !v.servers[name].inMaint() {
				taken[name] = true
				found = append(found, name)
			}
		}
	}
	return found
}

// settle compares weights with the requested ones, to notice if somebody else changes them.
func (d *Driver) settle(targets []target, views []*view) {
	if d.asked == nil {
		return
	}
	for i, v := range views {
		if v != nil && !d.anyBack(i, v, targets) {
			d.processes[i].watchWeights(faithful(v, targets), v.weights(targets))
		}
	}
}

// anyBack returns whether a server has come back into service since the last Apply, which therefore did not ask for the weight that it has.
func (d *Driver) anyBack(i int, v *view, targets []target) (back bool) {
	for k := range targets {
		t := &targets[k]
		key := fmt.Sprint(i, t.server)
		switch {
		case t.held(v):
			d.out[key] = true
		case d.out[key]:
			back = true
		}
	}
	return back
}

// warn notes the backend's algorithm, and reports settings that prevent Quell from controlling the backend, each only once. Which servers
// belong to Quell is known only after the first Apply.
func (d *Driver) warn(views []*view) {
	ours, nobodys := map[string]bool{}, len(d.entries) == 0
	for _, e := range d.entries {
		ours[e.Server] = true
	}
	for i, v := range views {
		if v == nil {
			continue
		}
		if v.how.mode == "tcp" {
			d.once(i, "",
				"the backend has mode tcp: HAProxy counts connections and no requests there, so response times and errors are not measured")
		}
		if v.how.algorithm != "" {
			d.algorithms[i] = v.how.algorithm
		}
		if a := v.how.algorithm; a != "" && !slices.Contains(weighted, a) {
			d.once(i, "", "balance "+a+" does not share requests by weights that change: use roundrobin, leastconn or random")
		}
		for _, name := range v.order {
			s := v.servers[name]
			switch {
			case (ours[name] || nobodys) && s.agent:
				d.once(i, name,
					"a server has an agent-check, which sets weights too: take agent-check out of its line, or the two overwrite each other")
			case (ours[name] || nobodys) && s.status == noCheck:
				d.once(i, name, "a server has no `check` in its line: HAProxy and Quell take it for healthy whatever happens to it")
			case !ours[name] && !nobodys && !d.isSlot(name) && !s.inMaint() && !s.backup:
				d.once(i, name,
					"a server of the backend belongs to no instance: it is left alone, and takes a share of the requests that Quell does not count on")
			}
		}
	}
}

// noCheck is how `show stat` shows a server that is not checked.
const noCheck = "no check"

// weighted are the algorithms that use weights changed at run time, by their names in `show stat`, which may report random as unknown.
var weighted = []string{"roundrobin", "leastconn", "random", "unknown"}

// once warns once about a server, or about the backend if server is empty.
func (d *Driver) once(i int, server, what string) {
	if key := fmt.Sprint(i, server, what); !d.told[key] {
		d.told[key] = true
		d.opts.Logger.Warn(what, "server", strings.TrimSuffix(d.opts.Backend+"/"+server, "/"), "socket", d.opts.Sockets[i])
	}
}

// Instance returns the instance that a server belongs to. If nothing has been applied yet, for example in advise mode, a declared server
// belongs to the instance of the same name.
func (d *Driver) Instance(server string) (id string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.entries {
		if e.Server == server {
			return e.ID, true
		}
	}
	return cmp.Or(d.recognised[server], server), len(d.entries) == 0 && !d.isSlot(server)
}
