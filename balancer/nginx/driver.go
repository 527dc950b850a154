// Package nginx drives an nginx on the controller's machine: it sets weights in the file that declares an upstream's servers, lets nginx
// check its configuration, and reloads it. Other files, and other parameters of the servers, stay as they are.
package nginx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/balancer/managed"
	"github.com/quellhq/quell/internal/outage"
)

const (
	mostWeight  = 100         // the largest weight that Quell sets
	urgentEvery = time.Second // shortest time between two reloads
	// mostOld is how many generations of old workers may still finish their requests before a change of weights waits for them.
	mostOld = 2
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
	master master
	conns  func() (map[netip.AddrPort]int64, error)
	names  names
	checks *health.Checks // nil: nobody checks the instances

	mu       sync.Mutex
	entries  []*entry
	memory   balancer.Memory[entry]
	asked    map[string]quell.Backend // the list that the last Apply got; nil before the first Apply
	reloaded time.Time                // when nginx was last reloaded
	told     map[string]bool          // texts that were already reported
	release  func() error             // gives up the owner's file; nil: it is not held

	counting, waiting outage.Log
}

// New checks the options and reads the memory. nginx need not run yet.
func New(o Options) (*Driver, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Include == "" {
		return nil, &quell.UserError{Err: errors.New("nginx: no file of servers is given")}
	}
	if len(o.Test) == 0 {
		o.Test = []string{"nginx", "-t"}
	}
	d := &Driver{opts: o, master: master{o.PID, o.Test, o.Reload}, conns: openConns, told: map[string]bool{}}
	d.memory = memory(&o)
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
// configuration, everything is as before, and the error says what nginx said.
func (d *Driver) Apply(ctx context.Context, backends []quell.Backend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := balancer.CheckBackends(backends); err != nil {
		return err
	}
	f, err := d.read()
	if err != nil {
		return err
	}
	d.notice(ctx, f)
	if err := d.assign(ctx, f, backends); err != nil {
		return err
	}
	d.checks.Follow(d.known())
	defer d.memory.Keep(d.entries)
	d.entries = slices.DeleteFunc(d.entries, func(e *entry) bool { return e.Leaving && !e.Unsure && d.find(ctx, f, e.Address) == nil })
	return d.change(ctx, f, d.wanted(ctx, f))
}

// State returns what the file declares.
func (d *Driver) State(ctx context.Context) ([]quell.BackendState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := d.read()
	if err != nil {
		return nil, err
	}
	if _, _, err := d.master.workers(); err != nil {
		return nil, err
	}
	d.notice(ctx, f)
	d.memory.Keep(d.entries)
	return d.states(ctx, f), nil
}

// file is the include file as it was read.
type file struct {
	text    string
	servers []server
	mode    os.FileMode
}

// read reads the include file. A missing file has no servers.
func (d *Driver) read() (*file, error) {
	f := &file{mode: 0o644}
	text, err := os.ReadFile(d.opts.Include)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading nginx's servers: %w", err)
	}
	if info, err := os.Stat(d.opts.Include); err == nil {
		f.mode = info.Mode().Perm()
	}
	f.text = string(text)
	list, err := parse(f.text)
	if err == nil {
		f.servers, err = servers(list)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.opts.Include, err)
	}
	for i, s := range f.servers {
		if k := slices.IndexFunc(f.servers[:i], func(o server) bool { return o.address == s.address }); k >= 0 {
			return nil, fmt.Errorf("%s: line %d: %s is declared in line %d, too: remove one of them", d.opts.Include, s.row, s.address,
				f.servers[k].row)
		}
	}
	return f, nil
}

// find returns the server with an address, nil if there is none.
func (d *Driver) find(ctx context.Context, f *file, address string) *server {
	address = withPort(address)
	for i := range f.servers {
		if f.servers[i].address == address {
			return &f.servers[i]
		}
	}
	for i := range f.servers {
		if d.names.same(ctx, f.servers[i].address, address) {
			return &f.servers[i]
		}
	}
	return nil
}

// notice updates the entries from the lines in the file: what differs from what Quell wrote was written by somebody else.
func (d *Driver) notice(ctx context.Context, f *file) {
	for _, e := range d.entries {
		if e.Unsure {
			continue
		}
		s := d.find(ctx, f, e.Address)
		was := e.ByHand
		switch {
		case s == nil:
			e.ByHand = !e.Added && !e.Leaving
		case s.down:
			e.ByHand = e.ByHand || !e.Down && !e.Leaving
		default:
			e.ByHand = false
		}
		if e.ByHand != was && e.ByHand {
			d.opts.Logger.Warn("somebody took a server out of nginx: the instance is held until its line is back without down", "instance", e.ID,
				"file", d.opts.Include)
		}
		if e.ByHand != was && !e.ByHand {
			d.opts.Logger.Info("a server that somebody took out of nginx is back", "instance", e.ID)
			e.Down = false
		}
		if s != nil && !s.down && e.Weight > 0 && s.weight != e.Weight {
			d.opts.Logger.Warn("somebody changed the weight of a server: it counts as the machine's size from now on", "instance", e.ID,
				"from", e.Weight, "to", s.weight)
			e.Base, e.Weight = s.weight, s.weight
		}
	}
}

// assign updates the entries to a list of backends.
func (d *Driver) assign(ctx context.Context, f *file, backends []quell.Backend) error {
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
			e = d.adopt(ctx, f, b)
		}
		e.Ask(b)
	}
	d.asked = asked
	return nil
}

// addressProblem refuses addresses that would become something else in nginx's configuration, and those of another instance.
func addressProblem(b quell.Backend, seen map[string]string) error {
	list, err := parse("server " + b.Address + ";")
	if err != nil || len(list) != 1 || len(list[0].words) != 2 || list[0].words[1] != b.Address {
		return fmt.Errorf("%q, the address of %s, is no address of a server", b.Address, b.ID)
	}
	if other, twice := seen[b.Address]; twice {
		return fmt.Errorf("%s and %s have the same address, %s", other, b.ID, b.Address)
	}
	seen[b.Address] = b.ID
	return nil
}

// adopt makes an entry for an instance that is new, or whose address is. In a fixed group a line that is down at that time was taken out by
// a person.
func (d *Driver) adopt(ctx context.Context, f *file, b quell.Backend) *entry {
	d.entries = slices.DeleteFunc(d.entries, func(e *entry) bool { return e.ID == b.ID || e.Leaving && e.Address == b.Address })
	e := &entry{Entry: managed.Of(b), Added: true}
	if s := d.find(ctx, f, b.Address); s != nil {
		e.Added, e.Base, e.Weight, e.ByHand = false, s.weight, s.weight, s.down && managed.Fixed(d.opts.Members, b.ID)
		e.Down = s.down && !e.ByHand
	}
	d.entries = append(d.entries, e)
	return e
}

// Release puts an instance back in service that a person took out in the file. The next Apply carries it out.
func (d *Driver) Release(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.entries {
		if e.ID == id {
			if e.ByHand {
				e.ByHand, e.Down = false, true
			}
			d.memory.Keep(d.entries)
			return nil
		}
	}
	return fmt.Errorf("no server of nginx stands for %s", id)
}
