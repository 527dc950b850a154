// Package reports gives weights to balancers through the agents: each agent reports its instance's share and load (ORCA), and balancers
// compute the weight from that. There is no balancer to talk to.
package reports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/envoylog"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/balancer/managed"
)

const (
	lasts   = 3           // periods for which a report counts without being renewed
	answer  = time.Second // within which an agent must answer
	atOnce  = 64          // agents that are told at the same time
	mostBad = 3           // agents that an error names
)

// Options configure a Driver.
type Options struct {
	// Tell tells an instance's agent what to report. It is nil where there is no bus.
	Tell   func(ctx context.Context, instance string, r quell.LoadReport) error
	Period time.Duration // the sampling period
	Drain  time.Duration // how long a drain takes, because nobody says which requests are open
	Health health.Options
	Memory string // a file that stores the last shares. Empty: there is none
	Logger *slog.Logger
}

// Driver tells agents what to report. Its methods may be called concurrently.
type Driver struct {
	opts   Options
	checks *health.Checks
	cancel context.CancelFunc

	mu       sync.Mutex
	entries  []*entry
	loads    envoylog.Loads
	numeric  map[string][]string // the resolved form of addresses
	memory   balancer.Memory[entry]
	resource quell.Resource
	capacity map[string]float64
}

// entry is an instance.
type entry struct {
	managed.Given
	told bool // its agent has this share
}

// New reads the memory and begins to check instances.
func New(o Options) (*Driver, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	d := &Driver{opts: o}
	d.memory = balancer.Memory[entry]{
		Path: o.Memory, About: "what agents report", Remedy: "delete it, and agents are told by the next plan", Logger: o.Logger,
		Valid: func(e *entry) bool { return e.Valid() },
	}
	var err error
	if d.entries, err = d.memory.Read(); err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, d.cancel = context.WithCancel(context.Background())
	d.checks = health.NewChecks(ctx, o.Health)
	d.checks.Follow(managed.Addresses(d.entries))
	return d, nil
}

// Close ends the checks.
func (d *Driver) Close() {
	d.cancel()
	d.checks.Wait()
}

// Apply tells agents the shares that have changed, and those that they do not have yet. An agent that cannot be told does not hold up the
// others: its instance counts as not in force, and so Apply is called again.
func (d *Driver) Apply(ctx context.Context, backends []quell.Backend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := balancer.CheckBackends(backends); err != nil {
		return err
	}
	known, now := managed.ByID(d.entries), time.Now()
	var entries []*entry
	for _, b := range backends {
		k := known[b.ID]
		if k == nil {
			k = &entry{}
		}
		e := &entry{Given: managed.Give(b, k.Given, now)}
		e.told = k.told && k.Share == e.Share
		entries = append(entries, e)
	}
	d.entries = entries
	d.checks.Follow(managed.Addresses(d.entries))
	d.memory.Keep(d.entries)
	_ = d.tell(ctx, func(e *entry) bool { return !e.told }) // Inform says who could not be told
	return nil
}

// Inform tells all agents their share again, and what their instance can carry of a resource, as a utilisation. Reports end by themselves
// unless they are renewed.
func (d *Driver) Inform(ctx context.Context, resource quell.Resource, capacity, _ map[string]float64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resource, d.capacity = resource, capacity
	return d.tell(ctx, func(*entry) bool { return true })
}

// tell tells the agents of some instances. The caller holds the lock.
func (d *Driver) tell(ctx context.Context, whom func(*entry) bool) error {
	valid := lasts * d.opts.Period
	return d.each(ctx, whom, func(e *entry) quell.LoadReport {
		r := quell.LoadReport{Share: e.Share, ValidS: valid.Seconds()}
		if c, known := d.capacity[e.ID]; known && c > 0 {
			r.Resource, r.Capacity = d.resource, &c
		}
		return r
	})
}

// each sends a report to the agents of some instances, all at once, and returns who did not take it.
func (d *Driver) each(ctx context.Context, whom func(*entry) bool, report func(*entry) quell.LoadReport) error {
	if d.opts.Tell == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	failed := make([]error, len(d.entries))
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, e := range d.entries {
		if !whom(e) {
			continue
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			failed[i] = d.opts.Tell(ctx, e.ID, report(e))
			e.told = failed[i] == nil
		})
	}
	all.Wait()
	return fewer(failed)
}

// fewer joins errors. Of many it says how many there are.
func fewer(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if n := len(errs); n > mostBad {
		errs = append(errs[:mostBad], fmt.Errorf("and %d agents more", n-mostBad))
	}
	return errors.Join(errs...)
}

// State returns the shares that agents were told. An instance whose agent was not told has no address: it then differs from the request.
func (d *Driver) State(context.Context) ([]quell.BackendState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	states := make([]quell.BackendState, len(d.entries))
	for i, e := range d.entries {
		s := quell.BackendState{Backend: e.Backend(e.Share)}
		s.Healthy, s.Health = d.checks.Of(e.ID)
		s.InFlight = d.inFlight(e)
		if !e.told {
			s.Address = ""
		}
		states[i] = s
	}
	managed.Sort(states)
	return states, nil
}

// inFlight returns the requests in progress at an instance, as Envoys report them. The caller holds the lock.
func (d *Driver) inFlight(e *entry) int64 {
	open, known := int64(0), false
	for _, address := range d.numeric[e.Address] {
		n, reported := d.loads.Open(address)
		open, known = open+n, known || reported
	}
	return e.InFlight(open, known, d.opts.Drain, time.Now())
}

// addresses returns the resolved addresses of all instances, for readings. A name that cannot be resolved is tried again the next time.
func (d *Driver) addresses(ctx context.Context) map[string][]string {
	given, known := d.given()
	numeric, list := map[string][]string{}, map[string][]string{}
	for id, address := range given {
		if numeric[address] = known[address]; numeric[address] == nil {
			numeric[address] = resolved(ctx, address)
		}
		list[id] = numeric[address]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.numeric = numeric
	return list
}

// given returns the address of each instance, and what is known of addresses.
func (d *Driver) given() (at map[string]string, numeric map[string][]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return managed.Addresses(d.entries), d.numeric
}

// resolved returns the addresses that an address stands for; none if it cannot be resolved.
func resolved(ctx context.Context, address string) (list []string) {
	found, _ := balancer.Resolve(ctx, address)
	for _, a := range found {
		list = append(list, a.String())
	}
	return list
}

// Restore ends the reports, so that clients forget the weights.
func (d *Driver) Restore(ctx context.Context) (unknown []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opts.Tell == nil {
		d.entries = nil
		d.memory.Keep(nil)
		return []string{fmt.Sprintf("load reports end %v after the last controller, and clients forget weights after their "+
			"weight_expiration_period", lasts*d.opts.Period)}, nil
	}
	if err := d.each(ctx, func(*entry) bool { return true }, func(*entry) quell.LoadReport { return quell.LoadReport{} }); err != nil {
		return nil, err
	}
	d.entries = nil
	d.checks.Follow(managed.Addresses(d.entries))
	d.memory.Keep(nil)
	return nil, nil
}

var _ balancer.Restorer = (*Driver)(nil)
