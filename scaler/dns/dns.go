// Package dns is the scaler for fleets whose list other programs keep in DNS, such as Consul, a cloud's discovery service or a headless
// service of Kubernetes. It reads the list; it starts and stops nothing.
package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/hostaddr"
)

// patience is how long one answer may take. Servers that do not answer must not hold up decisions.
const patience = time.Second

// atOnce is how many answers are awaited at the same time.
const atOnce = 64

// ErrElsewhere is what Start and Stop return.
var ErrElsewhere = errors.New("the list of instances is kept elsewhere (scaler.kind: dns): Quell neither starts nor stops them")

// Options say which names are looked up.
type Options struct {
	// Names are looked up in order. A name that begins with "_" has records of type SRV, which give host and port. Any other one is
	// host:port and has records of type A and AAAA.
	Names    []string
	Resolver string // host:port of the server that is asked; empty: the system's
	Probe    int    // port of the agents' probe servers; 0: they have none
	// Lookup replaces the resolver, in tests.
	Lookup Lookup
	Now    func() time.Time
}

// Lookup is the part of net.Resolver that is used.
type Lookup interface {
	hostaddr.Resolver
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// Driver lists the instances. It is safe for concurrent use.
type Driver struct {
	opts   Options
	mu     sync.Mutex
	listed map[string]time.Time // when an id was listed first; zero if that was in the first answer
	ids    map[endpoint]string  // of those that are listed
	last   []quell.Member       // the last complete list; nil: there was none yet
	failed error                // why that is not from the last look
}

// New makes a driver. Names were checked by the settings.
func New(opts Options) *Driver {
	if opts.Lookup == nil {
		opts.Lookup = resolver(opts.Resolver)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Driver{opts: opts}
}

func resolver(server string) *net.Resolver {
	r := &net.Resolver{PreferGo: true}
	if server != "" {
		r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server)
		}
	}
	return r
}

// Members looks all names up. If one cannot be looked up, the last list is still used, because one that lacks some instances would look as
// if they had been stopped, and Report says why. There is an error only if there was no list yet.
func (d *Driver) Members(ctx context.Context) ([]quell.Member, error) {
	found, err := d.lookUpAll(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed = err; err == nil {
		d.last = d.members(found)
	}
	if d.last == nil {
		return nil, err
	}
	return slices.Clone(d.last), nil
}

// Report returns why the list is not from the last look, nil if it is.
func (d *Driver) Report() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil || d.last == nil {
		return nil
	}
	return fmt.Errorf("the list of instances is an earlier one: %w", d.failed)
}

// lookUpAll looks up what all names stand for, each host once.
func (d *Driver) lookUpAll(ctx context.Context) (found []endpoint, err error) {
	lists := make([][]target, len(d.opts.Names))
	err = each(len(lists), func(i int) (err error) {
		lists[i], err = d.targets(ctx, d.opts.Names[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	targets := slices.Concat(lists...)
	place, hosts := map[string]int{}, []target{} // of each host, the first target
	for _, t := range targets {
		if _, known := place[t.host]; !known {
			place[t.host] = len(hosts)
			hosts = append(hosts, t)
		}
	}
	addresses := make([][]netip.Addr, len(hosts))
	err = each(len(hosts), func(i int) (err error) {
		addresses[i], err = d.addresses(ctx, hosts[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		found = append(found, t.endpoints(addresses[place[t.host]])...)
	}
	return found, nil
}

// each does something with 0 to n-1, atOnce at the same time, and returns the first error in this order. After an error nothing more is
// begun: a server that does not answer one question is not asked all the others.
func each(n int, do func(int) error) error {
	errs := make([]error, n)
	var failed atomic.Bool
	var running sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i := range n {
		free <- struct{}{}
		if failed.Load() {
			break
		}
		running.Go(func() {
			if errs[i] = do(i); errs[i] != nil {
				failed.Store(true)
			}
			<-free
		})
	}
	running.Wait()
	return cmp.Or(errs...)
}

// target is a host and a port of which a name's instances consist.
type target struct {
	name    string
	host    string
	port    uint16
	service bool // records of type SRV say so
}

// targets returns the targets of a name. Of records of type SRV, they are those with the lowest number for their priority: the others are
// for when these fail.
func (d *Driver) targets(ctx context.Context, name string) (list []target, err error) {
	if !isService(name) {
		host, text, err := net.SplitHostPort(name)
		if err != nil {
			return nil, lookingUp(name, err)
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, lookingUp(name, err)
		}
		return []target{{name: name, host: host, port: uint16(port)}}, nil
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	_, records, err := d.opts.Lookup.LookupSRV(ctx, "", "", name)
	if err != nil {
		return nil, lookingUp(name, d.plain(err))
	}
	first := uint16(math.MaxUint16)
	for _, r := range records {
		first = min(first, r.Priority)
	}
	for _, r := range records {
		host := strings.TrimSuffix(r.Target, ".")
		if r.Priority == first && host != "" { // a target of "." says that there is no such service
			list = append(list, target{name, host, r.Port, true})
		}
	}
	return list, nil
}

func isService(name string) bool { return strings.HasPrefix(name, "_") }

func lookingUp(name string, err error) error { return fmt.Errorf("looking up %s: %w", name, err) }

// addresses returns the addresses of a target's host, at least one.
func (d *Driver) addresses(ctx context.Context, t target) ([]netip.Addr, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	list, err := hostaddr.LookUp(ctx, d.opts.Lookup, t.host)
	if err == nil && len(list) == 0 {
		err = errors.New("no address")
	}
	switch {
	case err == nil:
		return list, nil
	case t.service:
		return nil, lookingUp(t.name, fmt.Errorf("its target %s: %w", t.host, d.plain(err)))
	}
	return nil, lookingUp(t.name, d.plain(err))
}

// endpoint is an address and the host that it was found for; no host if a name has the address itself.
type endpoint struct {
	host string
	at   netip.AddrPort
}

// endpoints returns the instances at a target whose host has these addresses.
func (t target) endpoints(addresses []netip.Addr) (found []endpoint) {
	if t.service {
		// A host with several addresses is one instance. The same one is taken each time, whatever the order of the answer.
		least := slices.MinFunc(addresses, netip.Addr.Compare)
		return []endpoint{{t.host, netip.AddrPortFrom(least.Unmap(), t.port)}}
	}
	old := slices.ContainsFunc(addresses, isIPv4)
	for _, a := range addresses {
		if isIPv4(a) == old { // a machine with addresses of both kinds is one instance
			found = append(found, endpoint{at: netip.AddrPortFrom(a.Unmap(), t.port)})
		}
	}
	return found
}

func isIPv4(a netip.Addr) bool { return a.Unmap().Is4() }

// members gives each address an id: the host of a record of type SRV, else the address; with the port where one host has several. One that
// is listed already keeps its id, whether or not its host has others by now. The caller holds the lock.
func (d *Driver) members(found []endpoint) []quell.Member {
	slices.SortFunc(found, func(a, b endpoint) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.host, b.host))
	})
	found = slices.CompactFunc(found, func(a, b endpoint) bool { return a.at == b.at })
	hosts := map[string]int{}
	for _, e := range found {
		hosts[e.name()]++
	}
	known, ids := d.listed, d.ids
	d.listed, d.ids = map[string]time.Time{}, map[endpoint]string{}
	members := make([]quell.Member, 0, len(found))
	for _, e := range found {
		m := quell.Member{ID: ids[e], Address: e.at.String(), State: quell.Ready}
		if m.ID == "" {
			m.ID = e.name()
			if hosts[m.ID] > 1 {
				m.ID = fmt.Sprintf("%s:%d", m.ID, e.at.Port())
			}
		}
		d.ids[e] = m.ID
		if d.opts.Probe > 0 {
			m.Probe = netip.AddrPortFrom(e.at.Addr(), uint16(d.opts.Probe)).String()
		}
		since, listed := known[m.ID]
		if !listed && d.last != nil {
			since = d.opts.Now()
		}
		m.Started, d.listed[m.ID] = since, since
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b quell.Member) int { return cmp.Compare(a.ID, b.ID) })
	return members
}

func (e endpoint) name() string { return cmp.Or(e.host, e.at.Addr().String()) }

// Start returns ErrElsewhere.
func (d *Driver) Start(context.Context, int) ([]string, error) { return nil, ErrElsewhere }

// Stop returns ErrElsewhere, except for instances that are not listed any more.
func (d *Driver) Stop(_ context.Context, ids []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		if _, listed := d.listed[id]; listed {
			return ErrElsewhere
		}
	}
	return nil
}

// plain is what a resolver's error says, without the name, which the caller has said already.
func (d *Driver) plain(err error) error {
	var e *net.DNSError
	if !errors.As(err, &e) {
		return err
	}
	if server := cmp.Or(d.opts.Resolver, e.Server); server != "" {
		return fmt.Errorf("%s (asked %s)", e.Err, server)
	}
	return errors.New(e.Err)
}
