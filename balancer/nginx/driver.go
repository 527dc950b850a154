// Package nginx drives an nginx on the controller's machine: it sets weights in the file that declares an upstream's servers, lets nginx
// check its configuration, and reloads it. Other files, and other parameters of the servers, stay as they are.
package nginx

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
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/balancer/managed"
	"github.com/quellhq/quell/balancer/nginx/include"
	"github.com/quellhq/quell/balancer/nginx/master"
	"github.com/quellhq/quell/balancer/nginx/peers"
	"github.com/quellhq/quell/balancer/nginx/record"
	"github.com/quellhq/quell/internal/outage"
)

const (
	mostWeight = 100         // the largest weight that Quell sets
	longest    = time.Minute // how long a program may take: as long as the longest step of a controller, which ends it in most cases
)

// Options configure a Driver.
type Options struct {
	Include string   // the file of the upstream's servers
	PID     string   // the file with the number of the master process
	Test    []string // program that checks the configuration; empty: nginx -t
	Reload  []string // program that reloads it; empty: the signal HUP
	Server  []string // parameters of servers that Quell adds
	Every   time.Duration
	Name    string         // of the service, for the owner's file
	Members []quell.Member // the instances of a fixed group, to recognise their lines before the first Apply
	Memory  string         // a file that stores which line stands for which instance, and what it said before. Empty: there is none
	Logger  *slog.Logger
}

// Driver sets the weights of the instances' servers. Its methods may be called concurrently.
type Driver struct {
	opts   Options
	master master.Master
	names  peers.Names
	checks *health.Checks // nil: nobody checks the instances

	mu      sync.Mutex
	entries []*record.Entry
	memory  balancer.Memory[record.Entry]
	asked   map[string]quell.Backend // the list that the last Apply got; nil before the first Apply
	release func() error             // gives up the owner's file; nil: it is not held

	counting, waiting outage.Log
}

// New checks the options and reads the memory. nginx need not run yet.
func New(o Options) (*Driver, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Include == "" {
		return nil, &quell.UserError{Err: errors.New("nginx: no file of servers is given")}
	}
	if len(o.Test) == 0 {
		o.Test = []string{"nginx", "-t"}
	}
	d := &Driver{opts: o, master: master.Master{PIDFile: o.PID, CheckBy: o.Test, ReloadBy: o.Reload, Every: o.Every, Longest: longest}}
	d.memory = record.Memory(o.Memory, o.Logger)
	d.counting = outage.Log{Logger: o.Logger, What: "counting nginx's connections"}
	d.waiting = outage.Log{Logger: o.Logger, What: "setting nginx's weights"}
	var err error
	if d.entries, err = d.memory.Read(); err != nil {
		return nil, err
	}
	return d, nil
}

// Apply gives each backend's server its weight, adds servers that are missing and removes those that it added and that are no longer
// wanted. If only weights change, it may leave the file as it is until it is time for the next reload. If nginx refuses the new
// configuration, everything is as before, and the error says what nginx said. If nginx was told to reload and has not done it in time, the
// file stays as it was written, and later calls look whether it has.
func (d *Driver) Apply(ctx context.Context, backends []quell.Backend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := balancer.CheckBackends(backends); err != nil {
		return err
	}
	f, err := include.Read(d.opts.Include)
	if err != nil {
		return err
	}
	d.notice(ctx, f)
	if err := d.assign(ctx, f, backends); err != nil {
		return err
	}
	d.checks.Follow(d.known())
	defer func() { d.memory.Keep(d.entries) }() // as they are then
	d.entries = slices.DeleteFunc(d.entries, func(e *record.Entry) bool { return e.Leaving && !e.Unsure && d.find(ctx, f, e.Address) == nil })
	return d.change(ctx, f, d.wanted(ctx, f))
}

// State returns what the file declares.
func (d *Driver) State(ctx context.Context) ([]quell.BackendState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := include.Read(d.opts.Include)
	if err != nil {
		return nil, err
	}
	if _, _, err := d.master.Workers(); err != nil {
		return nil, err
	}
	d.notice(ctx, f)
	d.memory.Keep(d.entries)
	return d.states(ctx, f), nil
}

// find returns the server with an address, nil if there is none.
func (d *Driver) find(ctx context.Context, f *include.File, address string) *include.Server {
	return f.Find(address, func(a, b string) bool { return d.names.Same(ctx, a, b) })
}

// notice updates the entries from the lines in the file, and from nginx if it did not reload in time.
func (d *Driver) notice(ctx context.Context, f *include.File) {
	if d.master.Renewed() {
		d.settled()
	}
	for _, e := range d.entries {
		e.Notice(d.find(ctx, f, e.Address), d.opts.Logger.With("file", d.opts.Include))
	}
}

// assign updates the entries to a list of backends.
func (d *Driver) assign(ctx context.Context, f *include.File, backends []quell.Backend) error {
	byID := managed.Leave(d.entries)
	seen := make(map[string]string, len(backends))
	asked := make(map[string]quell.Backend, len(backends))
	for _, b := range backends {
		if err := addressProblem(b, seen); err != nil {
			return err
		}
		asked[b.ID] = b
		e := byID[b.ID]
		if e == nil || e.Address != b.Address {
			e = d.enter(ctx, f, b)
		}
		e.Ask(b)
	}
	d.asked = asked
	return nil
}

// enter makes the entry of an instance that is new, or whose address is. The line at an instance's earlier address leaves, and what is
// known of a line that was another instance's is kept.
func (d *Driver) enter(ctx context.Context, f *include.File, b quell.Backend) *record.Entry {
	line := d.find(ctx, f, b.Address)
	e := record.Of(b, line, managed.Fixed(d.opts.Members, b.ID))
	others := make([]*record.Entry, 0, len(d.entries)+1)
	for _, old := range d.entries {
		if old.ID != b.ID && !(old.Leaving && old.Address == b.Address) {
			others = append(others, old)
			continue
		}
		switch its := d.find(ctx, f, old.Address); its {
		case nil:
		case line:
			e.Inherit(old)
		default:
			old.ID += " at " + old.Address
			others = append(others, old)
		}
	}
	d.entries = append(others, e)
	return e
}

// addressProblem refuses addresses that would become something else in nginx's configuration, and those of another instance.
func addressProblem(b quell.Backend, seen map[string]string) error {
	if !include.IsAddress(b.Address) {
		return fmt.Errorf("%q, the address of %s, is no address of a server", b.Address, b.ID)
	}
	if other, twice := seen[b.Address]; twice {
		return fmt.Errorf("%s and %s have the same address, %s", other, b.ID, b.Address)
	}
	seen[b.Address] = b.ID
	return nil
}

// Release puts an instance back in service that a person took out in the file. The next Apply carries it out.
func (d *Driver) Release(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.entries {
		if e.ID == id {
			e.Release()
			d.memory.Keep(d.entries)
			return nil
		}
	}
	return fmt.Errorf("no server of nginx stands for %s", id)
}
